//! Plans and applies of one state in several clones.

use support::{Sandbox, TestDatastore};

use super::machines::{LONG, Origin, files_with, module, run, run_as, run_in, states};
use crate::source::checkout::git;
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const KINDS: &[&str] = &["state", "lease", "bin", "json", "pretty", "short", "log", "artifact"];

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_one_clone_is_applied_in_another_with_other_credentials() {
    let (datastore, [first, second]) = TestDatastore::hasty_with_tokens(LONG, [KINDS, KINDS]).await;
    let origin = Origin::new();
    let machines = [origin.machine(), origin.machine()];

    let planned = run_as(&machines[0], &datastore.url, &first, &["plan", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stderr.contains("--state datastore --plan p/0 --strict"), "{}", planned.stderr);
    let applied = run_as(&machines[1], &datastore.url, &second, &["apply", "--run", "a"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let again = ["plan", "--run", "q", "--detailed-exitcode"];
    let again = run_as(&machines[0], &datastore.url, &first, &again);
    assert_eq!(again.code, 0, "no changes: {}", again.stderr);

    let states = states(&datastore, &first, "default").await;
    let version = &states["head"]["version"];
    assert_eq!((&version["serial"], &version["resources"]), (&1.into(), &1.into()), "{states}");
    assert_eq!((&version["run"], &version["fence"]), (&"a/0".into(), &1.into()), "{states}");
    assert_eq!(version["tool"]["name"], "terraform", "{states}");
    let place = format!("{}//live/vpc", origin.dir().display());
    assert_eq!(states["head"]["place"], place.as_str(), "{states}");
    for machine in &machines {
        let clone = machine.work().join("clone");
        assert_eq!(git(&clone, &["status", "--porcelain", "--ignored"]), "");
        assert!(machine.is_clean());
    }
    for (machine, token) in machines.iter().zip([&first, &second]) {
        let found = files_with(&machine.path(""), token);
        assert!(found.is_empty(), "a file has the token: {found:?}");
    }
    for token in [&first, &second] {
        let found = files_with(&datastore.root(), token);
        assert!(found.is_empty(), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_about_the_code_are_those_of_the_source() {
    let datastore = TestDatastore::memory().await;
    let origin = Origin::new();
    let machine = origin.machine();
    let head = git(&origin.dir(), &["rev-parse", "HEAD"]);
    let report = async |run: &str| {
        json(&StoredRun::new(&datastore, "default", "vpc", run).artifact("run.json", 0).await)
    };
    let in_place = machine
        .command(&["plan", "clone/live/vpc", "--name", "vpc", "--run", "in-place"])
        .env("PLANCHA_DATASTORE_URL", datastore.url.as_str())
        .output()
        .unwrap();
    assert!(in_place.status.success(), "{in_place:?}");
    assert_eq!(run(&machine, &datastore.url, &["plan", "--run", "copy"]).code, 0);
    let (theirs, ours) = (report("in-place").await, report("copy").await);
    for part in ["revision", "place", "configuration_sha256", "code_sha256", "lock_file_sha256"] {
        assert_eq!(ours[part], theirs[part], "{part}");
    }
    assert_eq!(ours["revision"], head);
    assert_eq!(ours["backend"]["type"], "datastore", "{ours}");
    // What the plan is bound to has changed.
    std::fs::write(module(&machine).join("more.tf"), "output \"y\" {\n  value = 1\n}\n").unwrap();
    let refused = run(&machine, &datastore.url, &["apply"]);
    assert_eq!(refused.code, 9, "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_has_no_file_of_the_runner_and_can_be_applied() {
    let datastore = TestDatastore::memory().await;
    let origin = Origin::new();
    let machine = Sandbox::new(RUNNER);
    let url = format!("file://{}", origin.dir().display());
    let source = [&*url, "--path", "live/vpc"];
    let plan = [&["plan", "--run", "p"][..], &source].concat();
    let planned = run_in(&machine.work(), &machine, &datastore.url, &[], &plan);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let stored = StoredRun::new(&datastore, "default", "vpc", "p");
    let archive = stored.artifact("workspace.tar.zst", 0).await;
    let unpacked = zstd::decode_all(&*archive).unwrap();
    let text = String::from_utf8_lossy(&unpacked);
    assert!(text.contains("live/vpc/main.tf") && !text.contains("plancha_state"), "{text}");
    let apply = [&["apply", "--plan", "p/0", "--snapshot=always"][..], &source].concat();
    let applied = run_in(&machine.work(), &machine, &datastore.url, &[], &apply);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(states(&datastore, "-", "default").await["head"]["version"]["resources"], 1);
    assert!(machine.is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_workspace_has_a_state_of_its_own() {
    let datastore = TestDatastore::memory().await;
    let origin = Origin::new();
    let machine = origin.machine();
    for workspace in ["", "blue"] {
        let variables = [("TF_WORKSPACE", workspace)];
        for args in [&["plan"][..], &["apply"]] {
            let ended = run_in(&module(&machine), &machine, &datastore.url, &variables, args);
            assert_eq!(ended.code, 0, "{workspace} {args:?}: {}", ended.stderr);
            assert!(!ended.stdout.contains("No changes"), "{}", ended.stdout);
        }
        // In the same second the plan of the other workspace would have the same bytes.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    let mut lineages = Vec::new();
    for workspace in ["default", "blue"] {
        let states = states(&datastore, "-", workspace).await;
        lineages.push(states["head"]["version"]["lineage"].to_string());
    }
    assert_ne!(lineages[0], lineages[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_work_dir_is_used_again_and_keeps_no_file_of_the_runner() {
    let datastore = TestDatastore::memory().await;
    let origin = Origin::new();
    let machine = origin.machine();
    let kept = machine.path("kept");
    let kept = kept.to_str().unwrap();
    for args in [&["plan", "--work-dir", kept][..], &["apply", "--work-dir", kept]] {
        let ended = run(&machine, &datastore.url, args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        let copy = machine.path("kept/live/vpc");
        assert!(copy.join("main.tf").exists() && copy.join(".terraform").exists());
        assert!(!copy.join("plancha_state.tf").exists());
    }
    // What a killed run has left is no code of another one.
    let left = "# Plancha's runner has written this file for one run (--state datastore)";
    std::fs::write(machine.path("kept/live/vpc/plancha_state.tf"), left).unwrap();
    let again = ["plan", "--work-dir", kept, "--detailed-exitcode"];
    let ended = run(&machine, &datastore.url, &again);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_in_the_source_lead_to_the_same_files() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let (module, clone) = (module(&machine), machine.work().join("clone"));
    std::fs::write(clone.join("modules/shared.txt"), "inside").unwrap();
    std::fs::write(machine.work().join("outside.txt"), "outside").unwrap();
    for (link, target) in
        [("in.txt", "../../modules/shared.txt"), ("out.txt", "../../../outside.txt")]
    {
        std::os::unix::fs::symlink(target, module.join(link)).unwrap();
    }
    let code = "output \"x\" {\n  value = \"${file(\"in.txt\")} ${file(\"out.txt\")}\"\n}\n";
    std::fs::write(module.join("files.tf"), code).unwrap();
    let ended = run(&machine, &datastore.url, &["plan"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("+ x = \"inside outside\""), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_lock_file_is_copied_back_and_nothing_else() {
    let datastore = TestDatastore::memory().await;
    let script = "[ $STEP != init ] || { echo 'from init' > .terraform.lock.hcl; mkdir -p .terraform; \
                  echo '{\"backend\": {\"type\": \"http\", \"config\": {}}}' > .terraform/terraform.tfstate; }";
    let machine = Sandbox::new(RUNNER).fake_terraform(script);
    machine.write("code/main.tf", "");
    let code = machine.work().join("code");
    for _ in 0..2 {
        let ended = run_in(&code, &machine, &datastore.url, &[], &["plan"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(machine.read("code/.terraform.lock.hcl"), "from init\n");
        assert_eq!(std::fs::read_dir(&code).unwrap().count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_concurrent_applies_none_is_lost() {
    let datastore = TestDatastore::memory().await;
    let origin = Origin::new();
    let machines = [origin.machine(), origin.machine()];
    let args = ["apply", "--no-plan", "--name", "vpc", "--state", "datastore"];
    let started = machines.iter().map(|machine| {
        let mut command = machine.command(&args);
        command.current_dir(module(machine));
        command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str());
        support::Started::spawn(command)
    });
    let codes = started.collect::<Vec<_>>().into_iter().map(|run| run.wait().code);
    let mut codes = codes.collect::<Vec<_>>();
    codes.sort_unstable();
    // The second one is refused by the lease, or comes after it and finds nothing to change.
    assert!(codes == [0, 0] || codes == [0, 4], "{codes:?}");
    let states = states(&datastore, "-", "default").await;
    assert_eq!(states["head"]["version"]["resources"], 1, "{states}");
    assert_eq!(states["head"]["lock"], serde_json::Value::Null, "{states}");
}
