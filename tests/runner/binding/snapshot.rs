//! A plan's snapshot: when it is made, and that an apply works in it.

use std::collections::BTreeSet;

use support::{Ended, Fault, FaultyDatastore, Sandbox, TestDatastore};

use crate::source::checkout::{git, plan_read_only};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A repository whose module keeps its state in a file beside it, and has an output of `expression`.
pub(crate) fn repository(sandbox: &Sandbox, expression: &str) -> String {
    let dir = sandbox.path("repository");
    std::fs::create_dir_all(dir.join("live/vpc")).unwrap();
    std::fs::create_dir_all(dir.join("modules/m")).unwrap();
    let state = sandbox.path("state");
    let main = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{}\"\n  }}\n}}\n\
         module \"m\" {{\n  source = \"../../modules/m\"\n}}\n\
         output \"x\" {{\n  value = {expression}\n}}\n",
        state.display()
    );
    std::fs::write(dir.join("live/vpc/main.tf"), main).unwrap();
    std::fs::write(dir.join("live/vpc/x.txt"), "content of x").unwrap();
    std::fs::write(dir.join("modules/m/main.tf"), "output \"y\" {\n  value = 1\n}\n").unwrap();
    git(&dir, &["init", "--quiet"]);
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "--quiet", "-m", "x"]);
    format!("file://{}", dir.display())
}

pub(crate) const MODULE: [&str; 4] = ["--path", "live/vpc", "--name", "vpc"];

pub(crate) fn run(sandbox: &Sandbox, datastore: &TestDatastore, args: &[&str]) -> Ended {
    sandbox.run_with(&datastore.url, args)
}

pub(crate) fn stored(datastore: &TestDatastore, run: &str) -> StoredRun {
    StoredRun::new(datastore, "default", "vpc", run)
}

/// The names of the files in a snapshot.
pub(crate) async fn names(datastore: &TestDatastore, run: &str) -> BTreeSet<String> {
    let archive = stored(datastore, run).artifact("workspace.tar.zst", 0).await;
    let mut archive = tar::Archive::new(zstd::Decoder::new(&archive[..]).unwrap());
    let entries = archive.entries().unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.header().entry_type().is_file());
    files.map(|entry| entry.path().unwrap().display().to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_works_in_the_snapshot_when_the_repository_is_gone() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let url = repository(&sandbox, "file(\"${path.module}/x.txt\")");
    let planned = run(&sandbox, &datastore, &[&["plan", &url, "--run", "p"], &MODULE[..]].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    std::fs::rename(sandbox.path("repository"), sandbox.path("moved")).unwrap();

    let applied =
        run(&sandbox, &datastore, &["apply", "--name", "vpc", "--plan", "p", "--run", "a"]);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("content of x"), "{}", applied.stdout);
    assert!(
        applied.stderr.contains("working in the snapshot of the plan p/0"),
        "{}",
        applied.stderr
    );
    let (plan, apply) = (
        json(&stored(&datastore, "p").artifact("run.json", 0).await),
        json(&stored(&datastore, "a").artifact("run.json", 0).await),
    );
    for field in ["revision", "place", "directory"] {
        assert_eq!(apply[field], plan[field], "{field}");
    }
    assert_eq!(apply["place"]["path"], "live/vpc");
    let record = json(&stored(&datastore, "a").artifact("applied.json", 0).await);
    assert_eq!(record["place"], plan["place"]);
    assert!(sandbox.is_clean());
    // The same as a command with the URL, which is not fetched either.
    let again = ["apply", &url, "--plan", "p", "--run", "b"];
    let again = run(&sandbox, &datastore, &[&again, &MODULE[..]].concat());
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert!(again.stderr.contains("nothing is applied again"), "{}", again.stderr);
}

