//! The class and the exit code of a run whose step failed, over real outputs that the rules were not made from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use serde::Deserialize;
use serde_json::Value;
use support::{Ended, Sandbox};

use crate::{RUNNER, json};

#[derive(Clone, Debug, Deserialize)]
struct Sample {
    source: String,
    class: String,
    text: String,
}

/// The outputs in `tests/fixtures/diagnostics/held-out`.
fn samples() -> Vec<Sample> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/diagnostics/held-out");
    let files = std::fs::read_dir(root).unwrap().map(|file| file.unwrap().path());
    let mut files = files.collect::<Vec<_>>();
    files.sort();
    let parse =
        |file| serde_saphyr::from_str::<Vec<Sample>>(&std::fs::read_to_string(file).unwrap());
    files.into_iter().flat_map(|file| parse(file).unwrap()).collect()
}

/// A plan that fails with this output once and succeeds if it is run again: how it ended, its report, and how often the
/// tool's plan was run.
fn plan(output: &str, more: &[&str]) -> (Ended, Value, usize) {
    let script = "if [ \"$STEP\" = plan ] && ! [ -e \"$HOME/failed\" ]; then
        touch \"$HOME/failed\"; cat \"$HOME/output\" >&2; exit 1; fi";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
    std::fs::write(sandbox.path("home/output"), output).unwrap();
    let ended = sandbox.run(&[&["plan", "--result", "result.json"], more].concat());
    let plans = sandbox.calls().iter().filter(|call| call.starts_with("plan")).count();
    (ended, json(sandbox.read("result.json").as_bytes()), plans)
}

fn classified(output: &str) -> Value {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("output", output);
    json(sandbox.run(&["classify", "--json", "output"]).stdout.as_bytes())
}

