//! Migrations that fail after the state was written, and migrations that are killed.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::Value;

use super::tofu::{Layer, contents};

/// A tofu whose second plan finds changes: the one after the state was written.
const SECOND_PLAN_CHANGES: &str = "case $1 in plan) if [ -e $HOME/planned ]; then set -- \"$@\" -replace=terraform_data.a; fi; touch $HOME/planned;; esac";

#[tokio::test(flavor = "multi_thread")]
async fn state_is_restored_if_the_second_plan_finds_changes() {
    for (args, step) in [(&[][..], 1), (&["--state", "datastore"], 2)] {
        let layer = Layer::applied(args, "").await;
        let before = layer.state("terraform.tfstate").await;
        layer.tofu(SECOND_PLAN_CHANGES);
        layer.refused(
            &["migrate", "--to", "tofu"],
            8,
            "plans changes: terraform_data.a (delete and create)",
        );
        let (after, record) = (layer.state("terraform.tfstate").await, layer.record().await);
        assert_eq!(layer.report()["result"], "failed");
        assert_eq!(
            after["serial"],
            before["serial"].as_u64().unwrap() + 2 * step,
            "written and restored"
        );
        assert_eq!(contents(&after), contents(&before));
        assert_eq!((&record["name"], &record["migrations"]), (&"terraform".into(), &Value::Null));
        layer.ok(&["plan", "--tool", "terraform", "--detailed-exitcode"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_stays_if_the_new_tool_cannot_write_it() {
    let layer = Layer::applied(&[], "").await;
    let before = layer.state("terraform.tfstate").await;
    layer
        .tofu("case \"$1 $2\" in 'state push') echo 'Error: no right to write' >&2; exit 1;; esac");
    layer.refused(
        &["migrate", "--to", "tofu"],
        1,
        "the migration has failed, and the state is as it was before",
    );
    assert_eq!(layer.state("terraform.tfstate").await, before);
    assert_eq!(layer.record().await["migrations"], Value::Null);
    layer.ok(&["plan", "--tool", "terraform", "--detailed-exitcode"]);
}

/// Kills the runner before (`is_written`: after) tofu writes the state.
async fn killed(args: &[&'static str], is_written: bool) -> Layer {
    let layer = Layer::applied(args, "").await;
    let kill = "kill -9 $PPID; exit 1";
    let write = if is_written { "$tool \"$@\"; " } else { "" };
    layer.tofu(&format!("case \"$1 $2\" in 'state push') {write}{kill};; esac"));
    let mut command =
        layer.sandbox.command(&[&["migrate", "--to", "tofu", "--name", "x"], args].concat());
    let ended =
        command.env("PLANCHA_DATASTORE_URL", layer.datastore.url.as_str()).output().unwrap();
    assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
    layer.tofu("");
    layer
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_migration_excludes_every_run_until_it_is_repeated_or_rolled_back() {
    for (args, step) in [(&[][..], 1), (&["--state", "datastore"], 2)] {
        for (is_written, repeated, back) in [(false, 1, 0), (true, 1, 2)] {
            for is_repeated in [true, false] {
                let layer = killed(args, is_written).await;
                let written = layer.state("terraform.tfstate").await;
                let serial = written["serial"].as_u64().unwrap() - u64::from(is_written) * step;
                for tool in ["terraform", "tofu"] {
                    let plan = ["plan", "--tool", tool];
                    layer.refused(
                        &plan,
                        8,
                        "the migration of default/x/default from terraform 1.11.4 to tofu",
                    );
                }
                layer.refused(&["migrate", "--to", "tofu", "--dry-run"], 8, "was interrupted");
                let (args, more) = if is_repeated {
                    (&["migrate", "--to", "tofu"][..], repeated)
                } else {
                    (&["migrate", "--rollback"][..], back)
                };
                layer.ok(args);
                let after = layer.state("terraform.tfstate").await;
                assert_eq!(after["serial"], serial + more * step, "{is_written} {is_repeated}");
                assert_eq!(contents(&after), contents(&written));
                let tool = if is_repeated { "tofu" } else { "terraform" };
                assert_eq!(layer.record().await["name"], tool);
                layer.ok(&["plan", "--tool", tool, "--detailed-exitcode"]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_the_tool_goes_on_with_a_migration_unless_it_is_older() {
    for (version, code) in [("1.10.99", 0), ("1.10.1", 8)] {
        let layer = killed(&[], true).await;
        let answer = format!(r#"{{"terraform_version": "{version}", "platform": "linux_amd64"}}"#);
        let version_command =
            format!("case \"$*\" in 'version -json') echo '{answer}'; exit 0;; esac");
        layer
            .sandbox
            .script("tofu", &format!("#!/bin/sh\n{version_command}\nexec terraform \"$@\"\n"));
        let ended = layer.run(&["migrate", "--to", "tofu"]);
        assert_eq!(ended.code, code, "{version}: {}", ended.stderr);
        let record = layer.record().await;
        let to = &record["migrations"]["default"]["to"]["version"];
        if code == 0 {
            assert_eq!((&record["version"], to), (&version.into(), &version.into()));
        } else {
            assert!(ended.stderr.contains(version) && to != version, "{record}: {}", ended.stderr);
        }
    }
}

/// Somebody applies by hand while the migration is unfinished, or between its plans and its write.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_written_meanwhile_is_never_overwritten() {
    let changes = "terraform apply -auto-approve -input=false -var input=other -state=$HOME/../work/terraform.tfstate >&2";
    // Before the write, which is refused then.
    let layer = Layer::applied(&[], "").await;
    let real = support::on_path("terraform").unwrap();
    let between = format!(
        "case \"$1 $2\" in 'state push') (mkdir $HOME/x; cd $HOME/x; cp $HOME/../work/*.tf .; {0} init >&2; {1});; esac",
        real.display(),
        changes
    );
    layer.tofu(&between);
    let failed = layer.run(&["migrate", "--to", "tofu"]);
    assert_ne!(failed.code, 0, "{}", failed.stderr);
    assert!(failed.stderr.contains("it stays as it is"), "{}", failed.stderr);
    let state = layer.state("terraform.tfstate").await;
    assert_eq!(state["outputs"]["o"]["value"], "other");
    assert_eq!(layer.record().await["migrations"], Value::Null);

    // After a kill: neither way takes it for the migration's.
    for is_repeated in [false, true] {
        let layer = killed(&[], false).await;
        let by_hand = ["apply", "-auto-approve", "-input=false", "-var", "input=other"];
        let apply = layer.sandbox.program(&real, &by_hand).output().unwrap();
        assert!(apply.status.success(), "{apply:?}");
        let before = layer.state("terraform.tfstate").await;
        if is_repeated {
            layer.refused(&["migrate", "--to", "tofu"], 8, "terraform 1.11.4 plans changes");
        } else {
            layer.ok(&["migrate", "--rollback"]);
            assert_eq!(layer.record().await["migrations"], Value::Null);
        }
        assert_eq!(contents(&layer.state("terraform.tfstate").await), contents(&before));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_rollback_excludes_every_run_until_it_is_repeated() {
    for (args, is_written) in [(&[][..], true), (&["--state", "datastore"], true), (&[], false)] {
        let layer = Layer::applied(args, "").await;
        let before = layer.state("terraform.tfstate").await;
        layer.ok(&["migrate", "--to", "tofu"]);
        let real = support::on_path("terraform").unwrap();
        let write = if is_written { format!("{} \"$@\"; ", real.display()) } else { String::new() };
        let kill = format!(
            "#!/bin/sh\ncase \"$1 $2\" in 'state push') {write}kill -9 $PPID; exit 1;; esac\nexec {} \"$@\"\n",
            real.display()
        );
        layer.sandbox.script("terraform", &kill);
        let ended = {
            let rollback = [&["migrate", "--rollback", "--name", "x"], args].concat();
            let mut command = layer.sandbox.command(&rollback);
            command.env("PLANCHA_DATASTORE_URL", layer.datastore.url.as_str()).output().unwrap()
        };
        assert_eq!(ended.status.signal(), Some(9), "{ended:?}");
        std::fs::remove_file(layer.sandbox.path("bin/terraform")).unwrap();
        layer.refused(&["plan", "--tool", "tofu"], 8, "was interrupted");
        layer.ok(&["migrate", "--rollback"]);
        assert_eq!(contents(&layer.state("terraform.tfstate").await), contents(&before));
        assert_eq!(layer.record().await["name"], "terraform");
        layer.ok(&["plan", "--tool", "terraform", "--detailed-exitcode"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_that_waits_for_a_migration_is_refused_after_it() {
    let layer = Layer::applied(&[], "").await;
    layer.tofu(
        "case $1 in plan) touch $HOME/plans; while [ ! -e $HOME/go ]; do sleep 0.1; done;; esac",
    );
    let args = ["--name", "x"];
    let start = |args: &[&str]| layer.sandbox.start(Some(&layer.datastore.url), args);
    let migration = start(&[&["migrate", "--to", "tofu"], &args[..]].concat());
    support::eventually("tofu plans", || layer.sandbox.path("home/plans").exists());
    let apply = start(&[&["apply", "--no-plan", "--tool", "terraform"], &args[..]].concat());
    support::eventually("the apply waits", || apply.logged("waiting for it"));
    std::fs::write(layer.sandbox.path("home/go"), "").unwrap();
    let (migration, apply) = (migration.wait(), apply.wait());
    assert_eq!(migration.code, 0, "{}", migration.stderr);
    assert_eq!(apply.code, 8, "{}", apply.stderr);
    assert!(apply.stderr.contains("belong to tofu"), "{}", apply.stderr);
}