/// Without git the source says what belongs together, and the module at `--path` may use others beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_git_has_a_snapshot_of_the_whole_source() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    repository(&sandbox, "file(\"${path.module}/../../shared/x.md\")");
    let dir = sandbox.path("repository");
    std::fs::remove_dir_all(dir.join(".git")).unwrap();
    for (file, text) in
        [("shared/x.md", "content of x"), ("shared/.env", "secret"), ("other/x.tfstate", "secret")]
    {
        std::fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }
    let plan = ["plan", dir.to_str().unwrap(), "--run", "p", "--snapshot=always"];
    let planned = run(&sandbox, &datastore, &[&plan[..], &MODULE].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stderr.contains("shared/.env"), "{}", planned.stderr);
    let mut names = names(&datastore, "p").await;
    names.retain(|name| !name.contains(".terraform"));
    let expected = ["live/vpc/main.tf", "live/vpc/x.txt", "modules/m/main.tf", "shared/x.md"];
    assert_eq!(names, expected.map(str::to_owned).into());
    std::fs::rename(&dir, sandbox.path("moved")).unwrap();

    let apply = ["apply", "--name", "vpc", "--plan", "p", "--run", "a", "--snapshot=always"];
    let applied = run(&sandbox, &datastore, &apply);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.contains("content of x"), "{}", applied.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn never_works_on_the_source_and_always_needs_a_snapshot() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let url = repository(&sandbox, "1");
    for (run_name, when) in [("with", "auto"), ("without", "never")] {
        let args = ["plan", &url, "--run", run_name, "--snapshot", when];
        let planned = run(&sandbox, &datastore, &[&args, &MODULE[..]].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
    }
    let has = |names: Vec<String>| names.contains(&"workspace.tar.zst".to_owned());
    assert!(has(stored(&datastore, "with").names(0).await));
    assert!(!has(stored(&datastore, "without").names(0).await));
    let apply = |plan: &str, when: &str| {
        let args = ["apply", &url, "--plan", plan, "--snapshot", when];
        run(&sandbox, &datastore, &[&args, &MODULE[..]].concat())
    };

    let refused = apply("without", "always");
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(refused.stderr.contains("the plan without/0 has no snapshot"), "{}", refused.stderr);
    std::fs::rename(sandbox.path("repository"), sandbox.path("moved")).unwrap();
    let failed = apply("with", "never");
    assert_eq!(failed.code, 8, "{}", failed.stderr);
    assert!(failed.stderr.contains("is not a git repository"), "{}", failed.stderr);
}

/// The table of docs/runner.md. A source without a repository is used itself.
#[tokio::test(flavor = "multi_thread")]
async fn with_auto_each_source_has_a_snapshot_and_uses_it_as_documented() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    let url = repository(&sandbox, "1");
    let dir = sandbox.path("repository");
    let file = |name: &str| sandbox.work().join(name).display().to_string();
    git(&dir, &["bundle", "create", "--quiet", &file("a.bundle"), "--all"]);
    git(&dir, &["archive", "-o", &file("a.tar"), "HEAD"]);
    std::fs::create_dir_all(sandbox.path("home")).unwrap();
    let config = format!("[url \"{url}\"]\n  insteadOf = https://git.example.com/team/infra.git\n");
    std::fs::write(sandbox.path("home/.gitconfig"), config).unwrap();
    let writable = dir.display().to_string();
    let empty = sandbox.path("empty");
    std::fs::create_dir_all(&empty).unwrap();
    for (name, source, is_stored, is_used) in [
        ("https", "https://git.example.com/team/infra.git", true, true),
        ("file", &*url, true, false),
        ("bundle", "a.bundle", true, false),
        ("archive", "a.tar", true, false),
        ("directory", &*writable, false, false),
    ] {
        let place = ["--path", "live/vpc", "--name", name];
        for plan in ["p", "q"] {
            let args = [&["plan", source, "--run", plan], &place[..]].concat();
            let planned = sandbox.run_with(&datastore.url, &args);
            assert_eq!(planned.code, 0, "{name}: {}", planned.stderr);
            let names = StoredRun::new(&datastore, "default", name, plan).names(0).await;
            assert_eq!(names.contains(&"workspace.tar.zst".to_owned()), is_stored, "{name}");
        }
        let in_snapshot = |ended: &Ended| ended.stderr.contains("working in the snapshot");

        let args = [&["apply", source, "--plan", "p"], &place[..]].concat();
        let applied = sandbox.run_with(&datastore.url, &args);
        assert_eq!((applied.code, in_snapshot(&applied)), (0, is_used), "{name}: {applied:?}");

        let args = ["apply", "--name", name, "--datastore", datastore.url.as_str()];
        let applied = sandbox.command(&args).current_dir(&empty).output().unwrap();
        let applied = Ended::from(applied);
        assert_eq!(in_snapshot(&applied), is_stored, "{name}: {applied:?}");
        assert_eq!(applied.code == 0, is_stored, "{name}: {applied:?}");
    }
    let args = ["--path", "live/vpc", "--name", "r", "--run", "p"];
    let args = [&args[..], &["--datastore", datastore.url.as_str()]].concat();
    let planned = plan_read_only(&sandbox, &dir, &args);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let names = StoredRun::new(&datastore, "default", "r", "p").names(0).await;
    assert!(names.contains(&"workspace.tar.zst".to_owned()), "{names:?}");
}

