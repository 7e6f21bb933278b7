//! Words that are wrong on the command line, and what the runner says instead.

use support::{Ended, Proxy, Sandbox};

use crate::RUNNER;
use crate::resolve::Case;

#[test]
fn options_of_terraform_get_a_hint() {
    let sandbox = Sandbox::new(RUNNER);
    for (words, hint) in [
        (&["-target=a.b"][..], "`--target 'a.b'`"),
        (&["-target", "a.b"], "`--target 'ADDRESS'`"),
        (&["-var=a=b"], "`--var 'a=b'`"),
        (&["-var", "a=b"], "`--var 'NAME=VALUE'`"),
        (&["-var-file=x"], "`--var-file 'x'`"),
        (&[".", "-destroy"], "-- -destroy`"),
        (&["--destroy"], "-- -destroy`"),
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
    // Behind `--` they are not the runner's.
    let ended = sandbox.run(&["plan", "--nonsense", "--", "-target=a"]);
    assert!(ended.code == 64 && !ended.stderr.contains("--target"), "{ended:?}");
}

#[test]
fn the_version_is_printed_however_it_is_asked_for() {
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
        "\n  next: change one of these constraints",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
}

#[test]
fn an_address_without_a_scheme_is_said_to_be_one() {
    let sandbox = Sandbox::new(RUNNER);
    for address in ["localhost:9700", "127.0.0.1:9700", "datastore.burrito:80/x", "datastore"] {
        let ended = sandbox.run(&["plan", "--datastore", address]);
        assert_eq!(ended.code, 64, "{ended:?}");
        let says =
            format!("--datastore {address} has no scheme: write http://{address} or https://");
        assert!(ended.stderr.contains(&says), "{ended:?}");
    }
    let ended = sandbox.run(&["plan", "--datastore", "user:hunter2@host"]);
    assert!(ended.code == 64 && !ended.stderr.contains("hunter2"), "{ended:?}");
    for flag in ["--releases-url", "--tofu-url", "--terragrunt-url"] {
        for address in ["localhost:9700", "127.0.0.1:9700"] {
            let ended = sandbox.run(&["resolve", flag, address]);
            assert_eq!(ended.code, 64, "{ended:?}");
            assert!(ended.stderr.contains("it has no scheme: write http://HOST"), "{ended:?}");
        }
    }
}

#[test]
fn https_to_a_port_of_plain_http_is_said_to_be_that() {
    let sandbox = Sandbox::new(RUNNER);
    let plain = Proxy::refusing("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    let url = plain.url().replace("http://", "https://");
    let ended: Ended = sandbox.run(&["plan", "--datastore", &url]);
    assert_eq!(ended.code, 10, "{ended:?}");
    assert!(ended.stderr.contains("write http:// instead of https://"), "{ended:?}");
}

#[test]
fn a_command_that_needs_the_release_sites_is_refused_offline() {
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
        assert!(ended.stderr.contains("30d"), "{words:?}: {ended:?}");
    }
}
