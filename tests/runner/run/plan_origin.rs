//! A plan is applied only to the module, code and tool version that it was made from.

use std::path::Path;

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::{git, repository};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

const URL: &str = "PLANCHA_DATASTORE_URL";

/// Runs the runner in a directory below the working directory, with these variables.
pub(crate) fn run_in(
    sandbox: &Sandbox,
    dir: &str,
    datastore: &TestDatastore,
    variables: &[(&str, &str)],
    args: &[&str],
) -> Ended {
    let mut command = sandbox.command(args);
    command.current_dir(sandbox.work().join(dir)).env(URL, datastore.url.as_str());
    command.envs(variables.iter().copied()).output().unwrap().into()
}

/// A repository in the working directory, whose modules each have an output with their name.
pub(crate) fn modules(sandbox: &Sandbox, origin: &str, names: &[&str]) {
    for name in names {
        sandbox
            .write(&format!("{name}/main.tf"), &format!("output \"x\" {{ value = \"{name}\" }}\n"));
    }
    let work = sandbox.work();
    git(&work, &["init", "--quiet"]);
    git(&work, &["remote", "add", "origin", origin]);
    commit(&work);
}

pub(crate) fn commit(work: &Path) -> String {
    git(work, &["add", "."]);
    git(work, &["commit", "--quiet", "--allow-empty", "-m", "x"]);
    git(work, &["rev-parse", "HEAD"])
}

/// What a fake terraform's init records: an S3 backend whose key is `$KEY`.
pub(crate) const S3: &str = r#"
if [ $STEP = init ]; then
  mkdir -p .terraform
  echo '{"backend": {"type": "s3", "config": {"bucket": "b", "key": "'"$KEY"'", "secret_key": "SECRET"}}}' \
    > .terraform/terraform.tfstate
fi
"#;

pub(crate) async fn run_json(
    datastore: &TestDatastore,
    layer: &str,
    run: &str,
) -> serde_json::Value {
    json(&StoredRun::new(datastore, "default", layer, run).artifact("run.json", 0).await)
}

