//! An apply with a real provider is killed when AWS has created a role, and has not answered.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{Ended, Sandbox, TestDatastore, eventually};

use crate::aws;

/// A proxy before the API. While it is silent it passes on a creation, and not the answer.
struct Proxy {
    address: SocketAddr,
    is_silent: Arc<AtomicBool>,
    has_created: Arc<AtomicBool>,
}

impl Proxy {
    fn new(api: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (is_silent, has_created) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let proxy = Self { address, is_silent, has_created };
        let api = api.trim_start_matches("http://").to_owned();
        let (silent, created) = (Arc::clone(&proxy.is_silent), Arc::clone(&proxy.has_created));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (api, silent, created) =
                    (api.clone(), Arc::clone(&silent), Arc::clone(&created));
                std::thread::spawn(move || pass(client.unwrap(), &api, &silent, &created));
            }
        });
        proxy
    }
}

/// Passes one request on.
fn pass(mut client: TcpStream, api: &str, silent: &AtomicBool, created: &AtomicBool) {
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    let is_whole = |request: &[u8]| {
        let text = String::from_utf8_lossy(request).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head
            .split_once("content-length: ")
            .map_or(0, |(_, rest)| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
        body.len() >= length
    };
    while !is_whole(&request) {
        match client.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&piece[..count]),
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    let (first, rest) = text.split_once("\r\n").unwrap();
    let mut server = TcpStream::connect(api).unwrap();
    write!(server, "{first}\r\nConnection: close\r\n{rest}").unwrap();
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).unwrap();
    if text.contains("Action=CreateRole") && silent.load(Ordering::Relaxed) {
        created.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_mins(2));
        return;
    }
    // The other side may be gone.
    let _closed = client.write_all(&answer);
}

fn sandbox(proxy: &Proxy, name: &str) -> Sandbox {
    let sandbox = aws::sandbox();
    let provider = aws::provider("iam", &format!("http://{}", proxy.address), "");
    let output = "output \"arn\" {\n  value = aws_iam_role.r.arn\n}\n";
    sandbox.write("main.tf", &(provider + &aws::role(name, "x") + output));
    sandbox
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the aws provider"]
async fn role_that_a_killed_pod_has_created_is_imported_and_that_of_others_is_not() {
    let (proxy, datastore) = (Proxy::new(&aws::api()), TestDatastore::memory().await);
    let name = format!("role-{}", std::process::id());
    let sandbox = sandbox(&proxy, &name);
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    let succeeds = |ended: Ended| {
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        ended
    };
    succeeds(run(&["plan", "--name", "x", "--run", "p"]));
    proxy.is_silent.store(true, Ordering::Relaxed);
    let runner =
        sandbox.start(Some(&datastore.url), &["apply", "--name", "x", "--run", "a", "--plan", "p"]);
    eventually("the role is created", || proxy.has_created.load(Ordering::Relaxed));
    // The ledger is stored within a second of each change.
    tokio::time::sleep(Duration::from_secs(3)).await;
    runner.kill_all();
    assert_eq!(runner.wait().code, -1);
    proxy.is_silent.store(false, Ordering::Relaxed);

    // Another layer with the same name: the role is not its own.
    let others = self::sandbox(&proxy, &name);
    let other = |args: &[&str]| others.run_with(&datastore.url, args);
    succeeds(other(&["plan", "--name", "y", "--run", "p"]));
    let refused = other(&["apply", "--name", "y", "--run", "a", "--plan", "p"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("EntityAlreadyExists"), "{}", refused.stderr);
    for line in
        ["no ledger of this layer shows", "to = aws_iam_role.r", &format!("id = \"{name}\"")]
    {
        assert!(refused.stderr.contains(line), "{line}: {}", refused.stderr);
    }

    succeeds(run(&["plan", "--name", "x", "--run", "q"]));
    let applied = succeeds(run(&["apply", "--name", "x", "--run", "a", "--plan", "q"]));
    assert!(applied.stdout.contains("EntityAlreadyExists"), "{}", applied.stdout);
    assert!(applied.stdout.contains("Import complete"), "{}", applied.stdout);
    assert!(applied.stdout.contains(&format!("role/{name}")), "{}", applied.stdout);
    let last = ["plan", "--name", "x", "--run", "r", "--detailed-exitcode"];
    succeeds(run(&last));
}
