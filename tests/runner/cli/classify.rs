//! `runner classify`.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;
use support::{Ended, Sandbox, on_path};

use crate::RUNNER;

const LOCKED: &str = "\u{2577}\n\u{2502} Error: Error acquiring the state lock\n\u{2502} \n\u{2502} resource temporarily unavailable\n\u{2575}\n";

/// The runner with this text as its standard input.
fn piped(sandbox: &Sandbox, args: &[&str], text: &[u8]) -> Ended {
    let mut command = sandbox.command(args);
    let mut runner = command.stdin(Stdio::piped()).spawn().unwrap();
    runner.stdin.take().unwrap().write_all(text).unwrap();
    Ended::from(runner.wait_with_output().unwrap())
}

#[test]
fn the_first_line_is_the_class_and_the_others_are_the_errors() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("run.log", LOCKED);
    let expected = "lock\nlock (state-lock): Error acquiring the state lock\n";
    for args in [&["classify", "run.log"][..], &["classify"], &["classify", "-"]] {
        let ended = piped(&sandbox, args, LOCKED.as_bytes());
        assert_eq!((ended.code, ended.stdout.as_str()), (0, expected), "{args:?}: {ended:?}");
        assert_eq!(ended.stderr, "", "{args:?}");
    }
    let ended = sandbox.run(&["classify", "--json", "run.log"]);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["class"], "lock");
    assert_eq!(document["retryable"], false);
    assert_eq!(document["blocks"][0]["rule"], "state-lock");
    assert_eq!(document["blocks"][0]["address"], Value::Null);
}

#[test]
fn output_without_an_error_is_unknown() {
    let sandbox = Sandbox::new(RUNNER);
    for text in [&b""[..], b"No changes.\n", b"\0\xff\xfe\x01Error", &vec![0xe2; 70_000]] {
        let ended = piped(&sandbox, &["classify"], text);
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "unknown\n"), "{ended:?}");
        assert!(ended.stderr.contains("no error of terraform"), "{}", ended.stderr);
    }
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("run.log", LOCKED);
    sandbox.write("rules.yaml", "rules:\n- id: a\n  class: auth\n  pattern: '('\n");
    for (args, error) in [
        (&["classify", "none.log"][..], "none.log cannot be read"),
        (&["classify", "."], ". cannot be read"),
        (&["classify", "/dev/zero"], "/dev/zero is a device or a pipe"),
        (&["classify", "--rules", "none.yaml", "run.log"], "--rules none.yaml cannot be read"),
        (&["classify", "--rules", "rules.yaml", "run.log"], "--rules rules.yaml: line 4: rule a: "),
    ] {
        let ended = sandbox.run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (8, ""), "{args:?}: {ended:?}");
        assert!(
            ended.stderr.contains(error) && ended.stderr.contains("next: "),
            "{}",
            ended.stderr
        );
    }
    let ended = sandbox.run(&["classify", "run.log", "more.log"]);
    assert_eq!(ended.code, 64, "{ended:?}");
}

#[test]
fn rules_of_a_file_come_first_and_are_explained() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write(
        "rules.yaml",
        "rules:\n- id: ours\n  class: transient\n  pattern: proxy-7\n  explanation: It restarts.\n",
    );
    let text = "Error: reading: 403 Forbidden by proxy-7\n\n  with aws_vpc.a,\n";
    let ended =
        piped(&sandbox, &["classify", "--rules", "rules.yaml", "--explain"], text.as_bytes());
    let expected = "transient\ntransient (ours) aws_vpc.a: reading: 403 Forbidden by proxy-7\n    rule ours of --rules, \
                    priority 50: \"proxy-7\"\n    It restarts.\n    also: rule http-403, priority 70 (auth)\n\
                    the error is transient: the run may be retried\n";
    assert_eq!((ended.code, ended.stdout.as_str()), (0, expected), "{ended:?}");
}

/// A reader that ends early, as `head -1` does, is no failure.
#[test]
fn a_closed_stdout_is_not_an_error() {
    let sandbox = Sandbox::new(RUNNER);
    let error = format!("\nError: {}\n\n\n", "x".repeat(2000));
    let log = (0..400).map(|n| error.replacen("xxx", &n.to_string(), 1)).collect::<String>();
    sandbox.write("run.log", &log);
    let mut runner =
        sandbox.command(&["classify", "run.log"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(runner.stdout.take());
    assert_eq!(runner.wait().unwrap().code(), Some(0));
}

#[test]
fn errors_of_a_real_tool_are_read_as_text_and_as_json() {
    let sandbox = Sandbox::new(RUNNER);
    let terraform = on_path("terraform").or_else(|| on_path("tofu")).unwrap();
    sandbox.write(
        "main.tf",
        "variable \"region\" {}\nresource \"terraform_data\" \"a\" {\n  for_each = toset([\"b, c\"])\n  \
         provisioner \"local-exec\" {\n    command = \"echo 503 Service Unavailable; exit 3\"\n  }\n}\n",
    );
    let tool = |args: &[&str]| sandbox.program(&terraform, args).output().unwrap();
    tool(&["init", "-input=false"]);
    let class = |args: &[&str]| {
        let output = tool(args);
        let ended =
            piped(&sandbox, &["classify", "--json"], &[output.stdout, output.stderr].concat());
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        (document["class"].clone(), document["blocks"][0]["address"].clone())
    };
    for format in [&[][..], &["-no-color"], &["-json"]] {
        let missing = class(&[&["plan", "-input=false"], format].concat());
        assert_eq!(missing, ("config".into(), Value::Null), "{format:?}");
        let failed = class(&[&["apply", "-auto-approve", "-var=region=y"], format].concat());
        assert_eq!(failed, ("unknown".into(), "terraform_data.a[\"b, c\"]".into()), "{format:?}");
    }
}