/// The first sequence of the issue, with the real tool.
#[tokio::test(flavor = "multi_thread")]
async fn each_module_of_a_repository_applies_its_own_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    modules(&sandbox, "git@git.example.com:team/infra.git", &["live/dev/vpc", "live/prod/vpc"]);
    for dir in ["live/dev/vpc", "live/prod/vpc"] {
        let ended = run_in(&sandbox, dir, &datastore, &[], &["plan", "--run", "p"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }

    let ended = run_in(&sandbox, "live/dev/vpc", &datastore, &[], &["apply", "--run", "a"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("x = \"live/dev/vpc\""), "{}", ended.stdout);
    let report = run_json(&datastore, "infra.live.dev.vpc", "a").await;
    assert_eq!(report["place"]["repository"], "git.example.com/team/infra");
    assert_eq!(report["place"]["path"], "live/dev/vpc");
    assert_eq!(report["place"]["workspace"], "default");
    assert_eq!(report["backend"]["type"], "local");
    assert_eq!(report["backend"]["path"], "terraform.tfstate");
    assert!(report["configuration_sha256"].is_string());
    assert!(!sandbox.work().join("live/prod/vpc/terraform.tfstate").exists());
}

/// The second sequence of the issue.
#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_applies_no_plan_of_another() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    modules(&sandbox, "https://git.example.com/team/infra", &["vpc"]);
    let (dev, prod) = ([("TF_WORKSPACE", "dev")], [("TF_WORKSPACE", "prod")]);
    assert_eq!(run_in(&sandbox, "vpc", &datastore, &dev, &["plan"]).code, 0);
    let ended = run_in(&sandbox, "vpc", &datastore, &prod, &["apply"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("no plan of default/infra.vpc.prod"), "{}", ended.stderr);
    assert_eq!(run_in(&sandbox, "vpc", &datastore, &dev, &["apply"]).code, 0);

    // Under one name only plans of this place count, and one that is named is refused.
    let named = ["plan", "--name", "x", "--run", "p"];
    assert_eq!(run_in(&sandbox, "vpc", &datastore, &dev, &named).code, 0);
    let ended = run_in(&sandbox, "vpc", &datastore, &prod, &["apply", "--name", "x"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("none of this place"), "{}", ended.stderr);
    let named = ["apply", "--name", "x", "--plan", "p"];
    let ended = run_in(&sandbox, "vpc", &datastore, &prod, &named);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    for side in ["path vpc, workspace dev", "path vpc, workspace prod"] {
        assert!(ended.stderr.contains(side), "{}", ended.stderr);
    }
    let applies = sandbox.calls().iter().filter(|call| call.starts_with("apply")).count();
    assert_eq!(applies, 1);

    // As `terraform workspace select` leaves it.
    sandbox.write("vpc/.terraform/environment", "dev");
    let ended = run_in(&sandbox, "vpc", &datastore, &[], &["apply", "--name", "x"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    std::fs::create_dir(sandbox.work().join("data")).unwrap();
    sandbox.write("data/environment", "prod");
    let data = sandbox.work().join("data").display().to_string();
    let data = [("TF_DATA_DIR", data.as_str())];
    let ended =
        run_in(&sandbox, "vpc", &datastore, &data, &["apply", "--name", "x", "--plan", "p"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_another_repository_is_always_refused() {
    let datastore = TestDatastore::memory().await;
    let [one, other] =
        ["git@git.example.com:one/infra", "git@git.example.com:other/infra"].map(|origin| {
            let sandbox = Sandbox::new(RUNNER).fake_terraform("");
            modules(&sandbox, origin, &["vpc"]);
            sandbox.write(
                "vpc/layer.yaml",
                "kind: TerraformLayer\nmetadata:\n  name: infra.vpc\nspec:\n  path: .\n",
            );
            sandbox
        });
    let layer = ["plan", "--layer", "layer.yaml", "--run", "p"];
    let ended = run_in(&one, "vpc", &datastore, &[], &layer);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    other.write("vpc/layer.yaml", &one.read("vpc/layer.yaml"));

    let ended = run_in(&other, "vpc", &datastore, &[], &["apply", "--layer", "layer.yaml"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    for side in ["git.example.com/one/infra", "git.example.com/other/infra"] {
        assert!(ended.stderr.contains(side), "{}", ended.stderr);
    }
    assert_eq!(other.calls(), Vec::<String>::new(), "nothing ran, not even init");
    // The default names are the same; the newest plan of this place is its own.
    let ended = run_in(&other, "vpc", &datastore, &[], &["apply"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let ended = run_in(&one, "vpc", &datastore, &[], &["apply", "--layer", "layer.yaml"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_another_backend_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(S3);
    let run = |key, args: &[&str]| run_in(&sandbox, "", &datastore, &[("KEY", key)], args);
    let ended = run("dev", &["plan", "--name", "x", "--run", "p"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = run_json(&datastore, "x", "p").await;
    assert_eq!(
        (&report["backend"]["type"], &report["backend"]["key"]),
        (&"s3".into(), &"dev".into())
    );
    assert!(!report.to_string().contains("SECRET"), "{report}");

    for args in [&["apply", "--name", "x"][..], &["apply", "--name", "x", "--plan", "p"]] {
        let ended = run("prod", args);
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        for side in [r#"key "dev""#, r#"key "prod""#] {
            assert!(ended.stderr.contains(side), "{}", ended.stderr);
        }
    }
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    assert_eq!(run("dev", &["apply", "--name", "x"]).code, 0);
}

/// A `run.json` as an earlier version wrote it.
#[tokio::test(flavor = "multi_thread")]
async fn plan_without_a_recorded_origin_is_applied_only_by_name_or_layer() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let args = ["plan", "--layer", "layer.yaml", "--run", "bound"];
    assert_eq!(sandbox.run_with(&datastore.url, &args).code, 0);
    let [bound, old] =
        ["bound", "p"].map(|run| StoredRun::new(&datastore, "default", "hello", run));
    let without_origin = |report: &mut serde_json::Value| {
        for field in ["place", "backend", "configuration_sha256", "providers"] {
            report.as_object_mut().unwrap().remove(field).unwrap();
        }
    };
    bound.copy_as_of_an_earlier_release(&old, without_origin).await;
    let layer = sandbox.read("layer.yaml").replace("plan-run: bound/0", "plan-run: p/0");
    sandbox.write("layer.yaml", &layer);

    let ended = sandbox.run_with(&datastore.url, &["apply", "--name", "hello"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("next: plan again"), "{}", ended.stderr);
    for args in [&["--name", "hello", "--plan", "p"][..], &["--layer", "layer.yaml"]] {
        let ended = sandbox.run_with(&datastore.url, &[&["apply"], args].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stderr.contains("they are not compared"), "{}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_configuration_is_refused_unless_the_plan_is_named() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--name", "x", "--run", "p"]).code, 0);
    sandbox.write("terraform.tfvars", "name = \"y\"\n");

    let ended = run(&["apply", "--name", "x"]);
    assert_eq!(ended.code, 9, "{}", ended.stderr);
    assert!(ended.stderr.contains("next: nothing was applied; plan again\n"), "{}", ended.stderr);
    let ended = run(&["apply", "--name", "x", "--plan", "p"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the configuration has changed"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn git_url_is_applied_at_the_plans_commit() {
    let datastore = TestDatastore::memory().await;
    let sandbox =
        Sandbox::new(RUNNER).fake_terraform(&format!("{S3}\ncat main.tf >> {}", "$HOME/code"));
    let repository = repository(&sandbox);
    let url = format!("file://{}", repository.dir.display());
    sandbox.write(
        "layer.yaml",
        "kind: TerraformLayer\nmetadata:\n  name: vpc\nspec:\n  path: live/vpc\n",
    );
    let run = |action, more: &[&str]| {
        let args = [&[action, &*url, "--layer", "layer.yaml"], more].concat();
        sandbox.run_with(&datastore.url, &args)
    };
    let ended = run("plan", &["--run", "p"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let planned = repository.commits[1].clone();
    std::fs::write(repository.dir.join("live/vpc/main.tf"), "# later\n").unwrap();
    let newer = commit(&repository.dir);

    let ended = run("apply", &["--run", "a", "--revision", "main"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(run_json(&datastore, "vpc", "a").await["revision"], *planned);
    let text = sandbox.read("layer.yaml");
    assert!(text.contains(&format!("apply-commit: {planned}")), "{text}");
    let code = std::fs::read_to_string(sandbox.path("home/code")).unwrap();
    assert!(code.contains("second") && !code.contains("later"), "{code}");

    // A commit is no moving branch, also if it is abbreviated.
    for other in [&newer[..], &newer[..8]] {
        let ended = run("apply", &["--revision", other]);
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(
            ended.stderr.contains(&planned) && ended.stderr.contains(other),
            "{}",
            ended.stderr
        );
    }
    // Nothing is done again.
    let ended = run("apply", &["--revision", &planned[..7]]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    // An apply without a plan has its own.
    let ended = run("apply", &["--no-plan", "--run", "u"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(run_json(&datastore, "vpc", "u").await["revision"], *newer);
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_at_another_commit_or_modified_since_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    modules(&sandbox, "git@git.example.com:team/infra", &["vpc", "db"]);
    let run = |args: &[&str]| run_in(&sandbox, "vpc", &datastore, &[], args);
    let refused = |expected: &str| {
        let ended = run(&["apply"]);
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    };
    let planned = git(&sandbox.work(), &["rev-parse", "HEAD"]);
    // What a caller leaves beside the code is no change of it.
    assert_eq!(run(&["plan", "--result", "plan.json"]).code, 0);
    let ended = run(&["apply", "--result", "apply.json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    std::fs::remove_file(sandbox.work().join("vpc/plan.json")).unwrap();
    std::fs::remove_file(sandbox.work().join("vpc/apply.json")).unwrap();
    assert_eq!(run(&["plan", "--run", "p"]).code, 0);
    sandbox.write("db/main.tf", "# edited\n");
    refused("-dirty");
    let later = commit(&sandbox.work());
    refused(&later);
    let ended = run(&["apply", "--run", "a", "--plan", "p"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains(&planned) && ended.stderr.contains(&later), "{}", ended.stderr);
    assert_eq!(run_json(&datastore, "infra.vpc", "a").await["revision"], *planned);

    // A plan of a dirty tree: the configuration decides.
    sandbox.write("vpc/main.tf", "# edited\n");
    assert_eq!(run(&["plan"]).code, 0);
    sandbox.write("README.md", "not of this module");
    let ended = run(&["apply", "--run", "b"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(run_json(&datastore, "infra.vpc", "b").await["revision"], format!("{later}-dirty"));
    assert_eq!(run(&["plan"]).code, 0);
    sandbox.write("vpc/main.tf", "# edited again\n");
    refused("the configuration has changed");
}

/// Init adds digests to a lock file that is in the repository.
#[tokio::test(flavor = "multi_thread")]
async fn lock_file_written_by_init_is_not_a_code_change() {
    let datastore = TestDatastore::memory().await;
    let init = "[ $STEP = init ] && echo '# more' >> .terraform.lock.hcl";
    let sandbox = Sandbox::new(RUNNER).fake_terraform(init);
    sandbox.write("vpc/.terraform.lock.hcl", "# made by init\n");
    modules(&sandbox, "git@git.example.com:team/infra", &["vpc"]);
    assert_eq!(run_in(&sandbox, "vpc", &datastore, &[], &["plan"]).code, 0);
    let ended = run_in(&sandbox, "vpc", &datastore, &[], &["apply"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_uses_the_tool_version_of_the_plan() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--name", "x", "--run", "p"]).code, 0);
    for (args, expected) in [
        (&["--tool", "tofu"][..], "was made by terraform 1.9.8, but --tool requests tofu"),
        (
            &["--tool-version", "1.10.0"],
            "was made by terraform 1.9.8, but --tool-version requests 1.10.0",
        ),
        (&["--tool-version", "~> 1.10"], "but --tool-version requests ~> 1.10"),
        (&["--terragrunt"], "was made by the tool alone, but --terragrunt"),
    ] {
        let ended = run(&[&["apply", "--name", "x", "--plan", "p"], args].concat());
        assert_eq!(ended.code, 9, "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
    // What the code asks for by now counts for the next plan.
    sandbox.write(".terraform-version", "1.10.0\n");
    let args = ["apply", "--name", "x", "--tool", "terraform", "--tool-version", "~> 1.9.0"];
    let ended = run(&args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn module_has_one_identity_however_it_is_reached() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    modules(&sandbox, "git@git.example.com:team/infra", &["live/vpc"]);
    let work = sandbox.work();
    std::os::unix::fs::symlink(work.join("live"), sandbox.path("link")).unwrap();
    git(&work, &["worktree", "add", "--quiet", "--detach", "../tree"]);
    let link = sandbox.path("link/vpc").display().to_string();
    let tree = sandbox.path("tree/live/vpc").display().to_string();
    for (i, args) in [vec!["live/vpc"], vec![".", "--path", "live/vpc"], vec![&link], vec![&tree]]
        .into_iter()
        .enumerate()
    {
        let run = format!("p{i}");
        let ended =
            run_in(&sandbox, "", &datastore, &[], &[&["plan", "--run", &run], &*args].concat());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        let report = run_json(&datastore, "infra.live.vpc", &run).await;
        assert_eq!(report["place"]["path"], "live/vpc", "{args:?}");
    }
    // A submodule is a repository of its own.
    let inner = sandbox.path("inner");
    std::fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "--quiet"]);
    std::fs::write(inner.join("main.tf"), "").unwrap();
    commit(&inner);
    let path = inner.display().to_string();
    git(&work, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &path, "sub"]);
    git(&work.join("sub"), &["remote", "set-url", "origin", "git@git.example.com:team/Sub.git"]);
    let ended = run_in(&sandbox, "sub", &datastore, &[], &["plan", "--name", "s", "--run", "p"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = run_json(&datastore, "s", "p").await;
    assert_eq!(report["place"]["repository"], "git.example.com/team/Sub");
    assert_eq!(report["place"]["path"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_git_remote_the_directory_names_the_layer() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    sandbox.write("plain/main.tf", "");
    assert_eq!(run_in(&sandbox, "plain", &datastore, &[], &["plan", "--run", "p"]).code, 0);
    let report = run_json(&datastore, "plain", "p").await;
    assert_eq!(
        report["place"],
        serde_json::json!({"repository": null, "path": null, "path_in_source": "", "workspace": "default"})
    );
    modules(&sandbox, "/srv/git/infra.git", &["vpc"]);
    assert_eq!(run_in(&sandbox, "vpc", &datastore, &[], &["plan", "--run", "p"]).code, 0);
    let report = run_json(&datastore, "work.vpc", "p").await;
    assert_eq!(
        report["place"],
        serde_json::json!({"repository": null, "path": "vpc", "workspace": "default"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_prints_where_it_is_stored_and_how_to_apply_it() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let line = |ended: &Ended| {
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stderr.lines().find(|line| line.contains("stored")).unwrap().to_owned()
    };
    let message =
        line(&sandbox.run_with(&datastore.url, &["plan", ".", "--name", "a b", "--run", "p"]));
    assert!(
        message.contains("stored as default/a b/p/0; apply it with: runner apply . --name 'a b'"),
        "{message}"
    );
    let (_, command) = message.split_once("apply it with: runner ").unwrap();
    // As a shell takes it.
    let script = format!("exec {RUNNER} {command}");
    let ended = sandbox.program(Path::new("/bin/sh"), &["-c", &script]).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{message}");

    let message = line(&sandbox.run(&["plan", "--plan-file", "the.plan"]));
    assert!(
        message.contains(
            "stored in the.plan; apply it with: runner apply --plan-file the.plan --strict"
        ),
        "{message}"
    );
    let message = line(&sandbox.run(&["plan"]));
    assert!(message.contains("the plan is not stored"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_records_no_backend_is_applied_only_by_name() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let run = |args: &[&str]| sandbox.run_with(&datastore.url, args);
    assert_eq!(run(&["plan", "--name", "x", "--run", "bound"]).code, 0);
    let [bound, old] = ["bound", "p"].map(|run| StoredRun::new(&datastore, "default", "x", run));
    let without_backend =
        |report: &mut serde_json::Value| report["backend"] = serde_json::Value::Null;
    bound.copy_as_of_an_earlier_release(&old, without_backend).await;

    let ended = run(&["apply", "--name", "x"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("both its place and its backend"), "{}", ended.stderr);
    let ended = run(&["apply", "--name", "x", "--plan", "p"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the backend is unknown"), "{}", ended.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_the_layer_disables_does_not_run() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
    let layer = |spec: &str| {
        let text = "kind: TerraformLayer\nmetadata:\n  name: x\nspec:\n  path: .\n";
        sandbox.write("off.yaml", &format!("{text}{spec}"));
    };
    for spec in [
        "  terraform: {enabled: false}\n",
        "  terraform: {enabled: false, version: 1.9.8}\n",
        "  opentofu: {enabled: false}\n",
        "  terraform: {enabled: false}\n  opentofu: {enabled: false}\n",
    ] {
        layer(spec);
        let ended = sandbox.run(&["plan", "--layer", "off.yaml"]);
        assert_eq!(ended.code, 8, "{spec}: {}", ended.stderr);
        assert!(ended.stderr.contains(".enabled is false and no tool is enabled"), "{ended:?}");
        assert_eq!(sandbox.calls(), Vec::<String>::new());
    }
    // A flag goes before the manifest.
    let args = ["plan", "--layer", "off.yaml", "--tool", "terraform"];
    assert_eq!(sandbox.run(&args).code, 0);
    layer("  terraform: {enabled: true}\n  opentofu: {enabled: false}\n");
    assert_eq!(sandbox.run(&["plan", "--layer", "off.yaml"]).code, 0);
}