/// Earlier runners stored such snapshots.
#[tokio::test(flavor = "multi_thread")]
async fn stored_snapshot_without_configuration_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    let url = repository(&sandbox, "1");
    let planned = run(&sandbox, &datastore, &[&["plan", &url, "--run", "p"], &MODULE[..]].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    let p = stored(&datastore, "p");
    let mut tar = tar::Builder::new(zstd::Encoder::new(Vec::new(), 1).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.set_mode(0o644);
    tar.append_data(&mut header, "live/vpc/x.txt", std::io::empty()).unwrap();
    let snapshot = tar.into_inner().unwrap().finish().unwrap();
    let mut binding = json(&p.artifact("binding.json", 0).await);
    let sha256 = datastore_api::Sha256::of(&snapshot).to_string();
    binding["binding"]["workspace"]["sha256"] = sha256.into();
    p.put_artifact("workspace.tar.zst", 0, snapshot).await;
    p.put_artifact("binding.json", 0, binding.to_string().into_bytes()).await;

    let refused = run(&sandbox, &datastore, &["apply", "--name", "vpc", "--plan", "p"]);

    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("has no configuration"), "{}", refused.stderr);
    assert!(!sandbox.path("calls").exists());
}

/// A source without a repository is compared by its contents.
#[tokio::test(flavor = "multi_thread")]
async fn a_named_source_is_never_replaced_by_the_snapshot_of_another_one() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    for (name, text) in [("a", "# a\n"), ("b", "# b\n")] {
        sandbox.write(&format!("{name}/main.tf"), text);
        let tar = std::fs::File::create(sandbox.work().join(format!("{name}.tar"))).unwrap();
        let mut tar = tar::Builder::new(tar);
        tar.append_path_with_name(sandbox.work().join(name).join("main.tf"), "main.tf").unwrap();
        tar.into_inner().unwrap();
    }
    let planned = run(&sandbox, &datastore, &["plan", "a.tar", "--name", "vpc", "--run", "p"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(stored(&datastore, "p").names(0).await.contains(&"workspace.tar.zst".to_owned()));

    for source in [&["b.tar"][..], &["b"]] {
        let refused = run(&sandbox, &datastore, &[&["apply", "--name", "vpc"], source].concat());
        assert_eq!(refused.code, 9, "{}", refused.stderr);
    }
    let mut here =
        sandbox.command(&["apply", "--name", "vpc", "--datastore", datastore.url.as_str()]);
    let refused = Ended::from(here.current_dir(sandbox.work().join("b")).output().unwrap());
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    let applied = run(&sandbox, &datastore, &["apply", "a.tar", "--name", "vpc"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}

/// An archive `a.tar` in the working directory, with one file.
fn archive(sandbox: &Sandbox, path: &str, text: &str) {
    sandbox.write("archived", text);
    let tar = std::fs::File::create(sandbox.work().join("a.tar")).unwrap();
    let mut tar = tar::Builder::new(tar);
    tar.append_path_with_name(sandbox.work().join("archived"), path).unwrap();
    tar.into_inner().unwrap();
}

/// The directory that `--path` names has the configuration, and terragrunt's files are one.
#[tokio::test(flavor = "multi_thread")]
async fn local_code_below_the_path_is_never_replaced_by_a_snapshot() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    archive(&sandbox, "live/vpc/main.tf", "# a\n");
    let args = [&["plan", "a.tar", "--run", "p"], &MODULE[..]].concat();
    let planned = run(&sandbox, &datastore, &args);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let apply = || {
        let args = [&["apply", "--datastore", datastore.url.as_str()], &MODULE[..]].concat();
        let mut here = sandbox.command(&args);
        Ended::from(here.current_dir(sandbox.path("here")).output().unwrap())
    };
    let module = sandbox.path("here/live/vpc");
    for file in ["main.tf", "terragrunt.hcl"] {
        std::fs::create_dir_all(&module).unwrap();
        std::fs::write(module.join(file), "# b\n").unwrap();
        let refused = apply();
        assert_eq!(refused.code, 9, "{file}: {}", refused.stderr);
        std::fs::remove_dir_all(&module).unwrap();
    }
    let applied = apply();
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stderr.contains("working in the snapshot"), "{}", applied.stderr);
}

/// Its files are in no work tree, also where one is around them.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpacked_archive_in_an_ignored_directory_has_a_complete_snapshot() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    archive(&sandbox, "live/vpc/main.tf", "");
    sandbox.write(".gitignore", "work/\n");
    git(&sandbox.work(), &["init", "--quiet"]);
    let args = [&["plan", "a.tar", "--work-dir", "work", "--run", "p"], &MODULE[..]].concat();
    let planned = run(&sandbox, &datastore, &args);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(!planned.stderr.contains("snapshot"), "{}", planned.stderr);
    assert!(names(&datastore, "p").await.contains("live/vpc/main.tf"));

    let always = ["apply", "--plan", "p", "--work-dir", "work", "--snapshot=always"];
    let applied = run(&sandbox, &datastore, &[&always, &MODULE[..]].concat());
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stderr.contains("--work-dir work is not used"), "{}", applied.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_is_not_utf_8_and_a_data_directory_give_no_snapshot() {
    use std::os::unix::ffi::OsStrExt as _;
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let dir = sandbox.path("repository");
    let module = dir.join(std::ffi::OsStr::from_bytes(b"b\xff"));
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(module.join("main.tf"), "").unwrap();
    git(&dir, &["init", "--quiet"]);
    git(&dir, &["add", "."]);
    git(&dir, &["commit", "--quiet", "-m", "x"]);
    let url = format!("file://{}", dir.display());
    for (path, variable) in [(module.file_name().unwrap(), "OTHER"), (".".as_ref(), "TF_DATA_DIR")]
    {
        let mut plan = sandbox.command(&["plan", &url, "--name", "vpc", "--path"]);
        plan.arg(path).env(variable, ".data").args(["--datastore", datastore.url.as_str()]);
        let planned = Ended::from(plan.output().unwrap());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        assert!(planned.stderr.contains("the plan has no snapshot"), "{}", planned.stderr);
        let required = Ended::from(plan.arg("--snapshot=always").output().unwrap());
        assert_eq!(required.code, 8, "{}", required.stderr);
        assert!(!required.stderr.contains("run again"), "{}", required.stderr);
    }
}

/// A terraform whose init changes the lock file if the variable `CHANGE` is set.
const CHANGES_LOCK_FILE: &str = r#"
if [ $STEP = init ]; then
  mkdir -p .terraform
  echo '{"backend": {"type": "s3", "config": {}}}' > .terraform/terraform.tfstate
fi
if [ $STEP = init ] && [ -n "$CHANGE" ]; then echo other > .terraform.lock.hcl; fi
if [ $STEP = init ] && [ ! -e .terraform.lock.hcl ]; then echo l > .terraform.lock.hcl; fi
"#;

/// The tool refuses `-upgrade` beside a read-only lock file.
#[tokio::test(flavor = "multi_thread")]
async fn lock_file_is_compared_after_an_init_with_upgrade() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(CHANGES_LOCK_FILE);
    let url = repository(&sandbox, "1");
    let planned = run(&sandbox, &datastore, &[&["plan", &url, "--run", "p"], &MODULE[..]].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let args = ["apply", "--name", "vpc", "--plan", "p", "--datastore", datastore.url.as_str()];
    for (change, code, applies) in [("1", 9, 0), ("", 0, 1)] {
        let mut command = sandbox.command(&args);
        command.env("TF_CLI_ARGS_init", "-upgrade").env("CHANGE", change);
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(ended.code, code, "{change}: {}", ended.stderr);
        let is_refused = ended.stderr.contains("bound to another lock file");
        assert_eq!(is_refused, code == 9, "{change}: {}", ended.stderr);
        let calls = sandbox.calls();
        assert!(!calls.iter().any(|call| call.contains("-lockfile")), "{calls:?}");
        let applied = calls.iter().filter(|call| call.starts_with("apply")).count();
        assert_eq!(applied, applies, "{change}: {calls:?}");
    }
}

/// A terraform with a remote state.
pub(crate) const S3: &str = r#"
if [ $STEP = init ]; then
  mkdir -p .terraform
  echo '{"backend": {"type": "s3", "config": {"bucket": "b", "key": "k"}}}' > .terraform/terraform.tfstate
fi
"#;

#[tokio::test(flavor = "multi_thread")]
async fn init_in_a_snapshot_cannot_change_the_lock_file() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(CHANGES_LOCK_FILE);
    let url = repository(&sandbox, "1");
    let planned = run(&sandbox, &datastore, &[&["plan", &url, "--run", "p"], &MODULE[..]].concat());
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let apply = ["apply", "--name", "vpc", "--plan", "p"];
    let mut command = sandbox.command(&apply);
    command.env("PLANCHA_DATASTORE_URL", datastore.url.as_str()).env("CHANGE", "1");

    let refused = Ended::from(command.output().unwrap());
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("bound to another lock file"), "{}", refused.stderr);
    let applied = run(&sandbox, &datastore, &apply);

    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let calls = sandbox.calls();
    let inits = calls.iter().filter(|call| call.starts_with("init")).collect::<Vec<_>>();
    assert!(!inits[0].contains("-lockfile=readonly"), "{inits:?}");
    assert!(inits[1..].iter().all(|call| call.contains("-lockfile=readonly")), "{inits:?}");
    assert_eq!(calls.iter().filter(|call| call.starts_with("apply")).count(), 1, "{calls:?}");
}

