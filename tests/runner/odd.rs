//! Circumstances that are rare, and must not be surprises.

#![expect(
    clippy::disallowed_types,
    reason = "mounts and closed streams need a command of their own"
)]

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use support::{Ended, Sandbox, TestDatastore, eventually};

use crate::checkout::git;
use crate::stored::Stored;
use crate::{RUNNER, json};

#[test]
fn a_manifest_that_cannot_be_written_is_refused_before_any_work() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    // Root may write anywhere but on a read-only mount, and that takes a namespace of our own.
    let mounts = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && shift && exec \"$0\" \"$@\"";
    let plain = sandbox.command(&["plan", "--layer", "layer.yaml", "--result", "/dev/null"]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mounts]).arg(plain.get_program()).arg(sandbox.work());
    command.args(plain.get_args()).current_dir(sandbox.work()).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = Ended::from(command.output().unwrap());
    if ended.stderr.contains("unshare") || ended.stderr.contains("mount:") {
        return eprintln!("not seen here: {}", ended.stderr);
    }
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("layer.yaml"), "{}", ended.stderr);
    assert!(ended.stderr.contains("Read-only file system"), "{}", ended.stderr);
    assert_eq!(sandbox.calls(), Vec::<String>::new());
}

/// The annotation says what the plan's sum is; what its `run.json` says is not needed then.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_run_json_beside_a_plan_sum_is_no_obstacle() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello();
    let plan = ["plan", "--layer", "layer.yaml", "--run", "p"];
    assert_eq!(sandbox.run_with(&datastore.url, &plan).code, 0);
    let query = "namespace=default&layer=hello&run=p&attempt=0&name=run.json";
    let url = datastore.url.join(&format!("/api/artifacts?{query}")).unwrap();
    let put = reqwest::Client::new().put(url).body("{\"version\": 1, \"plan\": ").send().await;
    assert_eq!(put.unwrap().status(), 200);

    let ended = sandbox.run_with(&datastore.url, &["apply", "--layer", "layer.yaml"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("run.json of p/0 cannot be read"), "{}", ended.stderr);
}