/// No failure is retried whose cause is another one than a transient, and each has the exit code of its class.
#[test]
fn only_transient_failures_of_others_are_retried_and_each_class_has_its_exit_code() {
    let every_fifth = |(at, sample): (usize, Sample)| {
        (at % 5 == 0 || ["lock", "quota", "already_exists"].contains(&&*sample.class))
            .then_some(sample)
    };
    let samples = samples().into_iter().enumerate().filter_map(every_fifth).collect::<Vec<_>>();
    let (queue, counts) =
        (Mutex::new(samples.iter()), Mutex::new(BTreeMap::<String, usize>::new()));
    let check = |sample: &Sample| {
        let verdict = classified(&sample.text);
        let (class, retryable) = (verdict["class"].as_str().unwrap(), verdict["retryable"] == true);
        let more: &[&str] = if retryable { &["--retries", "0"] } else { &[] };
        let (ended, report, plans) = plan(&sample.text, more);
        assert_eq!(plans, 1, "{}: {}", sample.source, ended.stderr);
        if retryable {
            assert_eq!(sample.class, "transient", "{}", sample.source);
        }
        let code = match class {
            "lock" => 4,
            "auth" => 5,
            "transient" if retryable => 6,
            "quota" => 7,
            "config" => 8,
            _ => 1,
        };
        let rules =
            verdict["blocks"].as_array().unwrap().iter().map(|block| block["rule"].as_str());
        let code = if rules.flatten().any(|rule| rule.starts_with("integrity")) { 9 } else { code };
        assert_eq!(ended.code, code, "{}: {}", sample.source, ended.stderr);
        assert_eq!(report["exit"], code, "{}", sample.source);
        let named = match class {
            _ if code == 9 => "mismatch",
            "transient" if !retryable => "unknown",
            class => class,
        };
        assert_eq!(report["class"], named, "{}", sample.source);
        *counts.lock().unwrap().entry(class.to_owned()).or_default() += 1;
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(sample) = queue.lock().unwrap().next() else { break };
                    check(sample);
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    for (class, least) in [
        ("auth", 3),
        ("config", 4),
        ("transient", 2),
        ("quota", 2),
        ("already_exists", 3),
        ("lock", 1),
    ] {
        assert!(counts.get(class).is_some_and(|count| *count >= least), "{class}: {counts:?}");
    }
}

/// One of two resources fails with a transient error, the other one with one that no rule knows.
#[test]
fn an_error_that_is_not_transient_decides_the_exit_code_and_is_named() {
    let busy = "Error: reading: 503 Service Unavailable\n";
    let other =
        "Error: local-exec provisioner error\n\nError running command 'echo other; exit 1'\n";
    for output in [format!("{busy}\n\n{other}"), format!("{other}\n\n{busy}")] {
        let (ended, report, plans) = plan(&output, &[]);
        assert_eq!((ended.code, plans), (1, 1), "{}", ended.stderr);
        assert_eq!((&report["exit"], &report["class"]), (&1.into(), &"unknown".into()));
        for text in [
            "terraform plan is not run again: 1 of 2 errors are transient",
            "unknown (provisioner): local-exec",
        ] {
            assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("every error is transient"), "{}", ended.stderr);
    }
}

/// Boxes of terraform 1.11 for what those outputs do not contain.
#[test]
fn failures_that_belong_to_the_state_or_to_bytes_have_their_own_codes() {
    for (output, code, class) in [
        (
            "Error: Error acquiring the state lock\n\nError message: resource temporarily unavailable\nLock Info:\n  \
             ID:        fb982e0a\n  Operation: OperationTypeApply\n  Who:       ann@build-7\n",
            4,
            "lock",
        ),
        (
            "Error: Error acquiring the state lock\n\nError message: operation error S3: PutObject, https response error \
             StatusCode: 403, api error AccessDenied: Access Denied\n",
            5,
            "auth",
        ),
        (
            "Error: Failed to install provider\n\nError while installing hashicorp/null v3.2.0: archive has incorrect \
             checksum zh:00\n",
            9,
            "mismatch",
        ),
        ("Error: execution halted\n", 1, "interrupted"),
        ("Error: the frobnicator is out of blue\n", 1, "unknown"),
    ] {
        let (ended, report, plans) = plan(output, &[]);
        assert_eq!(
            (ended.code, &report["class"]),
            (code, &class.into()),
            "{output}: {}",
            ended.stderr
        );
        assert_eq!((&report["outcome"], plans), (&"failed".into(), 1), "{output}");
    }
}

#[test]
fn rules_of_the_user_decide_first_what_is_retried_and_which_exit_code_a_run_has() {
    let sandbox = Sandbox::new(RUNNER);
    let rules = |class: &str| {
        let text =
            format!("rules:\n  - id: ours\n    class: {class}\n    pattern: 'out of blue|503'\n");
        sandbox.write("rules.yaml", &text);
        sandbox.work().join("rules.yaml").to_string_lossy().into_owned()
    };
    let blue = "Error: the frobnicator is out of blue, try again in 1 seconds\n";
    let (ended, report, plans) = plan(blue, &["--rules", &rules("transient")]);
    assert_eq!((ended.code, plans), (0, 2), "{}", ended.stderr);
    assert!(ended.stderr.contains("transient (ours): the frobnicator is out"), "{}", ended.stderr);
    assert_eq!(report["class"], Value::Null);
    let (ended, report, plans) =
        plan("Error: 503 Service Unavailable\n", &["--rules", &rules("quota")]);
    assert_eq!((ended.code, plans, &report["class"]), (7, 1, &"quota".into()), "{}", ended.stderr);
    // Refused before the tool runs.
    let (ended, report, plans) = plan(blue, &["--rules", &rules("blue")]);
    assert_eq!((ended.code, plans, &report["class"]), (8, 0, &"config".into()), "{}", ended.stderr);
    assert!(ended.stderr.contains("rules.yaml: line 3"), "{}", ended.stderr);
    let (ended, _, plans) = plan(blue, &["--rules", "missing.yaml"]);
    assert_eq!((ended.code, plans), (8, 0), "{}", ended.stderr);
    assert!(ended.stderr.contains("--rules missing.yaml cannot be read"), "{}", ended.stderr);
}
