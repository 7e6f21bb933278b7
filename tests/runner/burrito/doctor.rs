//! `runner doctor` in a pod.

#![expect(clippy::disallowed_types, reason = "a test starts the runner itself")]

use std::process::Command;

use support::Ended;

use super::Tenant;
use crate::RUNNER;

/// The line of a check, with its hint.
fn check(ended: &Ended, name: &str) -> String {
    let line =
        ended.stdout.split_once(&format!(" {name}: ")).unwrap_or_else(|| panic!("{ended:?}"));
    let start = line.0.rfind('\n').map_or(0, |newline| newline + 1);
    ended.stdout[start..].lines().take(2).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_of_a_pod_are_asked_for() {
    let tenant = Tenant::new("doctor").await;
    let pod = tenant.command("plan", "plan-1");
    let run = |namespace: &str| {
        let mut doctor = Command::new(RUNNER);
        doctor.arg("doctor").env_clear();
        doctor.envs(pod.get_envs().filter_map(|(name, value)| Some((name, value?))));
        doctor.env("HOSTNAME", "pod-0").env("BURRITO_RUNNER_LAYER_NAMESPACE", namespace);
        Ended::from(doctor.output().unwrap())
    };
    let ended = run(&tenant.namespace);
    assert!(check(&ended, "kubernetes").starts_with("ok   kubernetes: "), "{}", ended.stdout);
    let grace = check(&ended, "grace");
    assert!(grace.starts_with("warn grace: ") && grace.contains("to 28 or more"), "{grace}");
    let ended = run("elsewhere");
    let refused = check(&ended, "kubernetes");
    for text in ["fail kubernetes: in namespace elsewhere", "patch terraformlayers", "next: bind"] {
        assert!(refused.contains(text), "{text}: {refused}");
    }
}