/// On a tree of a million files over a network, say.
#[test]
fn a_slow_git_status_does_not_remove_the_commit() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    git(&sandbox.work(), &["init", "--quiet"]);
    git(&sandbox.work(), &["add", "."]);
    git(&sandbox.work(), &["commit", "--quiet", "-m", "all"]);
    let slow = "#!/bin/sh\ncase $1 in status) exec sleep 300;; esac\nexec /usr/bin/git \"$@\"\n";
    std::fs::write(sandbox.path("bin/git"), slow).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("bin/git"), executable).unwrap();
    let ended = sandbox.run(&["plan", "--result", "/dev/stderr"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let head = git(&sandbox.work(), &["rev-parse", "HEAD"]);
    let warning = format!("whether the code differs from commit {head} is not known");
    assert!(ended.stderr.contains(&warning), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("\"revision\": \"{head}\"")), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stdout_ends_no_tool_but_fails_what_only_prints() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let mut plan = sandbox.command(&["plan", "--run", "p", "--name", "x"]);
    plan.env("PLANCHA_DATASTORE_URL", datastore.url.as_str()).stdout(full());
    let ended = Ended::from(plan.output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let log = Stored::new(&datastore, "default", "x", "p").log(0).await;
    assert!(log.contains("plan is done"), "{log}");

    for args in [["version"].as_slice(), &["resolve", "terraform@1.9.8"]] {
        let ended = Ended::from(sandbox.command(args).stdout(full()).output().unwrap());
        assert_ne!(ended.code, 0, "{args:?}");
        assert!(ended.stderr.contains("stdout"), "{args:?}: {}", ended.stderr);
    }
}

/// What nobody can read is lost, and nothing else: not the apply, its files or its exit code.
#[tokio::test(flavor = "multi_thread")]
async fn a_stderr_that_takes_nothing_changes_no_run() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let datastore = TestDatastore::memory().await;
    for format in ["text", "json"] {
        let sandbox = Sandbox::new(RUNNER).hello();
        let run = |args: &[&str]| {
            let mut command = sandbox.command(args);
            command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
            command.env("PLANCHA_LOG_FORMAT", format).stdout(full()).stderr(full());
            Ended::from(command.output().unwrap()).code
        };
        assert_eq!(run(&["plan", "--run", "p", "--name", format, "--detailed-exitcode"]), 2);
        let apply = ["apply", "--run", "a", "--name", format, "--plan", "p"];
        assert_eq!(run(&[apply.as_slice(), &["--result", "r.json"]].concat()), 0);
        let stored = Stored::new(&datastore, "default", format, "a");
        assert!(stored.log(0).await.contains("Apply complete!"));
        for report in [stored.artifact("run.json", 0).await, sandbox.read("r.json").into()] {
            assert_eq!(json(&report)["outcome"], "applied");
        }
        assert_eq!(run(&["plan", "--revision", "no"]), 64);
        assert!(sandbox.is_clean());
        for args in
            [["version"].as_slice(), &["resolve", "terraform@1.9.8"], &["tools", "list", "--json"]]
        {
            assert_eq!(run(args), 1, "{args:?}");
        }
        assert_eq!(run(&["--help"]), 0);
    }
}

/// A token goes nowhere but to the address that was named, nor does code come from elsewhere.
#[test]
fn a_redirect_of_the_datastores_is_told_and_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let datastore = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", datastore.local_addr().unwrap());
    let to = format!("http://{}", elsewhere.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}/api/attempts?x\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    std::thread::spawn(move || {
        for stream in datastore.incoming() {
            let mut stream = stream.unwrap();
            drop(stream.read(&mut [0; 4096]));
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--datastore", &url]);
    assert_eq!(ended.code, 10, "{}", ended.stderr);
    let told = format!("307 Temporary Redirect: it points to {to}, and redirects are not followed");
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    assert!(elsewhere.accept().is_err(), "nobody came");
}

#[test]
fn a_switch_in_the_environment_may_be_said_in_every_usual_way() {
    for (value, code) in [("1", 0), ("true", 0), ("yes", 0), ("0", 0), ("maybe", 64)] {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let mut command = sandbox.command(&["plan", "--tool-version", "1.9.8"]);
        let ended = Ended::from(command.env("PLANCHA_OFFLINE", value).output().unwrap());
        assert_eq!(ended.code, code, "{value}: {}", ended.stderr);
    }
}

/// `burrito version` is upstream's line; so are the exit codes of unknown words.
#[test]
fn under_the_name_burrito_version_and_codes_are_upstreams() {
    let sandbox = Sandbox::new(RUNNER);
    let burrito = sandbox.path("bin/burrito");
    std::os::unix::fs::symlink(RUNNER, &burrito).unwrap();
    let run = |args: &[&str]| Ended::from(sandbox.program(&burrito, args).output().unwrap());
    let version = run(&["version"]);
    let form = regex::Regex::new(r"^\d+\.\d+\.\d+-\S+ \([^)]+\)\n$").unwrap();
    assert!(version.code == 0 && form.is_match(&version.stdout), "{version:?}");
    for (args, code) in [
        (["runner", "foo"].as_slice(), 2),
        (&["runner"], 2),
        (&["foo"], 1),
        (&["runner", "start", "--foo"], 1),
        (&["runner", "start"], 1),
        (&["runner", "start", "--help"], 0),
        (&["runner", "start", "--runner_binary_path", "/x", "--repository_path", "/y"], 1),
    ] {
        let ended = run(args);
        assert_eq!(ended.code, code, "{args:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("unexpected argument '--r"), "{}", ended.stderr);
    }
    assert!(run(&["runner", "start"]).stderr.contains("BURRITO_RUNNER_LAYER_NAME is not set"));
}

/// strace(1) lets the kernel refuse locks, as some network file systems do.
#[test]
fn a_file_system_without_locks_is_refused_before_any_work_where_locks_matter() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| {
        let inject = ["-f", "-qq", "-o", "/dev/null", "-e", "inject=flock:error=ENOLCK", RUNNER];
        let mut command = sandbox.program(Path::new("strace"), &[&inject, args].concat());
        Ended::from(command.output().unwrap_or_else(|_| sandbox.command(args).output().unwrap()))
    };
    let ended = run(&["apply", "--no-plan", "--layer", "layer.yaml"]);
    if ended.code == 0 || ended.stderr.starts_with("strace:") {
        return eprintln!("not seen here: strace(1) cannot be used");
    }
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for text in ["layer.yaml cannot be locked", "No locks available", "next: put the manifest on"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    assert_eq!(sandbox.calls(), Vec::<String>::new());
    // Where nothing is shared, locks are not needed.
    assert_eq!(run(&["plan"]).code, 0);
    assert!(sandbox.is_clean());
}

/// It came to its end, and its annotations wait for another process: not for ever, and not deaf.
#[test]
fn a_locked_manifest_keeps_no_signal_from_a_runner_whose_apply_is_done() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let manifest = std::fs::File::open(sandbox.work().join("layer.yaml")).unwrap();
    manifest.lock().unwrap();
    let args = ["apply", "--no-plan", "--layer", "layer.yaml", "--grace", "300ms"];
    let runner = sandbox.start(None, &[&args[..], &["--result", "result.json"]].concat());
    eventually("the apply is done", || runner.said("apply is done"));
    runner.signal("TERM");
    let ended = runner.wait();
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(crate::json(sandbox.read("result.json").as_bytes())["applied"], "unplanned");
}
