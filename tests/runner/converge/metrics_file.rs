//! `--metrics-file`: the metrics of a command that ends, for the textfile collector of node exporter.

use std::os::unix::fs::PermissionsExt as _;

use support::Sandbox;

use crate::RUNNER;

const FILE: &str = "plancha.prom";

/// The value of a metric of the only layer, with these further labels.
fn value(page: &str, name: &str, labels: &str) -> Option<f64> {
    let mut lines = page
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name) && line.contains(labels));
    lines.next().map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[test]
fn a_failed_run_replaces_the_file_and_keeps_the_last_success() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let check = |code: i32| {
        let ended = sandbox.run(&["check", "--error-after", "1", "--metrics-file", FILE]);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        sandbox.read(FILE)
    };
    let first = check(0);
    assert_eq!(value(&first, "plancha_layer_status", "status=\"absent\""), Some(1.0), "{first}");
    let mode = std::fs::metadata(sandbox.work().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    sandbox.write("broken.tf", "resource {");
    let failed = check(8);
    assert_eq!(value(&failed, "plancha_layer_status", "status=\"error\""), Some(1.0), "{failed}");
    let success = "plancha_layer_last_success_timestamp_seconds";
    assert_eq!(value(&failed, success, ""), value(&first, success, ""));
    assert!(value(&failed, success, "").is_some());
    check(8);
    std::fs::remove_file(sandbox.work().join("broken.tf")).unwrap();
    let last = check(0);
    let runs =
        |class: &str| value(&last, "plancha_layer_runs_total", &format!("class=\"{class}\""));
    assert_eq!((runs("ok"), runs("config")), (Some(2.0), Some(2.0)), "{last}");
    let temporary = std::fs::read_dir(sandbox.work()).unwrap().flatten();
    let temporary = temporary.map(|entry| entry.file_name().into_string().unwrap());
    assert_eq!(temporary.filter(|name| name.starts_with(".plancha")).count(), 0);
}

#[test]
fn a_file_that_is_something_else_is_not_replaced() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    sandbox.write("notes.txt", "important");
    for (file, reason) in [
        ("notes.txt", "exists and has no metrics"),
        ("main.tf", "has the name of a configuration file"),
        ("missing/x.prom", "its directory"),
        (".", "is a directory"),
        ("/dev/null", "is a device or a pipe"),
    ] {
        let ended = sandbox.run(&["converge", "--metrics-file", file]);
        assert_eq!(ended.code, 8, "{file}: {}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{file}: {}", ended.stderr);
    }
    assert_eq!(sandbox.read("notes.txt"), "important");
    assert!(sandbox.calls().is_empty());
}
