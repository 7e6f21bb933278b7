//! Several layers in one command: their order, what a failure blocks, and one exit code.

use support::{Ended, Sandbox};

/// Layers with their needs, each a module below `code`.
fn layers(layers: &[(&str, &str)]) -> Sandbox {
    let all = layers.iter().map(|(name, needs)| (*name, *needs, "")).collect::<Vec<_>>();
    crate::real_layer::layers(&all)
}

fn run(sandbox: &Sandbox, args: &[&str]) -> Ended {
    sandbox.run(&[&args[..1], &["--source", "code", "layers"], &args[1..]].concat())
}

fn has_state(sandbox: &Sandbox, layer: &str) -> bool {
    sandbox.work().join(format!("code/{layer}/terraform.tfstate")).exists()
}

/// The line of a layer in the table.
fn row<'a>(ended: &'a Ended, layer: &str) -> &'a str {
    let name = format!("default/{layer} ");
    ended
        .stderr
        .lines()
        .rfind(|line| line.contains(&name))
        .unwrap_or_else(|| panic!("{}", ended.stderr))
}

#[test]
fn a_layer_runs_after_what_it_needs_and_every_line_names_its_layer() {
    let sandbox = layers(&[("helm", "cluster"), ("cluster", "network"), ("network", "")]);
    let ended = run(&sandbox, &["converge"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let at = |layer: &str| ended.stdout.find(&format!("[default/{layer}] ")).unwrap();
    assert!(at("network") < at("cluster") && at("cluster") < at("helm"), "{}", ended.stdout);
    assert!(ended.stdout.lines().all(|line| line.starts_with("[default/")), "{}", ended.stdout);
    for layer in ["helm", "cluster", "network"] {
        assert!(has_state(&sandbox, layer));
        assert!(row(&ended, layer).contains("applied"), "{}", ended.stderr);
    }
    let ended = run(&sandbox, &["check", "--parallel", "3"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(row(&ended, "helm").contains("unchanged"), "{}", ended.stderr);
}

#[test]
fn what_needs_a_failed_layer_is_blocked_and_others_run() {
    let sandbox = layers(&[("helm", "cluster"), ("cluster", ""), ("dns", "")]);
    sandbox.write("code/cluster/main.tf", "resource \"terraform_data\" \"a\" {");
    let ended = run(&sandbox, &["converge", "--parallel", "2"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(row(&ended, "helm").contains("blocked"), "{}", ended.stderr);
    assert!(row(&ended, "dns").contains("applied"), "{}", ended.stderr);
    assert!(!has_state(&sandbox, "helm") && has_state(&sandbox, "dns"));
}

#[test]
fn a_destroy_goes_the_other_way() {
    let sandbox = layers(&[("helm", "cluster"), ("cluster", "")]);
    assert_eq!(run(&sandbox, &["converge"]).code, 0);
    let ended = run(&sandbox, &["destroy", "--auto-approve"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let at = |layer: &str| ended.stdout.find(&format!("[default/{layer}] ")).unwrap();
    assert!(at("helm") < at("cluster"), "{}", ended.stdout);
}

#[test]
fn cycles_unknown_needs_and_arguments_of_one_layer_are_refused_before_anything_runs() {
    let circle = layers(&[("a", "b"), ("b", "a")]);
    let ended = run(&circle, &["converge"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("default/a -> default/b -> default/a"), "{}", ended.stderr);
    let missing = layers(&[("a", "elsewhere")]);
    let ended = run(&missing, &["converge"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("elsewhere"), "{}", ended.stderr);
    let two = layers(&[("a", ""), ("b", "")]);
    let ended = run(&two, &["converge", "--run", "x"]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
    let ended = run(&two, &["converge", "--needs", "a=b", "--needs", "b=a"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(!has_state(&two, "a") && !has_state(&two, "b"));
}

#[test]
fn a_signal_ends_the_running_layer_and_starts_no_other() {
    let sandbox = layers(&[("a", ""), ("b", "")]);
    let slow = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" { command = \"touch started; sleep 30\" }\n}\n";
    sandbox.write("code/a/main.tf", slow);
    let started = sandbox.start(None, &["converge", "--source", "code", "layers"]);
    support::eventually("the apply", || sandbox.work().join("code/a/started").exists());
    started.signal("TERM");
    let ended = started.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(row(&ended, "b").contains("not started"), "{}", ended.stderr);
    assert!(!has_state(&sandbox, "b"));
}

#[test]
fn a_migration_begins_with_the_readers_and_stops_at_the_first_failure() {
    let sandbox = layers(&[("cluster", ""), ("helm", "cluster"), ("other", "cluster")]);
    let datastore = ["--datastore", "http://127.0.0.1:9", "--datastore-timeout", "1s"];
    let ended = run(&sandbox, &[&["migrate", "--to", "tofu"], &datastore[..]].concat());
    assert_ne!(ended.code, 0);
    assert!(row(&ended, "helm").contains("failed"), "{}", ended.stderr);
    for layer in ["cluster", "other"] {
        assert!(row(&ended, layer).contains("blocked"), "{}", ended.stderr);
    }
}

#[test]
fn manifests_beside_code_are_layers_if_the_source_is_named() {
    let sandbox = layers(&[("network", "")]);
    sandbox.write("layers/main.tf", "resource \"terraform_data\" \"other\" {}\n");
    let ended = run(&sandbox, &["converge"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(has_state(&sandbox, "network"), "{}", ended.stderr);
    assert!(!sandbox.work().join("layers/terraform.tfstate").exists());
    let ended = sandbox.run(&["converge", "layers"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(sandbox.work().join("layers/terraform.tfstate").exists());
}

#[test]
fn a_manifest_that_cannot_be_read_is_no_missing_layer() {
    let sandbox = layers(&[("a", "")]);
    sandbox.write("layers/values.yaml", "kind: ConfigMap\n");
    assert_eq!(run(&sandbox, &["converge"]).code, 0);
    sandbox.write("layers/b.yaml", "kind: TerraformLayer\nspec: [\n");
    let ended = run(&sandbox, &["converge"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("b.yaml"), "{}", ended.stderr);
}

#[test]
fn the_namespace_of_the_command_is_that_of_each_layer() {
    let sandbox = layers(&[("a", ""), ("b", "a")]);
    let ended = run(&sandbox, &["converge", "--namespace", "team"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.lines().all(|line| line.starts_with("[team/")), "{}", ended.stdout);
    assert!(ended.stderr.contains("converge team/b/b-converge-"), "{}", ended.stderr);
}
