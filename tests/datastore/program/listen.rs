//! The addresses on which the program listens.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::process::{Running, program, until};

/// A port that is free on both loopback addresses. The kernel gives none of this range to those who ask for any
/// (`ip_local_port_range`).
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % 10_000).unwrap();
    let mut ports = (0..1000).map(|_| 20_000 + (process + NEXT.fetch_add(1, Relaxed)) % 12_000);
    let is_free = |port: &u16| {
        TcpListener::bind(("127.0.0.1", *port)).is_ok() && TcpListener::bind(("::1", *port)).is_ok()
    };
    ports.find(is_free).unwrap()
}

/// Runs a command that must end soon with an error, and checks that it names the address.
fn refuses(command: &str, listen: &str, taken: &str) {
    let words = [command, "--storage", "memory://", "--insecure-no-auth", "--listen", listen];
    let mut command = program(&words);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ended = Running { child, address: String::new(), log: Arc::default() };
    let since = Instant::now();
    while ended.child.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < Duration::from_secs(20), "it listens: {words:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut shown = String::new();
    ended.child.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    ended.child.stderr.take().unwrap().read_to_string(&mut shown).unwrap();
    assert_eq!(ended.wait().code(), Some(1), "{words:?}: {shown}");
    let expected = format!("cannot listen on {taken}: Address already in use");
    assert!(shown.contains(&expected), "{words:?}: {shown}");
}

#[test]
fn localhost_is_refused_if_one_of_its_addresses_is_in_use() {
    let port = free_port();
    let name = format!("localhost:{port}");
    for taken in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        let _other = TcpListener::bind(&taken).unwrap();
        refuses("serve", &name, &taken);
        refuses("check", &name, &taken);
    }
}

#[test]
fn localhost_is_served_on_both_of_its_addresses() {
    for port in [free_port(), 0] {
        let listen = format!("localhost:{port}");
        let mut command = program(&["serve", "--storage", "memory://", "--listen", &listen]);
        let mut datastore = Running::of(&mut command);
        let port = datastore.address.parse::<SocketAddr>().unwrap().port();
        for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
            datastore.address.clone_from(&address);
            assert_eq!(datastore.get("/healthz").0, 200);
            let address = format!("address=http://{address} ");
            until("the address is logged", || datastore.log.lock().unwrap().contains(&address));
        }
    }
}

#[test]
fn all_addresses_are_refused_if_one_of_ipv6_is_in_use() {
    let port = free_port();
    let _other = TcpListener::bind(("::1", port)).unwrap();
    for command in ["serve", "check"] {
        refuses(command, &format!(":{port}"), &format!("[::]:{port}"));
    }
}
