//! A runner that is killed while its tool works: the tool gets one SIGINT, and no resource that it created is
//! missing from the state.

use std::path::Path;
use std::time::Duration;

use rand::Rng as _;
use support::{Sandbox, eventually};

use crate::{RUNNER, json};

/// Resources that leave a file each as soon as they are created.
const MODULE: &str = r#"
resource "terraform_data" "r" {
  count = 60
  provisioner "local-exec" {
    command = "sleep 0.${10 + count.index}; touch created-${count.index}"
  }
}
"#;

/// How often a runner is killed; `PLANCHA_E2E=1` takes the long form.
#[expect(clippy::disallowed_methods, reason = "a variable says whether everything must run")]
fn kills() -> usize {
    if std::env::var("PLANCHA_E2E").is_ok_and(|value| value == "1") { 100 } else { 3 }
}

#[test]
fn killed_runner_loses_no_created_resource_from_the_state() {
    let mut lost = Vec::new();
    let (mut cut_short, kills) = (0, kills());
    for kill in 0..kills {
        let sandbox = Sandbox::new(RUNNER);
        sandbox.write("main.tf", MODULE);
        let runner = sandbox.start(None, &["apply", "--no-plan", "--name", "x"]);
        eventually("a resource is created", || !created(&sandbox.work()).is_empty());
        // The first comes early, so that at least one apply is cut short.
        let latest = if kill == 0 { 500 } else { 2500 };
        std::thread::sleep(Duration::from_millis(rand::thread_rng().gen_range(0..latest)));
        runner.signal("KILL");
        let _ended = runner.wait();
        eventually("the tool has ended", || !works_in(&sandbox.work()));
        let (created, known) = (created(&sandbox.work()), known(&sandbox));
        cut_short += usize::from(known.len() < 60);
        let missing = created.iter().filter(|index| !known.contains(index)).collect::<Vec<_>>();
        if !missing.is_empty() {
            lost.push(format!("kill {kill}: {missing:?} of {}", created.len()));
        }
    }
    assert!(lost.is_empty(), "{} of {kills} kills lost resources: {lost:#?}", lost.len());
    assert!(cut_short > 0, "no apply was under way when its runner was killed");
}

/// The indices of the resources that have left their file.
fn created(work: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(work).unwrap().map(|entry| entry.unwrap().file_name());
    let number = |name: &str| name.strip_prefix("created-")?.parse().ok();
    names.filter_map(|name| number(name.to_str()?)).collect()
}

/// The indices of the resources that the state has.
fn known(sandbox: &Sandbox) -> Vec<u64> {
    let state = std::fs::read(sandbox.work().join("terraform.tfstate")).unwrap_or_default();
    if state.is_empty() {
        return Vec::new();
    }
    let state = json(&state);
    let instances = |resource: &serde_json::Value| resource["instances"].as_array().cloned();
    let resources = state["resources"].as_array().unwrap().iter();
    let instances = resources.filter_map(instances).flatten();
    instances.map(|instance| instance["index_key"].as_u64().unwrap()).collect()
}

/// Whether a process works in this directory (proc(5)).
pub(super) fn works_in(dir: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes.into_iter().any(|process| {
        let cwd = std::fs::read_link(process.path().join("cwd"));
        let state = std::fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        cwd.is_ok_and(|cwd| cwd == dir) && !state.contains(") Z ")
    })
}

/// A tool that counts the signals that reach it, and takes its time. It says that it has started only when the guard watches it:
/// the runner adds it there right after the start.
fn counting() -> Sandbox {
    let sandbox = Sandbox::new(RUNNER).hello();
    let (started, heard) = (sandbox.path("started"), sandbox.path("heard"));
    sandbox.fake_terraform(&format!(
        "if [ $STEP = apply ]; then trap 'echo INT >> {heard}' INT; trap 'echo TERM >> {heard}' TERM
           sleep 0.5; touch {started}; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; done; echo end >> {heard}; fi",
        heard = heard.display(),
        started = started.display()
    ))
}

fn heard(sandbox: &Sandbox) -> String {
    std::fs::read_to_string(sandbox.path("heard")).unwrap_or_default()
}

#[test]
fn tool_of_a_killed_runner_gets_one_sigint_and_finishes() {
    let sandbox = counting();
    let runner = sandbox.start(None, &["apply", "--no-plan"]);
    eventually("apply runs", || sandbox.path("started").exists());
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    eventually("the tool has ended", || heard(&sandbox).ends_with("end\n"));
    assert_eq!(heard(&sandbox), "INT\nend\n");
}

/// `timeout --kill-after`, docker and CI systems do so. Two interrupts make terraform leave without its state.
#[test]
fn runner_killed_after_forwarding_a_signal_causes_no_second_sigint() {
    let sandbox = counting();
    let runner = sandbox.start(None, &["apply", "--no-plan"]);
    eventually("apply runs", || sandbox.path("started").exists());
    runner.signal("TERM");
    eventually("the tool has heard", || heard(&sandbox) == "INT\n");
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    eventually("the tool has ended", || heard(&sandbox).ends_with("end\n"));
    assert_eq!(heard(&sandbox), "INT\nend\n");
}

/// What the tool prints has somewhere to go, and what it works with stays, until it has ended.
#[test]
fn private_directory_of_a_killed_runner_stays_while_its_tool_runs() {
    let sandbox = counting();
    let runner = sandbox.start(None, &["apply", "--no-plan"]);
    eventually("apply runs", || sandbox.path("started").exists());
    runner.signal("KILL");
    assert_eq!(runner.wait().code, -1);
    let scratch =
        || std::fs::read_dir(sandbox.path("tmp")).unwrap().next().unwrap().unwrap().path();
    let age = |path: &Path| {
        let past = std::time::SystemTime::now() - Duration::from_mins(10);
        std::fs::File::open(path).unwrap().set_modified(past).unwrap();
    };
    let left = scratch();
    age(&left);
    assert_eq!(sandbox.run(&["apply", "--no-plan", "--path", "no-such-path"]).code, 8);
    assert!(!heard(&sandbox).ends_with("end\n"), "the tool ended too soon to show anything");
    assert!(left.exists(), "it was removed under the tool");
    eventually("the tool has ended", || heard(&sandbox).ends_with("end\n"));
    eventually("the next run removes it", || {
        age(&left);
        sandbox.run(&["apply", "--no-plan", "--path", "no-such-path"]);
        !left.exists()
    });
}
