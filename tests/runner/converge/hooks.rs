//! Programs before and after an apply.

use crate::json;
use crate::real_layer::Layer;

/// Says what it was asked, and refuses while the file `veto` exists.
const BEFORE: &str = "#!/bin/sh\nset -eu\ncp \"$PLANCHA_HOOK_PLAN_JSON\" WORK/seen.json\n\
    echo \"before $PLANCHA_HOOK_NAMESPACE/$PLANCHA_HOOK_LAYER/$PLANCHA_HOOK_RUN\"\n\
    test -x \"$PLANCHA_HOOK_TOOL\"\nif test -e WORK/veto; then echo not ready; exit 7; fi\n";
const AFTER: &str = "#!/bin/sh\necho \"$PLANCHA_HOOK $PLANCHA_HOOK_RESULT\" >>WORK/after\nexit 1\n";

fn layer_with_hooks(layer: &Layer) -> [String; 4] {
    let work = layer.sandbox.work().display().to_string();
    let hook = |name: &str, text: &str| {
        layer.sandbox.script(name, &text.replace("WORK", &work));
        layer.sandbox.path("bin").join(name).display().to_string()
    };
    let [before, after] = [hook("before", BEFORE), hook("after", AFTER)];
    ["--before-apply".to_owned(), before, "--after-apply".to_owned(), after]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_before_the_apply_sees_the_plan_and_may_refuse_it() {
    let layer = Layer::new().await;
    let hooks = layer_with_hooks(&layer);
    let run = |action: &[&str]| {
        let hooks = hooks.iter().map(String::as_str).collect::<Vec<_>>();
        layer.run(&[action, &hooks].concat())
    };
    layer.sandbox.write("veto", "");
    let ended = run(&["converge", "--run", "c"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stdout.contains("before default/x/c\nnot ready\n"), "{}", ended.stdout);
    assert!(ended.stderr.contains("refused it (exit code 7)"), "{}", ended.stderr);
    let seen = json(layer.sandbox.read("seen.json").as_bytes());
    assert_eq!(seen["resource_changes"].as_array().unwrap().len(), 2);
    assert!(!layer.sandbox.work().join("module/terraform.tfstate").exists());
    assert!(!layer.sandbox.work().join("after").exists(), "nothing was applied");

    std::fs::remove_file(layer.sandbox.work().join("veto")).unwrap();
    let ended = run(&["converge"]);
    assert_eq!(ended.code, 0, "a failed hook after the apply is a warning: {}", ended.stderr);
    assert!(ended.stderr.contains("the program after the apply"), "{}", ended.stderr);
    assert_eq!(layer.objects(), ["a", "b"]);
    layer.write("resource \"terraform_data\" \"c\" {\n  provisioner \"local-exec\" { command = \"false\" }\n}\n");
    let ended = run(&["converge", "--auto-approve"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_eq!(layer.sandbox.read("after"), "after-apply succeeded\nafter-apply failed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_apply_does_not_use_up_the_approval() {
    let layer = Layer::applied().await;
    let [flag, before, ..] = layer_with_hooks(&layer);
    layer.sandbox.write("veto", "");
    layer.write("resource \"terraform_data\" \"a\" { input = 1 }\n");
    assert_eq!(layer.run(&["converge"]).code, 3);
    let digest = layer.result()["check"]["approval"].as_str().unwrap().to_owned();
    let args = ["converge", "--approve-destructive", &digest, &flag, &before];
    let ended = layer.run(&args);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert_eq!(layer.objects(), ["a", "b"]);
    std::fs::remove_file(layer.sandbox.work().join("veto")).unwrap();
    let ended = layer.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(layer.objects(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_that_cannot_be_used_end_the_run_before_it_starts() {
    let layer = Layer::new().await;
    let [flag, before, ..] = layer_with_hooks(&layer);
    layer.sandbox.write("text", "no program");
    std::fs::copy(&before, layer.sandbox.work().join("copy")).unwrap();
    for (path, reason) in [
        ("copy", "--hooks-from-source"),
        ("text", "not an executable file"),
        ("none", "No such file"),
    ] {
        let ended = layer.run(&["apply", "--no-plan", &flag, path]);
        assert_eq!(ended.code, 8, "{path}: {}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{path}: {}", ended.stderr);
    }
    let args = ["apply", "--no-plan", &flag, "copy", "--hooks-from-source"];
    assert_eq!(layer.run(&args).code, 3, "an apply without a plan has none to copy");
}