/// In the datastore both may be replaced by any caller who may write there.
#[tokio::test(flavor = "multi_thread")]
async fn another_snapshot_or_lock_file_than_bound_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform(S3);
    let url = repository(&sandbox, "1");
    for run_name in ["p", "other"] {
        let args = ["plan", &url, "--run", run_name];
        let planned = run(&sandbox, &datastore, &[&args, &MODULE[..]].concat());
        assert_eq!(planned.code, 0, "{}", planned.stderr);
        std::fs::write(sandbox.path("repository/live/vpc/new.tf"), "").unwrap();
        git(&sandbox.path("repository"), &["add", "."]);
        git(&sandbox.path("repository"), &["commit", "--quiet", "--allow-empty", "-m", "new"]);
    }
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    let refused = |expected: &str| {
        let args = ["apply", "--name", "vpc", "--plan", "p"];
        let refused = run(&sandbox, &datastore, &args);
        assert_eq!(refused.code, 9, "{}", refused.stderr);
        assert!(refused.stderr.contains(expected), "{expected}: {}", refused.stderr);
    };
    let p = stored(&datastore, "p");
    let own = p.artifact("workspace.tar.zst", 0).await;
    let other = stored(&datastore, "other").artifact("workspace.tar.zst", 0).await;
    assert_ne!(own, other);
    p.put_artifact("workspace.tar.zst", 0, other).await;
    refused("bound to another snapshot: sha256 ");
    assert!(!sandbox.path("calls").exists());

    p.put_artifact("workspace.tar.zst", 0, own).await;
    let mut binding = json(&p.artifact("binding.json", 0).await);
    binding["binding"]["lock_file_sha256"] = "0".repeat(64).into();
    p.put_artifact("binding.json", 0, binding.to_string().into_bytes()).await;
    refused("bound to another lock file: sha256 0000");
    assert!(!sandbox.calls().iter().any(|call| call.starts_with("apply")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_cannot_be_searched_for_its_directory_has_no_snapshot() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let json = format!(
        r#"{{"format_version": "1.2", "output_changes": {{"x": {{"actions": ["create"], "after": {deep}}}}}}}"#
    );
    let sandbox =
        sandbox.fake_terraform(&format!("case \"$*\" in *-json*) echo '{json}'; exit;; esac"));
    let url = repository(&sandbox, "1");
    for (run_name, when, code) in [("p", "auto", 0), ("q", "always", 1)] {
        let args = ["plan", &url, "--run", run_name, "--snapshot", when];
        let planned = run(&sandbox, &datastore, &[&args, &MODULE[..]].concat());
        assert_eq!(planned.code, code, "{}", planned.stderr);
        assert!(planned.stderr.contains("cannot be searched"), "{}", planned.stderr);
        let names = stored(&datastore, run_name).names(0).await;
        assert!(!names.contains(&"workspace.tar.zst".to_owned()), "{names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_that_takes_no_snapshot_is_a_warning() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let url = repository(&sandbox, "1");
    let refused = |status| {
        vec![Fault { method: "PUT", part: "name=workspace.tar.zst", status, times: usize::MAX }]
    };
    for (run, when, status, code) in [
        ("forbidden", "always", 403, 0),
        ("large", "auto", 413, 0),
        ("too-large", "always", 413, 10),
    ] {
        let faulty = FaultyDatastore::before(&datastore.url, refused(status)).await;
        let args = ["plan", &url, "--run", run, "--snapshot", when];

        let planned = sandbox.run_with(&faulty.url, &[&args, &MODULE[..]].concat());

        assert_eq!(planned.code, code, "{run}: {}", planned.stderr);
        if code == 0 {
            assert!(planned.stderr.contains("the plan has no snapshot"), "{}", planned.stderr);
            let binding = json(&stored(&datastore, run).artifact("binding.json", 0).await);
            assert!(binding["binding"]["workspace"].is_null(), "{binding}");
        }
    }
}
