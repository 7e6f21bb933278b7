//! What people read of a plan is bound to it, as the plan itself is: a changed rendering is neither shown nor, with a key,
//! applied.

use serde_json::json;
use support::{Sandbox, TestDatastore};

use crate::binding::document::{Planned, planned};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json as parsed};

/// What the fake tool shows of every plan.
const SHOWN: &[u8] = b"shown\n";

/// A signed plan, and the arguments that verify it.
async fn signed() -> (Planned, tempfile::TempDir, [String; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key").display().to_string();
    std::fs::write(&key, "abcdef".repeat(8)).unwrap();
    let planned = planned(&["--signing-key", &key]).await;
    (planned, dir, ["--verify-key".to_owned(), key])
}

/// `runner show` of the plan `p` prints nothing of it, and names what differs.
#[track_caller]
fn not_shown(planned: &Planned, what: &str) {
    for args in [&["show", "p"][..], &["show", "p", "--json"]] {
        let args = [args, &["--name", "x"]].concat();
        let shown = planned.sandbox.run_with(&planned.datastore.url, &args);
        if args.contains(&"--json") && !what.contains("run.json") {
            assert_eq!(shown.code, 0, "{}", shown.stderr);
            continue;
        }
        assert_eq!((shown.code, &*shown.stdout), (9, ""), "{}", shown.stderr);
        let expected = format!("the plan p/0 is bound to another {what}");
        assert!(shown.stderr.contains(&expected), "{expected}: {}", shown.stderr);
        assert!(!shown.stderr.contains("nothing was applied"), "{}", shown.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rendering_or_count_is_refused_by_name_with_a_verify_key() {
    let (planned, _dir, verify) = signed().await;
    let verify = [verify[0].as_str(), &verify[1]];
    let stored = planned.stored();
    for (format, name) in
        [("pretty", "pretty.plan"), ("json", "plan.json"), ("short", "short.diff")]
    {
        let original = stored.plan(format, 0).await;
        stored.put_plan(format, 0, b"No changes.".to_vec()).await;
        planned.refused(&verify, &format!("the plan p/0 is bound to another {name}: sha256 "));
        stored.put_plan(format, 0, original).await;
    }
    let original = stored.artifact("run.json", 0).await;
    let mut report = parsed(&original);
    report["plan"]["counts"] = json!({"create": 0, "update": 0, "delete": 0});
    stored.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    let counts = "number of changes (run.json): Plan: 1 to create, 0 to update, 0 to delete; here it is Plan: 0 to";
    planned.refused(&verify, counts);
    not_shown(&planned, "number of changes (run.json)");
    stored.put_artifact("run.json", 0, original).await;
    let applied = planned.apply(&verify);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_plan_of_another_attempt_is_refused_by_name() {
    let (planned, _dir, verify) = signed().await;
    let stored = planned.stored();
    let args = ["plan", "--name", "x", "--run", "p", "--attempt", "1", "--signing-key", &verify[1]];
    let again = planned.sandbox.run_with(&planned.datastore.url, &args);
    assert_eq!(again.code, 0, "{}", again.stderr);
    for (from, to) in [(0, 1), (1, 0)] {
        let binding = stored.artifact("binding.json", from).await;
        let own = stored.artifact("binding.json", to).await;
        stored.put_artifact("binding.json", to, binding).await;
        for command in ["apply", "show"] {
            let plan = format!("p/{to}");
            let named = if command == "apply" { &["--plan", &*plan][..] } else { &[&*plan] };
            let args = [&[command, "--name", "x", "--verify-key", &verify[1]], named].concat();
            let refused = planned.sandbox.run_with(&planned.datastore.url, &args);
            assert_eq!(refused.code, 9, "{command}: {}", refused.stderr);
            let expected = format!("bound to another attempt: {from}; here it is {to}");
            assert!(refused.stderr.contains(&expected), "{command}: {}", refused.stderr);
        }
        stored.put_artifact("binding.json", to, own).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_of_an_earlier_release_without_digests_of_renderings_is_valid() {
    let (planned, _dir, verify) = signed().await;
    let mut document = planned.document().await;
    document["binding"].as_object_mut().unwrap().shift_remove("renderings").unwrap();
    planned.replace(&document).await;
    planned.refused(&[&verify[0], &verify[1]], "it does not match");
    let stored = planned.stored();
    stored.put_plan("pretty", 0, b"another text".to_vec()).await;
    let shown = planned.sandbox.run_with(&planned.datastore.url, &["show", "p", "--name", "x"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("another text"), "{}", shown.stdout);
    let applied = planned.apply(&[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rendering_is_neither_shown_nor_in_the_summary_of_an_apply() {
    let planned = planned(&[]).await;
    let stored = planned.stored();
    stored.put_plan("pretty", 0, b"No changes.".to_vec()).await;
    not_shown(&planned, "pretty.plan: sha256 ");
    let mut report = parsed(&stored.artifact("run.json", 0).await);
    report["plan"]["counts"] = json!({"create": 0, "update": 0, "delete": 0});
    stored.put_artifact("run.json", 0, report.to_string().into_bytes()).await;
    let changed = json!({"format_version": "1.2", "resource_changes": [
        {"address": "x.never", "change": {"actions": ["no-op"]}}
    ]});
    stored.put_plan("json", 0, changed.to_string().into_bytes()).await;

    let applied = planned.apply(&["--run", "a", "--summary", "summary.md"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    for name in ["pretty.plan", "plan.json"] {
        let expected = format!("the summary lacks {name}: the plan p/0 is bound to another {name}");
        assert!(applied.stderr.contains(&expected), "{expected}: {}", applied.stderr);
    }
    let summary = std::fs::read_to_string(planned.sandbox.work().join("summary.md")).unwrap();
    assert!(summary.contains("applied: 1 created, 0 updated, 0 deleted"), "{summary}");
    assert!(!summary.contains("No changes") && !summary.contains("<details>"), "{summary}");
    let of_apply = StoredRun::new(&planned.datastore, "default", "x", "a");
    let report = parsed(&of_apply.artifact("run.json", 0).await);
    assert_eq!(report["plan"]["counts"]["create"], 1);
    // An apply shows the plan of the run that made it.
    let args = ["show", "a", "--name", "x"];
    let shown = planned.sandbox.run_with(&planned.datastore.url, &args);
    assert_eq!((shown.code, &*shown.stdout), (9, ""), "{}", shown.stderr);

    stored.put_plan("pretty", 0, SHOWN.to_vec()).await;
    let shown = planned.sandbox.run_with(&planned.datastore.url, &args);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.ends_with("The plan of p/0:\n\nshown\n"), "{}", shown.stdout);
}

/// Whether the plan is the one that was reviewed is then not known.
#[tokio::test(flavor = "multi_thread")]
async fn plan_with_an_unreadable_binding_is_shown_with_a_warning() {
    let planned = planned(&[]).await;
    planned.stored().put_artifact("binding.json", 0, b"{".to_vec()).await;
    let shown = planned.sandbox.run_with(&planned.datastore.url, &["show", "p", "--name", "x"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let expected = "what is shown of the plan p/0 is not compared with it: the binding.json of the plan p/0 cannot be read";
    assert!(shown.stderr.contains(expected), "{}", shown.stderr);
}

/// `runner show` of the run, with these arguments.
fn show(planned: &Planned, run: &str, args: &[&str]) -> support::Ended {
    let args = [&["show", run, "--name", "x"], args].concat();
    planned.sandbox.run_with(&planned.datastore.url, &args)
}

#[tokio::test(flavor = "multi_thread")]
async fn show_verifies_the_signature_with_a_key_and_says_so_without() {
    let (planned, dir, verify) = signed().await;
    let verify = [verify[0].as_str(), &verify[1]];
    let other = dir.path().join("other").display().to_string();
    std::fs::write(&other, "ABCDEF".repeat(8)).unwrap();
    let valid = format!("Signature:     signed by the key in {}, valid\n", verify[1]);
    for (args, line, state) in [
        (&verify[..], valid.as_str(), "valid"),
        (&[], "Signature:     signed, not verified (--verify-key)\n", "not verified"),
    ] {
        let shown = show(&planned, "p", args);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        assert!(shown.stdout.contains(line), "{line}: {}", shown.stdout);
        let json = show(&planned, "p", &[args, &["--json"]].concat());
        assert_eq!(parsed(json.stdout.as_bytes())["signature"], state, "{}", json.stdout);
    }
    for args in [&["--verify-key", &other][..], &["--verify-key", &other, "--json"]] {
        let shown = show(&planned, "p", args);
        assert_eq!((shown.code, &*shown.stdout), (9, ""), "{}", shown.stderr);
        let expected =
            "the signature of the plan p/0 is not of the key of --verify-key: it does not match";
        assert!(shown.stderr.contains(expected), "{}", shown.stderr);
        assert!(!shown.stderr.contains("nothing was applied"), "{}", shown.stderr);
    }

    // An apply shows the plan of the run that made it.
    let applied = planned.apply(&["--run", "a"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let shown = show(&planned, "a", &verify);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains(&valid), "{}", shown.stdout);
    assert_eq!(show(&planned, "a", &["--verify-key", &other]).code, 9);

    let stored = planned.stored();
    let original = planned.document().await;
    let mut unsigned = original.clone();
    unsigned["signature"] = json!(null);
    let of_other_text = b"{".to_vec();
    for (document, expected) in [
        (unsigned.to_string().into_bytes(), "the plan p/0 is not signed"),
        (of_other_text, "the binding.json of the plan p/0 cannot be read"),
    ] {
        stored.put_artifact("binding.json", 0, document).await;
        let shown = show(&planned, "p", &verify);
        assert_eq!((shown.code, &*shown.stdout), (9, ""), "{}", shown.stderr);
        assert!(shown.stderr.contains(expected), "{expected}: {}", shown.stderr);
    }
    planned.replace(&unsigned).await;
    let shown = show(&planned, "p", &[]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("Signature:     none\n"), "{}", shown.stdout);
}

/// A run without a plan has no signature, and what is shown of it is not verified.
#[tokio::test(flavor = "multi_thread")]
async fn show_with_a_key_says_that_a_run_without_a_plan_is_not_verified() {
    let (planned, _dir, verify) = signed().await;
    let args = ["apply", "--name", "x", "--run", "u", "--no-plan"];
    let applied = planned.sandbox.run_with(&planned.datastore.url, &args);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let shown = show(&planned, "u", &[&verify[0], &verify[1]]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let line = "Signature:     none: this run has stored no plan\n";
    assert!(shown.stdout.contains(line), "{}", shown.stdout);
}

/// As `datastore gc --max-age pretty=7d` leaves it.
#[tokio::test(flavor = "multi_thread")]
async fn signed_plan_without_renderings_is_applied() {
    let datastore = TestDatastore::temporary().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let key = sandbox.path("key");
    std::fs::write(&key, "abcdef".repeat(8)).unwrap();
    let key = key.display().to_string();
    let plan = ["plan", "--name", "x", "--run", "p", "--signing-key", &key];
    let planned = sandbox.run_with(&datastore.url, &plan);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let attempt = datastore.root().join("layers/default/x/p/0");
    for name in ["pretty.plan", "short.diff", "plan.json"] {
        std::fs::remove_file(attempt.join(name)).unwrap();
    }
    let applied = sandbox.run_with(&datastore.url, &["apply", "--name", "x", "--verify-key", &key]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}
