//! A backend `http` that refuses, or does not answer, with a real terraform.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use support::{Sandbox, TestDatastore};

use crate::state_server::StateServer;
use crate::{RUNNER, json};

/// A backend that answers each method with the status of this list, and everything else with 200. Returns its address.
fn backend(answers: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, mut request) = (connection.unwrap(), [0; 4096]);
            let read = connection.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]);
            let of_method =
                |(method, _): &&(&str, &str)| request.starts_with(&format!("{method} "));
            let status = answers.iter().find(of_method).map_or("200 OK", |(_, status)| status);
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            drop(connection.write_all(head.as_bytes()));
        }
    });
    format!("http://{address}/s")
}

#[test]
fn what_an_http_backend_refuses_has_the_code_of_its_reason() {
    const NONE: (&str, &str) = ("GET", "404 Not Found");
    for (answers, code, class, lock, plans) in [
        (&[("GET", "401 Unauthorized")][..], 5, "auth", "free", 0),
        (&[("GET", "403 Forbidden")], 5, "auth", "free", 0),
        (&[("GET", "407 Proxy Authentication Required")], 5, "auth", "free", 0),
        (&[NONE, ("LOCK", "401 Unauthorized")], 5, "auth", "unknown", 1),
        (&[NONE, ("LOCK", "503 Service Unavailable")], 6, "transient", "unknown", 2),
        (&[NONE, ("LOCK", "423 Locked")], 4, "lock", "held", 1),
        (&[NONE, ("UNLOCK", "503 Service Unavailable")], 4, "lock", "unknown", 1),
    ] {
        let sandbox = Sandbox::new(RUNNER);
        let address = backend(answers);
        sandbox.write(
            "main.tf",
            &format!(
                "terraform {{
  backend \"http\" {{
    address = \"{address}\"
    lock_address = \"{address}\"
    unlock_address = \"{address}\"
    retry_max = 0
  }}
}}
resource \"terraform_data\" \"a\" {{}}
"
            ),
        );
        let ended = sandbox.run(&["plan", "--result", "result.json", "--retries", "1"]);
        let report = json(sandbox.read("result.json").as_bytes());
        assert_eq!(ended.code, code, "{answers:?}: {}\n{}", ended.stdout, ended.stderr);
        assert_eq!(report["class"], class, "{answers:?}: {}", ended.stderr);
        assert_eq!(report["state_lock"], lock, "{answers:?}: {}", ended.stderr);
        let steps = report["steps"].as_array().unwrap();
        let tries =
            steps.iter().filter(|step| step["name"] == "plan").map(|step| &step["attempts"]);
        assert_eq!(tries.map(|count| count.as_u64().unwrap()).sum::<u64>(), plans, "{answers:?}");
    }
}

/// Words of terraform 1.11.4: they have no box, and do not begin with `Error:`.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_cannot_be_read_before_an_apply_has_the_code_of_its_reason() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let (terraform, fails) = (support::on_path("terraform").unwrap(), sandbox.path("fails"));
    std::fs::write(&fails, "").unwrap();
    let script = format!(
        "#!/bin/sh
if [ \"$1 $2\" = 'state pull' ] && [ -s {fails} ]; then
    echo \"Failed to refresh state: $(head -n 1 {fails})\" >&2; sed -i 1d {fails}; exit 1
fi
exec {terraform} \"$@\"
",
        fails = fails.display(),
        terraform = terraform.display()
    );
    sandbox.script("terraform", &script);
    let module = |input: &str| {
        let module = format!("resource \"terraform_data\" \"a\" {{\n  input = \"{input}\"\n}}\n");
        sandbox.write("main.tf", &module);
    };
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, &[args, &["--name", "x"]].concat());
    module("a");
    assert_eq!((run(&["plan"]).code, run(&["apply"]).code), (0, 0));

    let given_up = "Failed to get state: GET http://127.0.0.1:1/s giving up after 1 attempt(s)\n";
    let refused = "HTTP remote state endpoint requires auth\n";
    for (input, lines, code, says) in [
        ("b", given_up, 0, "terraform state pull failed: transient (retries-given-up)"),
        ("c", refused, 5, "requires auth"),
        ("d", &given_up.repeat(3), 6, "giving up after 1 attempt(s)"),
    ] {
        module(input);
        let ended = run(&["plan"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        std::fs::write(&fails, lines).unwrap();
        let ended = run(&["apply", "--result", "result.json", "--retries", "2"]);
        assert_eq!(ended.code, code, "{input}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{says}: {}", ended.stderr);
        if code != 0 {
            let report = json(sandbox.read("result.json").as_bytes());
            let class = if code == 5 { "auth" } else { "transient" };
            assert_eq!(report["class"], class, "{report}");
            assert!(report["message"].as_str().unwrap().contains(says), "{report}");
            assert!(report["errors"][0]["summary"].as_str().unwrap().contains(says), "{report}");
        }
    }
}

#[test]
fn lock_that_a_retry_could_take_is_free() {
    let (states, backend) = StateServer::start();
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", &format!("{backend}resource \"terraform_data\" \"a\" {{}}\n"));
    states.refuse("LOCK", 503, 1);
    let ended = sandbox.run(&["plan", "--result", "result.json"]);
    let report = json(sandbox.read("result.json").as_bytes());
    assert_eq!((ended.code, &report["state_lock"]), (0, &"free".into()), "{}", ended.stderr);
}
