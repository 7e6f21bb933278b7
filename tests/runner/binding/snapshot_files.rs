//! Which files a plan's snapshot has, and that it is not stored where it would lack some.

use support::{Ended, Sandbox, TestDatastore};

use super::snapshot::{MODULE, S3, names, repository, run, stored};
use crate::RUNNER;
use crate::source::checkout::{git, plan_read_only};

/// What the tool makes at plan: a generated file that git ignores, providers, modules and a state.
const MAKES: &str = r"
if [ $STEP = plan ]; then
  mkdir -p .terraform/providers/x .terraform/modules/y
  echo made > lambda.zip
  echo p > .terraform/providers/x/terraform-provider-x
  echo m > .terraform/modules/y/main.tf
  echo '{}' > .terraform/terraform.tfstate
  echo l > .terraform.lock.hcl
fi
";

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_directory_has_code_and_generated_files_but_no_secrets() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(MAKES);
    for (file, text) in [
        (".gitignore", "*.zip\n*.tfvars\n.terraform/\n.terraform.lock.hcl\n"),
        (".terraformignore", "docs/\n"),
        ("vpc/main.tf", ""),
        ("vpc/tls/ca.pem", "tracked"),
        ("docs/tracked.md", "x"),
    ] {
        sandbox.write(file, text);
    }
    let work = sandbox.work();
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "--quiet", "-m", "x"]);
    for file in ["vpc/new.tf", "vpc/secret.tfvars", "vpc/.env", "vpc/tls/own.key", "docs/new.md"] {
        sandbox.write(file, "x");
    }
    sandbox.write("vpc/old.zip", "from an earlier run");
    sandbox.write("vpc/terraform.tfstate", "{}");
    let args = ["plan", "vpc", "--name", "vpc", "--run", "p", "--result", "vpc/result.json"];

    let planned = run(&sandbox, &datastore, &[&args[..], &["--snapshot", "always"]].concat());

    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let expected = [
        ".gitignore",
        ".terraformignore",
        "docs/tracked.md",
        "vpc/.terraform.lock.hcl",
        "vpc/.terraform/modules/y/main.tf",
        "vpc/lambda.zip",
        "vpc/main.tf",
        "vpc/new.tf",
        "vpc/tls/ca.pem",
    ];
    assert_eq!(names(&datastore, "p").await, expected.map(str::to_owned).into());
    assert!(planned.stderr.contains("the snapshot is not complete"), "{}", planned.stderr);

    let without = run(&sandbox, &datastore, &["plan", "vpc", "--name", "vpc", "--run", "q"]);
    assert_eq!(without.code, 0, "{}", without.stderr);
    assert!(!stored(&datastore, "q").names(0).await.contains(&"workspace.tar.zst".to_owned()));
}

/// There it has the plan and the log.
#[tokio::test(flavor = "multi_thread")]
async fn private_directory_of_the_run_is_in_no_snapshot_where_tmpdir_is_in_the_source() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    sandbox.write("main.tf", "");
    sandbox.write("tmp/kept", "");
    let args = ["plan", "--name", "vpc", "--run", "p", "--snapshot=always", "--datastore"];
    let mut plan = sandbox.command(&[&args[..], &[datastore.url.as_str()]].concat());
    let planned = plan.env("TMPDIR", sandbox.work().join("tmp")).output().unwrap();
    let planned = Ended::from(planned);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let names = names(&datastore, "p").await;
    assert!(names.contains("tmp/kept"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("plancha-")), "{names:?}");
}

/// Files of these names are never packed, so an apply would work without them.
#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_tracks_what_no_snapshot_has_gets_none() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let url = repository(&sandbox, "1");
    let dir = sandbox.path("repository");
    std::fs::write(dir.join("live/vpc/s3.tfstate.tf"), "").unwrap();
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "--quiet", "-m", "y"]);

    let planned = run(&sandbox, &datastore, &[&["plan", &url, "--run", "p"], &MODULE[..]].concat());

    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stderr.contains("live/vpc/s3.tfstate.tf"), "{}", planned.stderr);
    assert!(!stored(&datastore, "p").names(0).await.contains(&"workspace.tar.zst".to_owned()));
}

