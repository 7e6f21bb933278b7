//! Invalid arguments, and the runner's messages about them.

use std::path::Path;

use support::{Ended, Proxy, Sandbox, TestDatastore, eventually};

use crate::RUNNER;
use crate::release::resolve::Case;

/// To open a pipe that nothing writes to would block forever, and a device may never end.
#[test]
fn pipes_and_devices_are_refused_as_files() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let pipe = sandbox.work().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let pipe = pipe.to_str().unwrap();
    let remote = ["--datastore", "http://127.0.0.1:9"];
    for args in [
        &["apply", "--plan-file", pipe][..],
        &["apply", "--plan-file", "/dev/zero"],
        &["plan", "--layer", pipe],
        &["plan", "--var-file", pipe],
        &["plan", "--keyring", pipe],
        &["plan", "--ca-file", pipe, remote[0], remote[1]],
        &["plan", "--token-file", pipe, remote[0], remote[1]],
        &["runs", "--layer", pipe, remote[0], remote[1]],
        &["runs", "--name", "x", "--token-file", pipe, remote[0], remote[1]],
        &["upload", "--ca-file", pipe, remote[0], remote[1], "."],
    ] {
        let mut runner = sandbox.command(args).spawn().unwrap();
        let mut code = None;
        eventually(&format!("{args:?} ends"), || {
            code = runner.try_wait().unwrap();
            code.is_some()
        });
        let ended = Ended::from(runner.wait_with_output().unwrap());
        assert_eq!(code.unwrap().code(), Some(8), "{args:?}: {ended:?}");
        let path = if args.contains(&"/dev/zero") { "/dev/zero" } else { pipe };
        let expected = format!("{path} is a device or a pipe");
        assert!(ended.stderr.contains(&expected), "{args:?}: {}", ended.stderr);
    }
    // A shell's `<(command)` is a pipe that is open already.
    let script = "exec \"$0\" plan --var-file <(echo 'a = 1')";
    let bash = Path::new("/bin/bash");
    let ended = Ended::from(sandbox.program(bash, &["-c", script, RUNNER]).output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn signal_ends_the_wait_for_an_open_pipe() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for args in [["plan", "--layer", "/dev/stdin"], ["apply", "--plan-file", "/dev/stdin"]] {
        let mut command = sandbox.command(&args);
        // The pipe stays open, and sends no bytes.
        let mut runner = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let status = format!("/proc/{}/status", runner.id());
        eventually(&format!("{args:?} handles SIGTERM"), || {
            let status = std::fs::read_to_string(&status).unwrap();
            let mut caught = status.lines().filter_map(|line| line.strip_prefix("SigCgt:\t"));
            caught.any(|mask| u64::from_str_radix(mask, 16).unwrap() & (1 << 14) != 0)
        });
        let id = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut ended = None;
        eventually(&format!("{args:?} ends"), || {
            ended = runner.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(143), "{args:?}");
    }
}

#[test]
fn plan_file_of_a_shells_pipe_is_applied() {
    let sandbox = Sandbox::new(RUNNER).hello();
    assert_eq!(sandbox.run(&["plan", "--plan-file", "p"]).code, 0);
    let script = "exec \"$0\" apply --plan-file <(cat p)";
    let bash = Path::new("/bin/bash");
    let ended = Ended::from(sandbox.program(bash, &["-c", script, RUNNER]).output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// A key that only an apply needs may be set for all runs of a machine.
#[test]
fn plan_does_not_read_the_key_that_verifies_plans() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run(&["plan", "--verify-key", "missing.pem"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ended = sandbox.run(&["apply", "--no-plan", "--verify-key", "missing.pem"]);
    assert!(ended.code == 8 && ended.stderr.contains("missing.pem"), "{}", ended.stderr);
}

#[test]
fn options_of_terraform_get_a_hint() {
    let sandbox = Sandbox::new(RUNNER);
    for (words, hint) in [
        (&["-target=a.b"][..], "`--target 'a.b'`"),
        (&["-target", "a.b"], "`--target 'ADDRESS'`"),
        (&["-var=a=b"], "`--var 'a=b'`"),
        (&["-var", "a=b"], "`--var 'NAME=VALUE'`"),
        (&["-var-file=x"], "`--var-file 'x'`"),
        (&[".", "-destroy"], "`runner destroy DIR`"),
        (&["--destroy"], "`runner destroy DIR`"),
        (&["-refresh=false"], "-- -refresh=false`"),
        (&["-parallelism=2"], "-- -parallelism=2`"),
    ] {
        for command in ["plan", "apply"] {
            let ended = sandbox.run(&[&[command], words].concat());
            assert_eq!(ended.code, 64, "{words:?}: {ended:?}");
            assert!(ended.stderr.contains("tip: "), "{words:?}: {ended:?}");
            assert!(ended.stderr.contains(hint), "{words:?}: {ended:?}");
        }
    }
    for (words, hint) in [
        (&["plan", "-out=x"][..], "`--plan-file PATH`"),
        (&["plan", "--out=x"], "`--plan-file PATH`"),
        (&["apply", "-auto-approve"], "`--no-plan` plans and applies in one"),
        (&["apply", "--auto-approve"], "`--no-plan` plans and applies in one"),
        (&["plan", "-input=false"], "leave it out"),
        (&["plan", "-json"], "plan.json"),
        (&["plan", "-chdir=x"], "`runner plan DIR`"),
        (&["plan", "-upgrade"], "`TF_CLI_ARGS_init='-upgrade'`"),
        (&["plan", "-backend-config=x"], "`TF_CLI_ARGS_init='-backend-config=x'`"),
        (&["plan", "-detailed-exitcode"], "`--detailed-exitcode`"),
        (&["plan", "-version"], "`runner version`"),
        (&["plan", "-new-in-terraform"], "-- -new-in-terraform`"),
        (&["resolve", "-json"], "`--json`"),
        (&["tools", "list", "-available"], "`--available`"),
        (&["plan", "-terragrunt=1"], "`--terragrunt='1'`"),
    ] {
        let ended = sandbox.run(words);
        assert_eq!(ended.code, 64, "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(hint), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("as a value"), "{words:?}: {ended:?}");
    }
    // Unknown options are not passed to the tool.
    for words in [&["plan", "--nonsense"][..], &["resolve", "-x"], &["upload", "--nonsense"]] {
        let ended = sandbox.run(words);
        assert!(ended.code == 64 && !ended.stderr.contains("as a value"), "{words:?}: {ended:?}");
    }
    // Behind `--` they are not the runner's.
    let ended = sandbox.run(&["plan", "--nonsense", "--", "-target=a"]);
    assert!(ended.code == 64 && !ended.stderr.contains("--target"), "{ended:?}");
}

#[test]
fn every_version_flag_prints_the_version() {
    let sandbox = Sandbox::new(RUNNER);
    let version = sandbox.run(&["version"]);
    assert_eq!(version.code, 0, "{version:?}");
    for word in ["--version", "-V"] {
        let ended = sandbox.run(&[word]);
        assert_eq!((ended.code, ended.stdout.as_str()), (0, version.stdout.as_str()), "{ended:?}");
    }
}

#[test]
fn json_lists_versions_in_their_order() {
    let case = Case::new();
    for version in ["1.5.10", "1.5.8", "1.9.10", "1.10.0-rc10", "1.10.0-rc2"] {
        case.mirror.add_script(support::MirroredTool::Terraform, version);
    }
    case.sandbox.write("main.tf", "terraform {\n  required_version = \"< 1.5.7\"\n}\n");
    let ended = case.run(&["resolve", "--json"]);
    let resolved = crate::json(ended.stdout.as_bytes());
    let dropped = &resolved["dropped"][0]["versions"];
    assert_eq!(
        *dropped,
        serde_json::json!([
            "1.5.7",
            "1.5.8",
            "1.5.10",
            "1.9.8",
            "1.9.10",
            "1.10.0-rc10",
            "1.10.0-rc2",
            "1.10.0",
            "1.11.0-rc1"
        ]),
        "{ended:?}"
    );
}

#[test]
fn constraints_that_conflict_are_named_with_their_files() {
    let case = Case::new();
    case.sandbox.write("a.tf", "terraform {\n  required_version = \"~> 1.5.0\"\n}\n");
    case.sandbox.write("b.tf", "terraform {\n  required_version = \">= 1.9\"\n}\n");
    let ended = case.run(&["resolve"]);
    assert_eq!(ended.code, 8, "{ended:?}");
    for words in [
        "these conflict: ",
        "~> 1.5.0 (",
        "/a.tf:2)",
        ">= 1.9 (",
        "/b.tf:2)",
        ". next: change one of these constraints",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn url_without_a_scheme_is_reported() {
    let sandbox = Sandbox::new(RUNNER);
    for address in ["localhost:9700", "127.0.0.1:9700", "datastore.burrito:80/x", "datastore"] {
        let ended = sandbox.run(&["plan", "--datastore", address]);
        assert_eq!(ended.code, 64, "{ended:?}");
        let text = format!(
            "(PLANCHA_DATASTORE_URL): {address} has no scheme: write http://{address} or https://"
        );
        assert!(ended.stderr.contains(&text), "{ended:?}");
    }
    let ended = sandbox.run(&["plan", "--datastore", "user:hunter2@host"]);
    assert!(ended.code == 64 && !ended.stderr.contains("hunter2"), "{ended:?}");
    for flag in ["--releases-url", "--tofu-url", "--terragrunt-url"] {
        let no_scheme = "it has no scheme: write http://HOST";
        let wrong = [("localhost:9700", no_scheme), ("127.0.0.1:9700", no_scheme)];
        for (address, why) in wrong.into_iter().chain([("http://h/x?sig=1", "it has a query")]) {
            let ended = sandbox.run(&["resolve", flag, address]);
            assert_eq!(ended.code, 64, "{ended:?}");
            assert!(ended.stderr.contains(why), "{ended:?}");
        }
    }
}

#[test]
fn https_to_a_plain_http_port_is_reported() {
    let sandbox = Sandbox::new(RUNNER);
    let plain = Proxy::refusing("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    let url = plain.url().replace("http://", "https://");
    let ended: Ended = sandbox.run(&["plan", "--datastore", &url]);
    assert_eq!(ended.code, 10, "{ended:?}");
    assert!(ended.stderr.contains("write http:// instead of https://"), "{ended:?}");
}

#[test]
fn command_that_needs_release_sites_is_refused_offline() {
    let sandbox = Sandbox::new(RUNNER);
    for words in [
        &["mirror", "terraform@1.9.8", "mirror", "--offline"][..],
        &["tools", "list", "--available", "--offline"],
    ] {
        let ended = sandbox.run(words);
        assert_eq!(ended.code, 64, "{words:?}: {ended:?}");
        assert!(ended.stderr.contains("leave out --"), "{words:?}: {ended:?}");
    }
}

#[test]
fn a_duration_without_a_unit_is_refused() {
    let sandbox = Sandbox::new(RUNNER);
    for words in [&["tools", "prune", "--unused-for", "30"][..], &["plan", "--grace", "5"]] {
        let ended = sandbox.run(words);
        assert_eq!(ended.code, 64, "{words:?}: {ended:?}");
        assert!(ended.stderr.contains("expected a duration with a unit"), "{words:?}: {ended:?}");
    }
}

#[test]
fn unusable_temporary_directory_is_named() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    std::fs::write(sandbox.path("file"), "").unwrap();
    for (name, reason) in [("missing", "No such file"), ("file", "Not a directory")] {
        let dir = sandbox.path(name);
        let ended: Ended = sandbox.command(&["plan"]).env("TMPDIR", &dir).output().unwrap().into();
        assert_eq!(ended.code, 8, "{ended:?}");
        let words =
            format!("temporary files, {} (TMPDIR), cannot be used: {reason}", dir.display());
        assert!(ended.stderr.contains(&words), "{ended:?}");
        assert!(ended.stderr.contains("next: set TMPDIR to a directory"), "{ended:?}");
    }
    assert!(sandbox.calls().is_empty());
}

#[test]
fn unwritable_or_unreadable_file_is_refused_before_the_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    std::fs::create_dir(sandbox.work().join("dir")).unwrap();
    std::os::unix::fs::symlink("dir", sandbox.work().join("link")).unwrap();
    for (words, reason) in [
        (&["plan", "--plan-file", "/"][..], "--plan-file / is a directory"),
        (
            &["plan", "--plan-file", "dir"],
            "--plan-file dir is a directory: name a file in it, dir/FILE",
        ),
        (&["plan", "--plan-file", "link"], "--plan-file link is a directory"),
        (&["plan", "--plan-file", "."], "--plan-file . is a directory"),
        (&["plan", "--plan-file", "/dev/null"], "--plan-file /dev/null is a device or a pipe"),
        (
            &["plan", "--plan-file", "/proc/x"],
            "--plan-file /proc/x: no file can be created in /proc",
        ),
        (&["plan", "--plan-file", "no/x"], "its directory does not exist"),
        (&["plan", "--result", "/"], "--result / is a directory"),
        (&["plan", "--result", "dir"], "--result dir is a directory"),
        (
            &["apply", "--no-plan", "--result", "/proc/x"],
            "--result /proc/x: no file can be created",
        ),
        (&["apply", "--plan-file", "dir"], "--plan-file dir is a directory"),
        (&["apply", "--plan-file", "none"], "--plan-file none does not exist"),
    ] {
        let ended = sandbox.run(words);
        assert_eq!(ended.code, 8, "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(reason), "{words:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{words:?}: {ended:?}");
    }
    assert!(sandbox.calls().is_empty());
    let ended = sandbox.run(&["plan", "--result", "/dev/null", "--plan-file", "p"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    // A link stays one, and the file that it names is replaced.
    std::os::unix::fs::symlink("p", sandbox.work().join("to-p")).unwrap();
    sandbox.write("p", "");
    assert_eq!(sandbox.run(&["plan", "--plan-file", "p2", "--result", "to-p"]).code, 0);
    assert!(std::fs::symlink_metadata(sandbox.work().join("to-p")).unwrap().is_symlink());
    assert!(sandbox.read("p").contains("\"outcome\""));
}

#[test]
fn unparsable_plan_json_does_not_fail_a_run() {
    let case = Case::new();
    case.sandbox.write(
        "x.tf.json",
        "{\n  \"terraform\": {\"required_version\": \"~> 1.9.0\"},\n  \"locals\": {},\n}\n",
    );
    let ended = case.run(&["resolve"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "1.9.8\n"), "{ended:?}");
    assert!(ended.stderr.contains("x.tf.json:4:1: not JSON"), "{ended:?}");
}

#[test]
fn a_failure_of_git_names_the_url_the_cause_and_the_next_step() {
    let sandbox = Sandbox::new(RUNNER);
    let ssh = |text: &str, url: &str| {
        let ssh = format!("echo '{text}' >&2; exit 255;");
        let mut command = sandbox.command(&["plan", url]);
        Ended::from(command.env("GIT_SSH_COMMAND", ssh).output().unwrap())
    };
    let expect = |ended: Ended, code, url: &str, cause: &str, next: &str| {
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
        let error = ended.stderr.lines().find(|line| line.contains("ERROR")).unwrap();
        assert!(error.contains(url) && error.contains(cause), "{cause}: {ended:?}");
        let last = ended.stderr.lines().last().unwrap();
        assert!(last.split_once(". next: ").unwrap().1.contains(next), "{next}: {ended:?}");
    };
    let scp = "git@git.example:a/b";
    for (text, code, next) in [
        ("ssh: connect to host h port 22: Connection refused", 6, "ssh://USER@HOST:PORT/PATH"),
        (
            "ssh: Could not resolve hostname h: Name or service not known",
            6,
            "correct it in the URL",
        ),
        ("Host key verification failed.", 5, "known_hosts"),
        ("git@h: Permission denied (publickey).", 5, "provide an SSH key"),
        ("ERROR: Repository not found.", 8, "git ls-remote git@git.example:a/b"),
    ] {
        let cause = text.trim_start_matches("ssh: ").trim_start_matches("ERROR: ");
        expect(ssh(text, scp), code, scp, cause, next);
    }
    let plain = Proxy::refusing("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    let host = plain.url().replace("http://", "");
    let https = sandbox.run(&["plan", &format!("https://me:hunter2@{host}/x.git")]);
    let url = format!("https://{host}/x.git");
    expect(https, 6, &url, "", "write http:// instead of https://");
    let asking = Proxy::refusing(
        "HTTP/1.1 401 No\r\nwww-authenticate: Basic\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    );
    let host = asking.url().replace("http://", "");
    let refused = sandbox.run(&["plan", &format!("http://me:hunter2@{host}/x.git")]);
    expect(refused, 5, &format!("http://{host}/x.git"), "", "git ls-remote");
    let missing =
        Proxy::refusing("HTTP/1.1 404 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    let url = format!("{}/x.git", missing.url());
    expect(sandbox.run(&["plan", &url]), 8, &url, "not found", "correct the URL");
    let closed = "http://127.0.0.1:1/x.git";
    expect(sandbox.run(&["plan", closed]), 6, closed, "port 1", "server listens");
    let git = crate::source::checkout::git;
    git(&sandbox.work(), &["init", "--quiet", "--bare", "empty.git"]);
    let url = format!("file://{}/empty.git", sandbox.work().display());
    expect(sandbox.run(&["plan", &url]), 8, &url, "no revision `HEAD`", "repository is empty");
    let named = sandbox.run(&["plan", &url, "--revision", "nope"]);
    expect(named, 8, &url, "no revision `nope`", "git ls-remote");
}

#[test]
fn retry_reports_its_cause_once_and_its_time() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let ended = sandbox.run(&["plan", "--datastore", "http://127.0.0.1:1"]);
    assert_eq!(ended.code, 10, "{ended:?}");
    for line in ended.stderr.lines().filter(|line| line.contains("GET http")) {
        assert_eq!(line.matches("Connection refused").count(), 1, "{line}");
        assert_eq!(line.matches("127.0.0.1:1").count(), 1, "{line}");
        let retries = line.contains("; trying again in ") && line.contains("WARN");
        assert!(retries || line.contains("ERROR"), "{line}");
    }
    assert!(ended.stderr.contains("--datastore or PLANCHA_DATASTORE_URL"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_too_large_is_named_with_its_size_and_the_setting() {
    let datastore = TestDatastore::with_max_size("bin", 4).await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let ended = sandbox.run_with(&datastore.url, &["plan", "--name", "x"]);
    assert_eq!(ended.code, 10, "{ended:?}");
    for words in [
        "(plan.bin): 413",
        "the file has ",
        "the 4B that `--max-size` allows",
        "datastore serve --max-size KIND=SIZE",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn constraints_that_conflict_are_named_without_any_list_of_versions() {
    let case = Case::new();
    case.sandbox.write("a.tf", "terraform {\n  required_version = \">= 1.9\"\n}\n");
    case.sandbox.write("b.tf", "terraform {\n  required_version = \"< 1.5\"\n}\n");
    for more in [&["--releases-url", "http://127.0.0.1:1"][..], &["--offline"]] {
        let mut command = case.sandbox.command(&[&["resolve"][..], more].concat());
        let ended = Ended::from(command.env_remove("PLANCHA_OFFLINE").output().unwrap());
        assert_eq!(ended.code, 8, "{ended:?}");
        for words in ["these conflict: ", ">= 1.9 (", "/a.tf:2)", "< 1.5 (", "/b.tf:2)"] {
            assert!(ended.stderr.contains(words), "{words}: {ended:?}");
        }
        assert!(!ended.stderr.contains("127.0.0.1:1"), "{ended:?}");
    }
}

#[test]
fn a_prerelease_that_no_tool_accepts_in_the_code_is_refused() {
    let sandbox = Sandbox::new(RUNNER);
    for item in [">= 1.11.4-rc1", "= 1.11.4-rc1", "!= 1.2.0-rc1", "~> 1.0.0-alpha", ">= 1.0-"] {
        let code = format!("terraform {{\n  required_version = \"> 0.1, {item}\"\n}}\n");
        sandbox.write("main.tf", &code);
        for words in [&["resolve"][..], &["plan"]] {
            let ended = sandbox.run(words);
            assert_eq!(ended.code, 8, "{item}: {ended:?}");
            let text =
                format!("main.tf:2: `{item}` names a prerelease, which terraform and tofu refuse");
            assert!(ended.stderr.contains(&text), "{ended:?}");
            assert!(ended.stderr.contains("next: leave out what follows the dash"), "{ended:?}");
        }
    }
}

#[test]
fn invalid_version_request_is_a_usage_error_or_a_configuration_error() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "");
    for text in ["abc", ">= 1.0-", "1.5.7-"] {
        let request = format!("terraform@{text}");
        for words in [&["resolve", &request][..], &["plan", "--tool-version", text]] {
            let ended = sandbox.run(words);
            assert_eq!(ended.code, 64, "{words:?}: {ended:?}");
            assert!(ended.stderr.contains("not a version request"), "{ended:?}");
        }
        sandbox.write(".terraform-version", text);
        for words in [&["resolve"][..], &["plan"]] {
            let ended = sandbox.run(words);
            assert_eq!(ended.code, 8, "{words:?}: {ended:?}");
            assert!(ended.stderr.contains(".terraform-version: not a version"), "{ended:?}");
        }
        std::fs::remove_file(sandbox.work().join(".terraform-version")).unwrap();
    }
}

#[test]
fn invalid_keyring_is_refused_even_without_a_download() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    sandbox.write("junk.asc", "not a key");
    for (keyring, text) in
        [("missing.asc", "missing.asc"), ("junk.asc", "contains no OpenPGP public key")]
    {
        for words in [&["plan"][..], &["resolve"]] {
            let ended = sandbox.run(&[words, &["--keyring", keyring]].concat());
            assert_eq!(ended.code, 8, "{keyring}: {ended:?}");
            assert!(ended.stderr.contains(text), "{keyring}: {ended:?}");
        }
    }
    assert_eq!(sandbox.calls(), Vec::<String>::new());
}

/// As another program has passed them: with a typo, with a space before the option, and with a command behind it.
#[test]
fn s7_arguments_are_words_for_the_tool_and_never_for_a_shell() {
    let sandbox = Sandbox::new(RUNNER).hello();
    assert_eq!(sandbox.run(&["apply", "-auto-aprove"]).code, 64);
    let ended = sandbox.run(&["plan", " -input=false"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("is not a directory"), "{}", ended.stderr);
    let ended = sandbox.run(&["plan", "--", "-lock-timeout=1s; touch owned"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("1s; touch owned"), "{}", ended.stderr);
    assert!(!sandbox.work().join("owned").exists());
}
