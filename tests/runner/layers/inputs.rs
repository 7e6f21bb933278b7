//! Outputs that one layer hands on to another: L1, L2, L3, L5, L8, and what is required of them, D17 and S4.

use std::fmt::Write as _;

use crate::layers::pair::{CLUSTER, HELM, Pair, row};

const SECRET: &str = "hunter2hunter2-v1";

#[tokio::test(flavor = "multi_thread")]
async fn l1_l2_l8_s4_a_layer_takes_outputs_as_variables_and_files_and_records_of_which_run() {
    let pair = Pair::new().await;
    let ended = pair.run(&["converge", "layers"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let outputs = pair.json("cluster", "outputs.json").await;
    assert_eq!(outputs["kubeconfig"]["sensitive"], true);
    let flat = pair.document("cluster", "outputs.txt").await.unwrap();
    assert!(flat.contains("nodes=2\nnote=\"one\"\n"), "{flat}");
    let base64 = pair.document("cluster", "outputs.b64").await.unwrap();
    assert!(base64.starts_with("a3ViZWNvbmZpZz0i"), "{base64}");

    let state = crate::json(pair.state("helm").as_bytes());
    assert_eq!(state["outputs"]["release"]["value"], 2);
    assert_eq!(pair.sandbox.read("code/helm/mode"), "600\n");
    assert_eq!(pair.sandbox.read("code/helm/head"), "server");
    assert_eq!(pair.left(), [""; 0], "the file is removed");

    let (cluster, helm) =
        (pair.json("cluster", "graph.json").await, pair.json("helm", "graph.json").await);
    assert_eq!(helm["needs"], serde_json::json!(["default/cluster"]));
    assert_eq!(helm["applied"], true);
    let producer = &helm["inputs"]["producers"][0];
    assert_eq!(producer["layer"], "default/cluster");
    assert_eq!(producer["run"], cluster["outputs"]["run"]);
    assert_eq!(producer["outputs_sha256"], cluster["outputs"]["sha256"]);
    let (_, result) = pair.run_one("helm", &["converge"]);
    assert_eq!(result["outcome"], "no_changes");
    assert_eq!(result["inputs"]["producers"][0], *producer);
    assert_eq!(result["inputs"]["sha256"], helm["inputs"]["sha256"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn l3_sensitive_outputs_are_in_no_argument_variable_log_or_snapshot() {
    let pair = Pair::new().await;
    assert_eq!(pair.run(&["converge", "layers/cluster.yaml"]).code, 0);
    pair.record_calls();
    // The code declares nothing as sensitive, and prints it.
    pair.write("helm", &format!("{HELM}variable \"config\" {{}}\noutput \"shown\" {{ value = nonsensitive(var.config) }}\n"));
    let args = ["--var-from", "cluster:kubeconfig=config", "--run", "r", "--snapshot", "always"];
    let (ended, result) = pair.run_one("helm", &[&["plan"], &args[..]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(pair.calls().contains("inputs.tfvars.json"), "{}", pair.calls());
    let run = pair.stored("helm", "r");
    let mut texts =
        vec![pair.calls(), ended.stdout, ended.stderr, result.to_string(), run.log(0).await];
    for format in ["pretty", "short"] {
        texts.push(String::from_utf8(run.plan(format, 0).await).unwrap());
    }
    for name in ["run.json", "binding.json"] {
        texts.push(String::from_utf8(run.artifact(name, 0).await).unwrap());
    }
    let snapshot = zstd::decode_all(&run.artifact("workspace.tar.zst", 0).await[..]).unwrap();
    texts.push(String::from_utf8_lossy(&snapshot).into_owned());
    for text in texts {
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains("inputs.tfvars.json\0"), "a file of the snapshot");
    }
    assert_eq!(pair.left(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_any_type_is_handed_on_and_values_of_the_user_win() {
    let pair = Pair::new().await;
    let mut outputs = String::from(
        "output \"long\" { value = join(\"\", [for i in range(1024) : join(\"\", [for j in range(64) : \"0123456789äöü!\"])]) }\n",
    );
    for (name, value) in [
        ("object", "{ list = [1, true, null, \"x\"], \"a b\" = { c = 1.5 } }"),
        ("text", "\"$${x} %%{ \\\"ü\\\" \\n 日本\""),
        ("number", "12345678901234567890"),
        ("set", "toset([\"b\", \"a\"])"),
        ("mine", "\"of the cluster\""),
    ] {
        writeln!(outputs, "output \"{name}\" {{ value = {value} }}").unwrap();
    }
    pair.write("cluster", &outputs);
    let names = ["long", "object", "text", "number", "set", "mine"];
    let from = names.map(|name| format!("cluster:{name}")).join(", ");
    pair.manifest("helm", &[("var-from", &from), ("file-from", "cluster:object=file")]);
    let declared = names.map(|name| format!("variable \"{name}\" {{}}\n")).concat();
    let same = names.map(|name| format!("output \"{name}\" {{ value = var.{name} }}\n")).concat();
    let file = "variable \"file\" {}\noutput \"file\" { value = jsondecode(file(var.file)) }\n";
    pair.write("helm", &format!("{declared}{same}{file}"));
    pair.sandbox.write("code/helm/terraform.tfvars", "mine = \"of a file of the tool\"\n");
    assert_eq!(pair.run(&["converge", "layers"]).code, 0);
    let (theirs, ours) =
        (pair.json("cluster", "outputs.json").await, pair.json("helm", "outputs.json").await);
    for name in names {
        assert!(theirs[name]["value"] == ours[name]["value"], "{name}");
    }
    assert!(theirs["long"]["value"].as_str().unwrap().len() > 1 << 20);
    assert_eq!(ours["file"]["value"], theirs["object"]["value"]);
    assert_eq!(ours["mine"]["value"], "of the cluster");
    assert!(pair.state("helm").contains("12345678901234567890"));

    pair.sandbox.write("user.tfvars", "mine = \"of a file\"\n");
    for (args, value) in [
        (&["converge", "--var-file", "user.tfvars"][..], "of a file"),
        (&["converge", "--var", "mine=of a flag"], "of a flag"),
    ] {
        let (ended, _) = pair.run_one("helm", args);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(pair.json("helm", "outputs.json").await["mine"]["value"], value);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l5_a_missing_or_null_output_makes_the_layer_wait_and_no_tool_starts() {
    let pair = Pair::new().await;
    // Another command has converged the cluster, before it had these outputs.
    pair.write("cluster", "output \"nodes\" { value = null }\n");
    pair.record_calls();
    let ended = pair.run(&["converge", "layers"]);
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    let line = row(&ended, "helm");
    assert!(line.contains("waiting"), "{line}");
    assert!(line.contains("the output kubeconfig of default/cluster"), "{line}");
    assert!(!pair.sandbox.work().join("code/helm/.terraform").exists());
    let before = pair.calls().matches("call:").count();
    let (ended, result) = pair.run_one("helm", &["check"]);
    assert_eq!((ended.code, &result["class"]), (12, &"waiting".into()), "{}", ended.stderr);
    let message = result["message"].as_str().unwrap();
    assert!(message.contains("the output nodes of default/cluster, which"), "{message}");
    assert_eq!(pair.calls().matches("call:").count(), before, "no tool is started");
    let status = pair.json("helm", "status.json").await;
    assert_eq!((&status["status"], &status["result"]), (&"error".into(), &"waiting".into()));
    assert_eq!((&status["message"], &status["failed_in_a_row"]), (&message.into(), &0.into()));

    // Nor an empty file, with which a provider would take its defaults; and a plan of a person waits as well.
    pair.write("cluster", &CLUSTER.replace("server: https://v1-${terraform_data.cluster.output.nodes}.example\\nuser-token: ${join(\"-\", [\"hunter2hunter2\", \"v1\"])}\\n", "\\n"));
    assert_eq!(pair.run(&["converge", "layers/cluster.yaml"]).code, 0);
    let (ended, result) = pair.run_one("helm", &["plan"]);
    assert_eq!(ended.code, 12, "{}", ended.stderr);
    assert!(result["message"].as_str().unwrap().contains("which is empty"), "{result}");
    pair.write("cluster", CLUSTER);
    let ended = pair.run(&["converge", "layers"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_plan_gets_its_files_again_and_only_with_the_same_contents() {
    let pair = Pair::new().await;
    assert_eq!(pair.run(&["converge", "layers/cluster.yaml"]).code, 0);
    let (ended, planned) = pair.run_one("helm", &["plan"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(pair.left(), [""; 0]);

    let good = pair.document("cluster", "outputs.json").await.unwrap();
    pair.put("cluster", "outputs.json", good.replace("hunter2", "hunter3")).await;
    let (ended, result) = pair.run_one("helm", &["apply"]);
    assert_eq!((ended.code, &result["class"]), (9, &"mismatch".into()), "{}", ended.stderr);
    assert!(ended.stderr.contains("the output kubeconfig of default/cluster"), "{}", ended.stderr);
    pair.put("cluster", "outputs.json", "{}".to_owned()).await;
    assert_eq!(pair.run_one("helm", &["apply"]).0.code, 12);
    pair.put("cluster", "outputs.json", good).await;
    let (ended, _) = pair.run_one("helm", &["apply", "--inputs-dir", "elsewhere"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("--inputs-dir"), "{}", ended.stderr);
    // Also where that is in the source, of which a snapshot is made.
    let (ended, _) = pair.run_one("helm", &["plan", "--inputs-dir", "code/values"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("is part of the source"), "{}", ended.stderr);
    let (ended, _) = pair.run_one("helm", &["apply", "--var-from", "cluster:nodes"]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
    assert_eq!(pair.state("helm"), "");

    let (ended, result) = pair.run_one("helm", &["apply"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(result["inputs"], planned["inputs"]);
    assert_eq!(pair.sandbox.read("code/helm/mode"), "600\n");
    assert_eq!(pair.left(), [""; 0]);
    // By its status others find that it needs the cluster.
    assert_eq!(pair.json("helm", "status.json").await["result"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_of_a_part_does_not_show_that_a_layer_is_as_declared() {
    let pair = Pair::applied().await;
    let more = "resource \"terraform_data\" \"a\" {}\nresource \"terraform_data\" \"b\" {}\n";
    pair.write("helm", &format!("{HELM}{more}"));
    let ended = pair.run(&["check", "layers/helm.yaml"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for (target, expected) in [(&["--target", "terraform_data.a"][..], "changed"), (&[], "ok")] {
        for args in [&[&["plan"], target].concat()[..], &["apply"]] {
            assert_eq!(pair.json("helm", "status.json").await["status"], "changed", "{args:?}");
            let (ended, _) = pair.run_one("helm", args);
            assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        }
        assert_eq!(pair.json("helm", "status.json").await["status"], expected, "{target:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d17_a_required_output_without_a_value_is_a_failure_of_its_own_class() {
    let pair = Pair::new().await;
    pair.manifest("cluster", &[("required-outputs", "nodes, kubeconfig")]);
    pair.write(
        "cluster",
        "output \"nodes\" { value = null }\nresource \"terraform_data\" \"a\" {}\n",
    );
    let (ended, result) = pair.run_one("cluster", &["converge"]);
    assert_eq!((ended.code, &result["class"]), (1, &"output_broken".into()), "{}", ended.stderr);
    assert_eq!(result["outcome"], "applied");
    assert!(ended.stderr.contains("no value: kubeconfig, nodes"), "{}", ended.stderr);
    let status = pair.json("cluster", "status.json").await;
    assert_eq!((&status["status"], &status["class"]), (&"error".into(), &"output_broken".into()));
    // Nothing is to be changed, and it is still broken; what needs it is blocked.
    let ended = pair.run(&["converge", "layers"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(row(&ended, "cluster").contains("failed"), "{}", ended.stderr);
    assert!(row(&ended, "helm").contains("blocked"), "{}", ended.stderr);
    pair.write("cluster", CLUSTER);
    let (ended, _) = pair.run_one("cluster", &["converge", "--require-output", "note"]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    let (ended, _) =
        pair.run_one("cluster", &["converge", "--auto-approve", "--require-output", "note"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(pair.json("cluster", "status.json").await["status"], "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_no_output_or_datastore_is_refused_before_anything_runs() {
    let pair = Pair::new().await;
    let (ended, _) = pair.run_one("helm", &["plan", "--var-from", "cluster"]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
    assert!(ended.stderr.contains("LAYER:OUTPUT[=VAR]"), "{}", ended.stderr);
    let ended = pair.run(&["converge", "layers", "--var-from", "cluster:nodes"]);
    assert_eq!(ended.code, 64, "{}", ended.stderr);
    let args = ["plan", "--source", "code", "--layer", "layers/helm.yaml"];
    let ended = pair.sandbox.run(&args);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("--datastore"), "{}", ended.stderr);
    pair.manifest("helm", &[("file-from", "cluster:kubeconfig")]);
    let ended = pair.run(&["converge", "layers"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("helm.yaml: the annotation plancha/file-from"),
        "{}",
        ended.stderr
    );
}