/// An apply in a tree without its configuration would do something else than its plan.
#[tokio::test(flavor = "multi_thread")]
async fn snapshot_that_would_lack_configuration_or_files_that_it_reads_is_not_stored() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    for (file, text) in [
        ("live/vpc/main.tf", "locals {\n  x = file(\"${path.module}/x.md\")\n}\n"),
        ("live/vpc/x.md", ""),
        ("live/vpc/README.txt", ""),
    ] {
        sandbox.write(file, text);
    }
    for (ignored, named, code) in
        [("*.tf", "live/vpc/main.tf", 8), ("*.md", "live/vpc/x.md", 0), ("*.txt", "", 0)]
    {
        sandbox.write(".terraformignore", &format!("{ignored}\n"));
        let tar = std::fs::File::create(sandbox.work().join("a.tar")).unwrap();
        let mut tar = tar::Builder::new(tar);
        for name in ["live", ".terraformignore"] {
            let path = sandbox.work().join(name);
            let appended = if path.is_dir() {
                tar.append_dir_all(name, path)
            } else {
                tar.append_path_with_name(path, name)
            };
            appended.unwrap();
        }
        tar.into_inner().unwrap();
        let plan = |run_name: &str, when: &str| {
            let args = ["plan", "a.tar", "--run", run_name, "--snapshot", when];
            run(&sandbox, &datastore, &[&args, &MODULE[..]].concat())
        };
        let is_complete = named.is_empty();
        let name = |when: &str| format!("{when}-{}", &ignored[2..]);

        let planned = plan(&name("auto"), "auto");
        assert_eq!(planned.code, 0, "{ignored}: {}", planned.stderr);
        assert_eq!(planned.stderr.contains("the plan has no snapshot"), !is_complete, "{ignored}");
        assert!(planned.stderr.contains(named), "{ignored}: {}", planned.stderr);
        let stored_names = stored(&datastore, &name("auto")).names(0).await;
        assert_eq!(stored_names.contains(&"workspace.tar.zst".to_owned()), is_complete);

        let planned = plan(&name("always"), "always");
        assert_eq!(planned.code, code, "{ignored}: {}", planned.stderr);
        assert!(planned.stderr.contains(named), "{ignored}: {}", planned.stderr);
        assert!(code == 0 || planned.stderr.contains("remove the patterns"), "{}", planned.stderr);
    }
}

/// The runner does not evaluate expressions, so it cannot know whether the plan has read them.
#[tokio::test(flavor = "multi_thread")]
async fn excluded_files_that_computed_paths_may_name_are_a_warning() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    for file in ["policies/a.json", "README.json", "docs/b.json"] {
        sandbox.write(&format!("source/live/vpc/{file}"), "{}");
    }
    sandbox.write("source/.terraformignore", "*.json\n");
    for (run_name, locals, named) in [
        ("plain", "x = file(var.y)", None),
        (
            "computed",
            "x = file(\"${path.module}/policies/${var.y}\")",
            Some("live/vpc/policies/a.json"),
        ),
        (
            "local",
            "f = \"${path.module}/README.json\"\n  x = file(local.f)",
            Some("live/vpc/README.json"),
        ),
    ] {
        sandbox.write("source/live/vpc/main.tf", &format!("locals {{\n  {locals}\n}}\n"));
        let args = ["plan", "source", "--run", run_name, "--snapshot=always"];
        let planned = run(&sandbox, &datastore, &[&args, &MODULE[..]].concat());
        assert_eq!(planned.code, 0, "{run_name}: {}", planned.stderr);
        let warning = named.map(|file| format!("by paths that it computes: {file}; if it reads"));
        let is_warned = warning.as_ref().is_none_or(|text| planned.stderr.contains(text));
        assert!(is_warned, "{run_name}: {}", planned.stderr);
        assert_eq!(planned.stderr.contains(".terraformignore"), named.is_some(), "{run_name}");
    }
}

/// A read-only source is copied; its copy has no `.git`, but the source has. Without files that git ignores an apply could do
/// something else than its plan.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_work_tree_with_ignored_files_has_no_snapshot_unless_one_is_required() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    repository(&sandbox, "1");
    let dir = sandbox.path("repository");
    std::fs::write(dir.join(".gitignore"), "*.tfvars\n").unwrap();
    std::fs::write(dir.join("live/vpc/secret.tfvars"), "x").unwrap();
    let plan = |run: &str, when: &str| {
        let args = ["--path", "live/vpc", "--name", "vpc", "--run", run, "--snapshot", when];
        let datastore = ["--datastore", datastore.url.as_str()];
        let planned = plan_read_only(&sandbox, &dir, &[&args[..], &datastore].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        planned.stderr
    };

    let warning = plan("q", "auto");
    assert!(warning.contains("the plan has no snapshot"), "{warning}");
    assert!(warning.contains("live/vpc/secret.tfvars"), "{warning}");
    let warning = plan("p", "always");
    assert!(warning.contains("the snapshot is not complete"), "{warning}");
    let names = names(&datastore, "p").await;
    assert!(names.contains("live/vpc/main.tf") && names.contains("modules/m/main.tf"), "{names:?}");
    assert!(!names.contains("live/vpc/secret.tfvars"), "{names:?}");
}
