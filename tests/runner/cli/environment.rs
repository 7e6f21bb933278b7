//! Variables and program names that change how the runner behaves.

use std::fs::File;
use std::path::Path;

use support::{Ended, Sandbox};

use crate::RUNNER;

#[test]
fn boolean_variables_accept_the_usual_spellings() {
    for (value, code) in [("1", 0), ("true", 0), ("yes", 0), ("0", 0), ("maybe", 64)] {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let mut command = sandbox.command(&["plan", "--tool-version", "1.9.8"]);
        let ended = Ended::from(command.env("PLANCHA_OFFLINE", value).output().unwrap());
        assert_eq!(ended.code, code, "{value}: {}", ended.stderr);
    }
}

#[test]
fn invalid_value_of_a_variable_is_reported_with_its_name() {
    let sandbox = Sandbox::new(RUNNER).hello();
    for (variable, value, flag) in [
        ("PLANCHA_OFFLINE", "maybe", "--offline"),
        ("PLANCHA_STEP_TIMEOUT", "soon", "--step-timeout"),
    ] {
        let given = format!("{flag}={value}");
        let mut of_flag = sandbox.command(&["plan", &given]);
        let mut of_variable = sandbox.command(&["plan"]);
        of_flag.env(variable, value);
        of_variable.env(variable, value);
        let ended = Ended::from(of_variable.output().unwrap());
        assert_eq!(ended.code, 64, "{}", ended.stderr);
        let expected = format!("invalid value '{value}' for '{variable} ({flag}");
        assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
        let ended = Ended::from(of_flag.output().unwrap());
        assert_eq!(ended.code, 64, "{}", ended.stderr);
        assert!(!ended.stderr.contains(variable), "{}", ended.stderr);
    }
}

/// `burrito version` is upstream's line; so are the exit codes of unknown words.
#[test]
fn under_the_name_burrito_version_and_exit_codes_are_burritos() {
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
    // A file that is refused before the command itself starts.
    for (name, code) in [("burrito", 1), ("runner", 8)] {
        let path = if name == "burrito" { burrito.as_path() } else { Path::new(RUNNER) };
        let words: &[_] = if name == "burrito" { &["runner"] } else { &[] };
        let mut upload = sandbox.program(path, words);
        upload.args([
            "upload",
            "--ca-file",
            "/dev/stdin",
            "--datastore",
            "http://127.0.0.1:9",
            ".",
        ]);
        let ended = Ended::from(upload.stdin(File::open("/dev/zero").unwrap()).output().unwrap());
        assert_eq!(ended.code, code, "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains("/dev/stdin: it is a device"), "{name}: {}", ended.stderr);
    }
}

/// The words after the name of an image; its entry point is `runner`. Each row of the table in `docs/images.md`.
#[test]
fn the_first_words_of_a_containers_command_decide_whether_it_is_burritos() {
    let sandbox = Sandbox::new(RUNNER);
    let run = |words: &[&str]| Ended::from(sandbox.command(words).output().unwrap());
    for (words, code, text) in [
        (["burrito", "runner", "start"].as_slice(), 1, "BURRITO_RUNNER_LAYER_NAME is not set"),
        (&["runner", "start"], 1, "BURRITO_RUNNER_LAYER_NAME is not set"),
        (&["start"], 8, "BURRITO_RUNNER_LAYER_NAME is not set"),
        (&["burrito", "runner", "foo"], 2, "unrecognized subcommand"),
        (&["burrito", "foo"], 1, "unrecognized subcommand"),
        (&["burrito", "datastore", "start"], 1, "unrecognized subcommand"),
        (&["runner", "start", "--foo"], 1, "unexpected argument"),
        (&["runner", "foo"], 64, "unrecognized subcommand"),
        (&["foo"], 64, "unrecognized subcommand"),
        (&["runner"], 64, "Usage: runner"),
        (&["--help"], 0, ""),
        (&["runner", "--help"], 0, ""),
    ] {
        let ended = run(words);
        assert_eq!(ended.code, code, "{words:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(text), "{words:?}: {}", ended.stderr);
    }
    let burritos = |words: &[&str]| run(words).stdout.contains(" (");
    assert!(burritos(&["burrito", "version"]));
    assert!(!burritos(&["version"]) && !burritos(&["runner", "version"]));
}

#[test]
fn only_allowed_commands_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    for (allowed, args, code) in [
        ("version, check", ["version"].as_slice(), 0),
        ("check", &["version"], 64),
        ("check", &["apply", "--no-plan"], 64),
        ("chekc", &["version"], 64),
        ("", &["version"], 64),
    ] {
        let mut command = sandbox.command(args);
        let ended = Ended::from(command.env("PLANCHA_ALLOWED_COMMANDS", allowed).output().unwrap());
        assert_eq!(ended.code, code, "{allowed} {args:?}: {}", ended.stderr);
    }
    assert!(sandbox.calls().is_empty());
}
