//! `runner doctor`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::git;
use crate::{RUNNER, json};

/// The line of a check, with its hint.
fn check(ended: &Ended, name: &str) -> String {
    let mut lines = ended.stdout.lines();
    let line = lines.find(|line| line.contains(&format!(" {name}: ")));
    let line = line.unwrap_or_else(|| panic!("no check {name}: {}", ended.stdout));
    let hint = lines.next().filter(|line| line.starts_with("     next: "));
    [Some(line), hint].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// A datastore that gives these answers to `/readyz` and to all other requests; an empty one is none.
fn datastore(ready: &'static str, other: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 16 << 10];
            let len = stream.read(&mut buffer).unwrap_or_default();
            let answer = if buffer[..len].starts_with(b"GET /readyz") { ready } else { other };
            if answer.is_empty() {
                silent.push(stream);
            } else {
                drop(stream.write_all(answer.as_bytes()));
            }
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_that_is_ready_has_exit_code_0() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let origin = sandbox.path("origin");
    std::fs::create_dir(&origin).unwrap();
    git(&origin, &["init", "--quiet", "--bare"]);
    git(&sandbox.work(), &["clone", "--quiet", origin.to_str().unwrap(), "code"]);
    let args = ["doctor", "code", "--datastore", datastore.url.as_str()];
    let mut command = sandbox.command(&args);
    let ended = Ended::from(command.env("PLANCHA_TOKEN", "hunter2").output().unwrap());
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let url = datastore.url.as_str().trim_end_matches('/');
    for (name, line) in [
        (
            "datastore",
            &*format!("ok   datastore: {url} is ready, version {}", env!("CARGO_PKG_VERSION")),
        ),
        ("token", "ok   token: a token is in PLANCHA_TOKEN; the datastore accepts it"),
        (
            "rights",
            "ok   rights: runs of the namespace default may be listed, and their files stored",
        ),
        ("clock", "ok   clock: "),
        ("git", "ok   git: git version "),
        ("repository", "ok   repository: origin answers"),
        ("releases", "ok   releases: --offline"),
        ("disk", "ok   disk: TMPDIR "),
        ("state-home", "ok   state-home: "),
        ("bin-dir", "ok   bin-dir: "),
        ("home", "ok   home: "),
    ] {
        assert!(check(&ended, name).starts_with(line), "{name}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("hunter2") && sandbox.is_clean());
    assert!(!sandbox.path("home/.local").exists(), "nothing is created");
    let runs = sandbox.run_with(&datastore.url, &["runs", "--name", "doctor", "--json"]);
    assert_eq!((runs.code, &*runs.stdout.replace(char::is_whitespace, "")), (0, "[]"), "{runs:?}");
}

/// It may list runs, and store nothing.
#[test]
fn missing_right_to_write_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut buffer = [0; 16 << 10];
            let len = stream.read(&mut buffer).unwrap_or_default();
            let answer: &[u8] = if buffer[..len].starts_with(b"PUT ") {
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            } else {
                b"HTTP/1.1 200 OK\r\nServer: plancha\r\nContent-Type: application/json\r\n\
                  Content-Length: 11\r\nConnection: close\r\n\r\n{\"runs\":[]}"
            };
            drop(stream.write_all(answer));
        }
    });
    let ended = Sandbox::new(RUNNER).run(&["doctor", "--datastore", &url]);
    assert_eq!(ended.code, 5, "{}", ended.stdout);
    let check = check(&ended, "rights");
    assert!(check.contains("default may be listed, but their files not be stored: "), "{check}");
    assert!(check.contains("next: add a rule of the datastore"), "{check}");
}

#[test]
fn first_failed_check_decides_the_exit_code() {
    let none =
        "HTTP/1.1 200 OK\r\nServer: plancha\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let refused = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let late = "HTTP/1.1 200 OK\r\nDate: Mon, 23 Nov 2020 09:00:00 GMT\r\nContent-Length: 2\r\n\
                Connection: close\r\n\r\nOK";
    let expired = "e30.eyJleHAiOjE2MDAwMDAwMDB9.c2ln";
    for (url, token, code, name, text) in [
        (
            "http://127.0.0.1:1".to_owned(),
            "x",
            10,
            "datastore",
            "fail datastore: GET http://127.0.0.1:1/readyz",
        ),
        (datastore(none, refused), "x", 5, "token", "and the datastore refuses it: "),
        (datastore(none, forbidden), "x", 5, "rights", "may not be listed: "),
        (
            datastore(none, forbidden),
            expired,
            5,
            "token",
            "the token in PLANCHA_TOKEN expired at 2020-09-13T12:26:40Z",
        ),
        (datastore(late, none), "x", 10, "clock", "warn clock: this machine is "),
        ("http://me:hunter2@127.0.0.1".to_owned(), "x", 8, "datastore", "has a user or password"),
    ] {
        let sandbox = Sandbox::new(RUNNER);
        let mut command = sandbox.command(&["doctor", "--datastore", &url]);
        let ended = Ended::from(command.env("PLANCHA_TOKEN", token).output().unwrap());
        assert!(check(&ended, name).contains(text), "{text}: {}", ended.stdout);
        assert_eq!(ended.code, code, "{text}: {}", ended.stdout);
        assert!(
            !ended.stdout.contains("hunter2") && !ended.stdout.contains(expired),
            "{}",
            ended.stdout
        );
    }
}

