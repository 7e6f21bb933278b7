//! `runner converge`: what destroys nothing is applied, anything else only after its approval, which is used up by it.

use crate::json;
use crate::real_layer::Layer;

const ONE: &str = "resource \"terraform_data\" \"a\" { input = 1 }\n";

/// Runs converge, and returns its exit code and the digest that approves what it has refused.
fn converge(layer: &Layer, args: &[&str]) -> (i32, Option<String>, String) {
    let ended = layer.run(&[&["converge"], args].concat());
    let digest = layer.result()["check"]["approval"].as_str().map(str::to_owned);
    (ended.code, digest, ended.stderr)
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_destroy_nothing_are_applied_and_recorded() {
    let layer = Layer::new().await;
    let (code, _, stderr) = converge(&layer, &["--run", "c"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(layer.objects(), ["a", "b"]);
    let result = layer.result();
    assert_eq!((&result["action"], &result["outcome"]), (&"converge".into(), &"applied".into()));
    let status = layer.status().await;
    assert_eq!((&status["status"], &status["result"]), (&"ok".into(), &"applied".into()));
    let (code, _, stderr) = converge(&layer, &[]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(layer.status().await["result"], "unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_with_one_destructive_change_is_not_applied_at_all() {
    let layer = Layer::applied().await;
    layer.write(&format!("{ONE}resource \"terraform_data\" \"new\" {{}}\n"));
    let (code, digest, stderr) = converge(&layer, &[]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("terraform_data.b: delete"), "{stderr}");
    assert!(stderr.contains(&format!("--approve-destructive {}", digest.unwrap())), "{stderr}");
    assert_eq!(layer.objects(), ["a", "b"], "nor is the harmless part");
    let status = layer.status().await;
    assert_eq!(
        (&status["status"], &status["result"]),
        (&"destructively_changed".into(), &"refused".into())
    );
    let (code, _, stderr) = converge(&layer, &["--exit-zero-on-skip"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(layer.objects(), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_for_one_set_and_used_up_by_its_apply() {
    let layer = Layer::applied().await;
    layer.write(ONE);
    let unknown = "0".repeat(64);
    let (code, first, stderr) = converge(&layer, &["--approve-destructive", &unknown]);
    assert_eq!(code, 3, "{stderr}");
    let first = first.expect("the digest of this set");
    assert_eq!(layer.objects(), ["a", "b"]);
    let (code, _, stderr) = converge(&layer, &["--approve-destructive", &first]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(layer.objects(), ["a"]);
    let result = layer.result();
    assert_eq!(result["check"]["used_approval"]["digest"], *first);

    // An hour later somebody has made the same object again, with the same flags of the job.
    layer.write(&format!("{ONE}resource \"terraform_data\" \"b\" {{}}\n"));
    assert_eq!(converge(&layer, &["--approve-destructive", &first]).0, 0);
    layer.write("");
    let (code, other, stderr) = converge(&layer, &["--approve-destructive", &first]);
    assert_eq!(code, 3, "{stderr}");
    assert_ne!(other.unwrap(), first);
    assert_eq!(layer.objects(), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_set_needs_a_new_approval_after_the_first_was_used() {
    let layer = Layer::applied().await;
    let taint =
        "resource \"terraform_data\" \"a\" {\n  input = 1\n  triggers_replace = \"TRIGGER\"\n}\n";
    layer.write(&taint.replace("TRIGGER", "1"));
    assert_eq!(layer.run(&["apply", "--no-plan"]).code, 0);
    let state = layer.sandbox.read("module/terraform.tfstate");
    layer.write(&taint.replace("TRIGGER", "2"));
    let (code, first, stderr) = converge(&layer, &[]);
    assert_eq!(code, 3, "{stderr}");
    let first = first.unwrap();
    let (code, _, stderr) = converge(&layer, &["--approve-destructive", &first]);
    assert_eq!(code, 0, "{stderr}");
    // The very same set again: a restored state. With its old serial, a plan of the same second is the same file, which was
    // applied already.
    let mut restored = json(state.as_bytes());
    restored["serial"] = (restored["serial"].as_u64().unwrap() + 10).into();
    layer.sandbox.write("module/terraform.tfstate", &restored.to_string());
    let (code, second, stderr) = converge(&layer, &["--approve-destructive", &first]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("was used by"), "{stderr}");
    let second = second.unwrap();
    assert_ne!(second, first);
    let (code, _, stderr) = converge(&layer, &["--approve-destructive", &second]);
    assert_eq!(code, 0, "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_approve_applies_whatever_is_destroyed() {
    let layer = Layer::applied().await;
    layer.write(ONE);
    let (code, _, stderr) = converge(&layer, &["--auto-approve"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(layer.objects(), ["a"]);
}

#[test]
fn an_approval_without_a_datastore_is_a_usage_error() {
    let sandbox = support::Sandbox::new(crate::RUNNER).hello();
    let ended = sandbox.run(&["converge", "--approve-destructive", &"0".repeat(64)]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
}

#[test]
fn without_a_datastore_harmless_changes_are_applied() {
    let sandbox = support::Sandbox::new(crate::RUNNER);
    sandbox.write("main.tf", ONE);
    let ended = sandbox.run(&["converge"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(sandbox.work().join("terraform.tfstate").exists());
    sandbox.write("main.tf", "");
    let ended = sandbox.run(&["converge"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_documents_of_the_layer_and_neither_logged_nor_files_of_the_attempt() {
    let layer = Layer::new().await;
    layer.write(
        "output \"greeting\" { value = \"Hello World\" }\noutput \"token\" {\n  value     = \"hunter2hunter2\"\n  sensitive = true\n}\n",
    );
    let ended = layer.run(&["converge", "--run", "c"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let outputs = crate::json(layer.document("outputs.json").await.as_bytes());
    assert_eq!(outputs["greeting"]["value"], "Hello World");
    let token = &outputs["token"];
    assert_eq!((&token["sensitive"], &token["value"]), (&true.into(), &"hunter2hunter2".into()));
    let lines = layer.document("outputs.env").await;
    assert_eq!(lines, "greeting='Hello World'\ntoken=hunter2hunter2\n");
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains("hunter2"));
    for attempt in [0, 1] {
        let names = layer.stored("c").names(attempt).await;
        assert!(names.iter().all(|name| !name.starts_with("outputs")), "{names:?}");
    }
}
