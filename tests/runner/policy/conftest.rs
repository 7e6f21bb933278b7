//! The same Rego policies over the same plans, by the runner and by conftest itself.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::{Sandbox, on_path};

use super::test_command::fixture;
use crate::{RUNNER, json};

/// What a program says: messages that deny, and warnings, sorted.
type Said = (Vec<String>, Vec<String>);

/// A policy of `tests/fixtures/policies`.
struct Case {
    name: String,
    policy: PathBuf,
    data: Option<PathBuf>,
    version: &'static str,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(fixture("policies")).unwrap() {
        let dir = entry.unwrap().path();
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let has_data = dir.join("data").is_dir();
        let policy = if has_data { dir.join("policy") } else { dir.clone() };
        let version = if name.ends_with("_v0") { "v0" } else { "v1" };
        cases.push(Case { name, policy, data: has_data.then(|| dir.join("data")), version });
    }
    cases
}

/// The plans of the project, and others where they are there.
fn plans() -> Vec<PathBuf> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/plan_fixtures");
    let dirs = [fixture("plans"), shared];
    let entries = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|of| of == "json")).collect()
}

fn texts(list: &Value, text: impl Fn(&Value) -> &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    let mut texts = list.map(|item| text(item).as_str().unwrap().to_owned()).collect::<Vec<_>>();
    texts.sort();
    texts
}

fn of_runner(sandbox: &Sandbox, case: &Case, plan: &Path) -> Said {
    let [policy, plan] = [&case.policy, plan].map(|path| path.display().to_string());
    let data = case.data.as_ref().map(|data| data.display().to_string());
    let mut args = vec!["policy", "test", &policy, "--json", "--plan-json", &plan];
    args.extend(["--rego-version", case.version]);
    args.extend(data.iter().flat_map(|data| ["--policy-data", data]));
    let ended = sandbox.run(&args);
    assert_eq!(ended.code, 0, "{}: {}", case.name, ended.stderr);
    let row = &json(ended.stdout.as_bytes())[0];
    let details = &row["details"];
    (texts(&details["denials"], |text| text), texts(&details["warnings"], |text| text))
}

fn of_conftest(conftest: &Path, sandbox: &Sandbox, case: &Case, plan: &Path) -> Said {
    let args = ["test", "--no-color", "--output", "json", "--rego-version", case.version];
    let mut command = sandbox.program(conftest, &args);
    command.arg("--policy").arg(&case.policy);
    command.args(case.data.iter().flat_map(|data| [OsStr::new("--data"), data.as_os_str()]));
    let output = command.arg(plan).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.stdout.is_empty(), "{}: {said}", case.name);
    let results = json(&output.stdout);
    let result = &results[0];
    (
        texts(&result["failures"], |item| &item["msg"]),
        texts(&result["warnings"], |item| &item["msg"]),
    )
}

#[test]
#[ignore = "needs conftest"]
fn runner_and_conftest_say_the_same_of_every_plan() {
    #[expect(clippy::disallowed_methods, reason = "scripts/test sets it")]
    let conftest = std::env::var_os("PLANCHA_TEST_CONFTEST").map(PathBuf::from);
    let conftest = conftest.or_else(|| on_path("conftest"));
    let conftest = conftest.expect("conftest is on PATH, or PLANCHA_TEST_CONFTEST names it");
    let sandbox = Sandbox::new(RUNNER);
    let (mut compared, mut denials, mut warnings) = (0, 0, 0);
    for case in cases() {
        let mut has_fired = false;
        for plan in plans() {
            let ours = of_runner(&sandbox, &case, &plan);
            let theirs = of_conftest(&conftest, &sandbox, &case, &plan);
            assert_eq!(ours, theirs, "{} of {}", case.name, plan.display());
            compared += 1;
            denials += ours.0.len();
            warnings += ours.1.len();
            has_fired |= !ours.0.is_empty();
        }
        assert!(has_fired, "{} denies no plan: it shows nothing", case.name);
    }
    println!("{compared} comparisons, {denials} denials, {warnings} warnings");
    assert!(compared >= 10 * 7);
}
