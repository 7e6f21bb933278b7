//! Modules, flags and places with which a state in the datastore is refused.

use support::{Sandbox, TestDatastore};

use super::machines::{Origin, module, run, run_as, run_in, states};
use crate::RUNNER;
use crate::source::checkout::{commit_all, git};

#[tokio::test(flavor = "multi_thread")]
async fn module_with_a_backend_is_refused_before_anything_runs() {
    let datastore = TestDatastore::memory().await;
    let machine = Sandbox::new(RUNNER).fake_terraform("");
    for (name, code, shown) in [
        ("main.tf", "terraform {\n  backend \"s3\" {}\n}\n", "a `backend \"s3\"` block in main.tf"),
        ("x_override.tf", "terraform {\n  backend \"gcs\" {}\n}\n", "in x_override.tf"),
        (
            "main.tf",
            "terraform {\n  cloud {\n    organization = \"x\"\n  }\n}\n",
            "a `cloud` block",
        ),
        ("a.tf.json", r#"{"terraform": {"backend": {"http": {}}}}"#, "a `backend \"http\"` block"),
    ] {
        machine.write(&format!("code/{name}"), code);
        let dir = machine.work().join("code");
        let refused = run_in(&dir, &machine, &datastore.url, &[], &["plan"]);
        assert_eq!(refused.code, 8, "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains(shown), "{name}: {}", refused.stderr);
        assert_eq!(machine.calls(), [""; 0]);
        std::fs::remove_file(dir.join(name)).unwrap();
    }
}

/// The runner's parser refuses two equal keys. The tool itself refuses two backends.
#[tokio::test(flavor = "multi_thread")]
async fn backend_in_a_file_that_the_runner_cannot_parse_is_never_used() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let local = "terraform {\n  backend \"local\" {\n    path = \"x.tfstate\"\n  }\n}\n\
                 locals {\n  x = { a = 1, a = 2 }\n}\n";
    for (name, shown) in
        [("b.tf", "Duplicate backend configuration"), ("b_override.tf", "but another backend")]
    {
        std::fs::write(module(&machine).join(name), local).unwrap();
        if name == "b_override.tf" {
            // An override file replaces only what is there.
            std::fs::write(module(&machine).join("x.tf"), "locals {\n  x = 1\n}\n").unwrap();
        }
        let refused = run(&machine, &datastore.url, &["apply", "--no-plan"]);
        assert_eq!(refused.code, 8, "{name}: {}", refused.stderr);
        assert!(refused.stderr.contains(shown), "{name}: {}", refused.stderr);
        std::fs::remove_file(module(&machine).join(name)).unwrap();
    }
    assert_eq!(states(&datastore, "-", "default").await["versions"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_init_for_another_backend_are_refused() {
    let datastore = TestDatastore::memory().await;
    let machine = Sandbox::new(RUNNER).fake_terraform("");
    for value in ["-backend=false", "-backend-config=address=http://127.0.0.1:9"] {
        let variables = [("TF_CLI_ARGS_init", value)];
        let refused = run_in(&machine.work(), &machine, &datastore.url, &variables, &["plan"]);
        assert_eq!(refused.code, 8, "{}", refused.stderr);
        let cause = "in TF_CLI_ARGS_init configures another backend";
        assert!(refused.stderr.contains(cause), "{}", refused.stderr);
    }
    assert_eq!(machine.calls(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_of_the_workspace_cannot_be_used_in_another_workspace_than_default() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let child = machine.work().join("clone/modules/names/main.tf");
    std::fs::write(&child, "output \"x\" {\n  value = terraform.workspace\n}\n").unwrap();
    assert_eq!(run(&machine, &datastore.url, &["plan"]).code, 0);
    let variables = [("TF_WORKSPACE", "blue")];
    let refused = run_in(&module(&machine), &machine, &datastore.url, &variables, &["plan"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    let cause = format!("{} uses the name of the workspace", child.display());
    assert!(refused.stderr.contains(&cause), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_not_sent_to_the_server_of_another_state() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let remote = module(&machine).join("remote.tf");
    let data = "data \"terraform_remote_state\" \"x\" {\n  backend = \"http\"\n  config  = { address = \"http://127.0.0.1:9/x\" }\n}\n";
    std::fs::write(&remote, data).unwrap();
    let refused = run_as(&machine, &datastore.url, "secret-token", &["plan"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    let cause = format!("{} reads another state over HTTP", remote.display());
    assert!(refused.stderr.contains(&cause), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_code_in_another_place_is_refused_until_the_place_is_recorded_again() {
    let datastore = TestDatastore::memory().await;
    let origin = Origin::new();
    let machine = origin.machine();
    assert_eq!(run(&machine, &datastore.url, &["apply", "--no-plan"]).code, 0);
    let clone = machine.work().join("clone");
    git(&clone, &["mv", "live/vpc", "live/network"]);
    commit_all(&clone);
    let moved =
        |args: &[&str]| run_in(&clone.join("live/network"), &machine, &datastore.url, &[], args);
    let refused = moved(&["plan"]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    for text in ["was written for", "live/vpc; this code is", "live/network", "--rebind"] {
        assert!(refused.stderr.contains(text), "{text}: {}", refused.stderr);
    }
    let planned = moved(&["plan", "--rebind", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stderr.contains("--rebind --plan p/0"), "{}", planned.stderr);
    // Only a write records it.
    let main = clone.join("live/network/main.tf");
    let code = std::fs::read_to_string(&main).unwrap();
    std::fs::write(&main, code.replace("module.names.x", "\"other\"")).unwrap();
    assert_eq!(moved(&["apply", "--no-plan", "--rebind"]).code, 0);
    let place = states(&datastore, "-", "default").await["head"]["place"].clone();
    assert!(place.as_str().unwrap().ends_with("//live/network"), "{place}");
    assert_eq!(moved(&["plan"]).code, 0);
    assert_eq!(run(&origin.machine(), &datastore.url, &["plan"]).code, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_state_in_the_datastore_is_not_applied_to_another_one() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    assert_eq!(run(&machine, &datastore.url, &["plan"]).code, 0);
    let mut command = machine.command(&["apply", "--name", "vpc"]);
    command.current_dir(module(&machine)).env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
    let refused = support::Ended::from(command.output().unwrap());
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("apply with --state datastore"), "{}", refused.stderr);
}

#[test]
fn flags_that_do_not_belong_together_are_usage_errors() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let stored = ["--datastore", "http://127.0.0.1:9"];
    for (args, reason) in [
        (&["plan", "--state", "datastore"][..], "needs a datastore"),
        (&["plan", "--migrate-state"], "add --state datastore"),
        (&["apply", "--no-plan", "--rebind"], "add --state datastore"),
        (&["plan", "--state", "bucket"], "[possible values: datastore]"),
        (
            &[&["plan", "--state", "datastore", "--terragrunt=0.99.0"][..], &stored].concat(),
            "does not work with terragrunt",
        ),
    ] {
        let ended = sandbox.run(args);
        assert_eq!(ended.code, 64, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(reason), "{args:?}: {}", ended.stderr);
    }
}
