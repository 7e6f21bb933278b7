//! A git server that only serves files, as any web server does after `git update-server-info`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use support::Sandbox;

use crate::RUNNER;
use crate::source::checkout::{Repository, git, repository};

/// Serves the files below a directory for as long as the tests run.
fn serve(root: &Path) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, root) = (listener.local_addr().unwrap(), root.to_owned());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let root = root.clone();
            // A client may close its connection early.
            std::thread::spawn(move || stream.map(|stream| answer(stream, &root)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, root: &Path) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    // The rest of the request.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = first.split([' ', '?']).nth(1).unwrap_or_default();
    let (status, body) = match std::fs::read(root.join(path.trim_start_matches('/'))) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body)
}

#[test]
fn repository_on_a_server_of_files_is_fetched_with_its_history() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("[ $STEP != init ] || cat main.tf");
    let Repository { dir, commits: [first, second, _] } = repository(&sandbox);
    git(&dir, &["update-server-info"]);
    let url = format!("http://{}/.git", serve(&dir));
    for (revision, text) in [
        (None, "second"),
        (Some("v1"), "first"),
        (Some("feat/side"), "third"),
        (Some(second.as_str()), "second"),
        (Some(&first[..9]), "first"),
    ] {
        let mut args = vec!["plan", &url, "--path", "live/vpc"];
        args.extend(revision.iter().flat_map(|revision| ["--revision", revision]));
        let ended = sandbox.run(&args);
        assert_eq!(ended.code, 0, "{revision:?}: {}", ended.stderr);
        assert!(ended.stdout.contains(text), "{revision:?}: {}", ended.stdout);
    }
    for (url, revision, expected) in [
        (url.as_str(), "nope", "has no revision `nope`"),
        (url.trim_end_matches("/.git"), "main", "is not a git repository"),
    ] {
        let ended = sandbox.run(&["plan", url, "--path", "live/vpc", "--revision", revision]);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}