#[test]
fn silent_datastore_takes_five_seconds() {
    let sandbox = Sandbox::new(RUNNER);
    let url = datastore("", "");
    let started = Instant::now();
    let ended = sandbox.run(&["doctor", "--json", "--datastore", &url]);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(ended.code, 10, "{}", ended.stdout);
    let checks = json(ended.stdout.as_bytes());
    let of = |name: &str| {
        checks.as_array().unwrap().iter().find(|check| check["name"] == name).cloned().unwrap()
    };
    let datastore = of("datastore");
    assert_eq!((&datastore["level"], &datastore["exit"]), (&"fail".into(), &10.into()));
    assert!(datastore["text"].as_str().unwrap().ends_with("no answer within 5 s"), "{datastore}");
    assert!(datastore["hint"].as_str().unwrap().contains("/readyz"), "{datastore}");
    assert_eq!(
        (&of("token")["level"], &of("home")["exit"]),
        (&"ok".into(), &serde_json::Value::Null)
    );
}

#[test]
fn what_the_machine_lacks_is_named() {
    let sandbox = Sandbox::new(RUNNER);
    let run = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = sandbox.command(&[&["doctor"], args].concat());
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    };
    let ended = run(&[("TMPDIR", "/nonexistent")], &[]);
    assert_eq!(ended.code, 8, "{}", ended.stdout);
    assert!(
        check(&ended, "disk").contains("it is not a directory\n     next: set TMPDIR"),
        "{}",
        ended.stdout
    );
    let ended = run(&[("HOME", "/nonexistent")], &["missing"]);
    assert_eq!(ended.code, 8, "{}", ended.stdout);
    assert!(check(&ended, "repository").starts_with("fail repository: missing is not a directory"));
    assert!(check(&ended, "home").starts_with("warn home: /nonexistent is not a directory"));
    let ended = run(&[], &["http://127.0.0.1:1/x.git"]);
    assert_eq!(ended.code, 6, "{}", ended.stdout);
    assert!(check(&ended, "repository").starts_with("fail repository: http://127.0.0.1:1/x.git: "));
}

/// Git would show it to every process, and the check to its reader.
#[test]
fn secrets_of_the_repositorys_url_are_neither_shown_nor_given_to_git() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox
        .write("git", "#!/bin/sh\necho \"git $*\" >> \"$HOME/calls\"\necho git version 2.50.0\n");
    let git = sandbox.path("bin/git");
    std::fs::copy(sandbox.work().join("git"), &git).unwrap();
    std::fs::set_permissions(&git, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (url, text) in [
        ("https://hunter2@github.com/o/r.git", "https://github.com/o/r.git answers"),
        ("https://me:hunter2@github.com/o/r.git", "https://github.com/o/r.git answers"),
        ("https://github.com/o/r.git?token=hunter2", "a secret in its parameter `token`"),
        ("ssh://me:hunter2@github.com/o/r.git", "ssh URL cannot contain a password"),
        ("me:hunter2@github.com/x", "is not shown, because it may hold a"),
    ] {
        let ended = sandbox.run(&["doctor", url]);
        let check = check(&ended, "repository");
        assert!(check.contains(text), "{url}: {check}");
        let calls = std::fs::read_to_string(sandbox.path("home/calls")).unwrap();
        for text in [&ended.stdout, &ended.stderr, &calls] {
            assert!(!text.contains("hunter2"), "{url}: {text}");
        }
        assert_eq!(check.starts_with("fail"), !check.contains("answers"), "{check}");
    }
    let calls = std::fs::read_to_string(sandbox.path("home/calls")).unwrap();
    assert!(calls.contains("ls-remote --quiet -- https://github.com/o/r.git HEAD"), "{calls}");
}
