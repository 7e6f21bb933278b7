//! Archives and git bundles as the source of a run.

#![expect(clippy::disallowed_types, reason = "tests make archives with tar and git themselves")]

use std::path::PathBuf;
use std::process::Command;

use support::{Ended, Sandbox, TestDatastore};

use crate::source::checkout::{Repository, git, plan_at, repository};
use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A module in a directory of the sandbox.
fn code(sandbox: &Sandbox, value: &str) -> PathBuf {
    let code = sandbox.path("code");
    std::fs::create_dir_all(code.join("live/vpc")).unwrap();
    let main = format!("output \"x\" {{ value = \"{value}\" }}\n");
    std::fs::write(code.join("live/vpc/main.tf"), main).unwrap();
    code
}

/// An archive in the working directory, by GNU tar.
fn tar(sandbox: &Sandbox, name: &str, args: &[&str]) {
    let mut tar = Command::new("tar");
    let made = tar.arg("-C").arg(sandbox.path("code")).arg("-cf").arg(sandbox.work().join(name));
    let made = made.args(args).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn refused(ended: &Ended, code: i32, texts: &[&str]) {
    assert_eq!(ended.code, code, "{}", ended.stderr);
    for text in texts {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
}

#[test]
fn label_of_a_volume_is_skipped_and_other_surprises_are_named() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    code(&sandbox, "x");
    tar(&sandbox, "label.tar", &["-V", "a label", "."]);
    let plan = |source: &str| sandbox.run(&["plan", source, "--path", "live/vpc", "--name", "l"]);
    let ended = plan("label.tar");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    refused(&plan("label.tar/"), 8, &["remove the slash at its end"]);
    let inside = ": label.tar is a file; name the archive as the source, and the directory in it with --path";
    refused(&plan("label.tar/live/vpc"), 8, &[inside]);
    refused(&plan("label.tar/live/"), 8, &[inside]);
    let name = "a\u{1b}[31m\nb.tar";
    tar(&sandbox, name, &["."]);
    let ended = plan(name);
    assert!(ended.stderr.contains(r"unpacked a\u{1b}[31m\nb.tar: "), "{}", ended.stderr);
    // The header of a frame of zstd with a window of 256 MiB.
    let frame = [0x28_u8, 0xb5, 0x2f, 0xfd, 0x00, 0x90, 0x01, 0x00, 0x00];
    std::fs::write(sandbox.work().join("long.tar.zst"), frame).unwrap();
    refused(&plan("long.tar.zst"), 8, &["a window of more than 128 MiB", "--long=27"]);
}

#[test]
fn archives_of_gnu_tar_are_planned_in_a_private_directory() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("[ $STEP != init ] || cat main.tf");
    let code = code(&sandbox, "from the archive");
    std::fs::hard_link(code.join("live/vpc/main.tf"), code.join("live/vpc/same.tf")).unwrap();
    let long = code.join("live").join("long".repeat(60));
    std::fs::create_dir(&long).unwrap();
    std::fs::write(long.join("x.tf"), "").unwrap();
    for (name, args) in [
        ("infra.tar", &["."][..]),
        ("pax.tar", &["--format=pax", "."]),
        ("infra.tgz", &["-z", "live"]),
        // What it is decides, and not its name.
        ("infra.zip", &["--zstd", "live"]),
    ] {
        tar(&sandbox, name, args);
        let ended = sandbox.run(&["plan", name, "--path", "live/vpc"]);
        assert_eq!(ended.code, 0, "{name}: {}", ended.stderr);
        assert!(ended.stdout.contains("from the archive"), "{name}: {}", ended.stdout);
        assert!(sandbox.is_clean(), "the unpacked files are gone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_of_git_names_its_commit_and_is_no_repository() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, commits: [_, second, _] } = repository(&sandbox);
    let archive = sandbox.work().join("infra.tar.gz").display().to_string();
    git(&dir, &["archive", "-o", &archive, "HEAD"]);
    let ended =
        sandbox.run_with(&datastore.url, &["plan", &archive, "--path", "live/vpc", "--run", "r"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("+ x = \"second\""), "{}", ended.stdout);
    let stored = StoredRun::new(&datastore, "default", "infra.live.vpc", "r");
    let report = json(&stored.artifact("run.json", 0).await);
    assert_eq!(report["revision"], *second);
    assert_eq!(report["place"]["repository"], serde_json::Value::Null);
    assert_eq!(report["place"]["path"], "live/vpc");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_an_archive_is_applied_only_with_the_same_code_and_a_state_that_stays() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    code(&sandbox, "first");
    tar(&sandbox, "infra.tar", &["."]);
    let run = |args: &[&str]| {
        let place = ["infra.tar", "--path", "live/vpc"];
        sandbox.run_with(&datastore.url, &[&args[..1], &place, &args[1..]].concat())
    };
    assert_eq!(run(&["plan"]).code, 0);
    refused(&run(&["apply"]), 8, &["the state would be lost", "--work-dir"]);
    code(&sandbox, "other");
    tar(&sandbox, "infra.tar", &["."]);
    let apply = ["apply", "--work-dir", "kept"];
    refused(&run(&apply), 9, &["the source has changed"]);
    code(&sandbox, "first");
    // Nothing but a script, a template or a called module.
    for file in ["live/vpc/script.sh", "live/vpc/t.tpl", "modules/m/main.tf"] {
        let path = sandbox.path("code").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        tar(&sandbox, "infra.tar", &["."]);
        refused(&run(&apply), 9, &["the source has changed"]);
        std::fs::remove_file(&path).unwrap();
    }
    // What no tool reads.
    std::fs::create_dir_all(sandbox.path("code/.git")).unwrap();
    std::fs::write(sandbox.path("code/.git/HEAD"), "").unwrap();
    std::fs::write(sandbox.path("code/live/vpc/x.tfstate"), "").unwrap();
    tar(&sandbox, "infra.tar", &["--format=pax", "."]);
    let ended = run(&apply);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(sandbox.work().join("kept/live/vpc/terraform.tfstate").exists());

    // A file that is gone from the archive is gone from the work directory. The state stays.
    std::fs::rename(sandbox.path("code/live/vpc/main.tf"), sandbox.path("code/live/vpc/new.tf"))
        .unwrap();
    tar(&sandbox, "infra.tar", &["."]);
    let ended = run(&["plan", "--work-dir", "kept", "--detailed-exitcode"]);
    assert_eq!(ended.code, 0, "no changes: {}", ended.stderr);
}

#[test]
fn plan_file_of_an_archive_is_refused_for_another_archive() {
    let sandbox = Sandbox::new(RUNNER);
    for value in ["first", "other"] {
        code(&sandbox, value);
        tar(&sandbox, &format!("{value}.tar"), &["."]);
    }
    let run = |action: &str, archive: &str, work_dir: &str| {
        let place = ["--path", "live/vpc", "--plan-file", "the.plan", "--work-dir", work_dir];
        sandbox.run(&[&[action, archive], &place[..]].concat())
    };
    assert_eq!(run("plan", "first.tar", "kept").code, 0);
    refused(&run("apply", "other.tar", "other"), 9, &["made for another source"]);
    assert_eq!(run("apply", "first.tar", "kept").code, 0);
}

/// The state of the first archive would make a plan of the second one destroy what the first has created.
#[test]
fn kept_work_directory_belongs_to_one_archive_or_bundle() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    code(&sandbox, "x");
    let Repository { dir, .. } = repository(&sandbox);
    for name in ["a", "b"] {
        tar(&sandbox, &format!("{name}.tar"), &["."]);
        let bundle = sandbox.work().join(format!("{name}.bundle")).display().to_string();
        git(&dir, &["bundle", "create", "--quiet", &bundle, "--all"]);
    }
    std::os::unix::fs::symlink("a.tar", sandbox.work().join("link.tar")).unwrap();
    let run = |source: &str, work_dir: &str| {
        sandbox.run(&["plan", source, "--path", "live/vpc", "--work-dir", work_dir])
    };
    for (first, other) in [("a.tar", "b.tar"), ("a.bundle", "b.bundle"), ("a.tar", "a.bundle")] {
        let kept = format!("{first}-{other}");
        assert_eq!(run(first, &kept).code, 0);
        let same = if first == "a.tar" { "link.tar" } else { first };
        assert_eq!(run(same, &kept).code, 0);
        let [theirs, ours] = [first, other].map(|name| sandbox.work().join(name));
        let expected = format!(
            "{kept} contains the code of {}, and perhaps its state, not that of {}",
            theirs.display(),
            ours.display()
        );
        let mark = if first == "a.tar" { ".plancha-work" } else { ".git/plancha-work" };
        let next = format!("empty the file {kept}/{mark}");
        refused(&run(other, &kept), 8, &[&expected, &next]);
        // The way out, and a directory of an earlier version.
        std::fs::write(sandbox.work().join(&kept).join(mark), "").unwrap();
        assert_eq!(run(other, &kept).code, 0);
        assert_eq!(run(first, &kept).code, 8);
    }
}

#[test]
fn links_of_an_archive_are_links_in_a_kept_work_directory() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let code = code(&sandbox, "x");
    let link = |name: &str, target: &str| {
        std::os::unix::fs::symlink(target, code.join(name)).unwrap();
    };
    link("live/vpc/same.tf", "main.tf");
    link("modules", "live");
    link("live/up", "..");
    tar(&sandbox, "infra.tar", &["."]);
    for _ in 0..2 {
        let ended = sandbox.run(&["plan", "infra.tar", "--path", "live/vpc", "--work-dir", "kept"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        for (name, target) in
            [("live/vpc/same.tf", "main.tf"), ("modules", "live"), ("live/up", "..")]
        {
            let link = std::fs::read_link(sandbox.work().join("kept").join(name)).unwrap();
            assert_eq!(link, std::path::Path::new(target), "{name}");
        }
    }
}

#[test]
fn archive_without_a_module_at_its_root_names_the_path() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    code(&sandbox, "x");
    tar(&sandbox, "infra.tar", &["--transform", "s,^live,infra-1.2/live,", "live"]);
    for (path, text) in [
        (None, "has no configuration in its root"),
        (Some("live/vpc"), "has no directory `live/vpc`"),
        (Some("infra-1.2/live"), "has no configuration in `infra-1.2/live`"),
    ] {
        let mut args = vec!["plan", "infra.tar"];
        args.extend(path.iter().flat_map(|path| ["--path", path]));
        refused(&sandbox.run(&args), 8, &["infra.tar", text, "next: --path infra-1.2/live/vpc"]);
    }
    assert!(sandbox.calls().is_empty() && sandbox.is_clean());
    let ended = sandbox.run(&["plan", "infra.tar", "--path", "infra-1.2/live/vpc"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn file_that_is_no_whole_archive_is_refused() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    code(&sandbox, "x");
    tar(&sandbox, "infra.tgz", &["-z", "live"]);
    let whole = std::fs::read(sandbox.work().join("infra.tgz")).unwrap();
    std::fs::write(sandbox.work().join("half.tgz"), &whole[..whole.len() / 2]).unwrap();
    let rename = format!("--transform=s,vpc,{},", "x".repeat(300));
    tar(&sandbox, "name.tar", &[&rename, "live"]);
    tar(&sandbox, "twice.tar", &["live/vpc/main.tf", "--hard-dereference", "./live/vpc/main.tf"]);
    sandbox.write("empty.tar", "");
    sandbox.write("main.tf", "output \"x\" {}\n");
    sandbox.write("infra.zip", "PK\u{3}\u{4}");
    for (file, text) in [
        ("empty.tar", "the archive empty.tar: it is empty"),
        ("main.tf", "the archive main.tf: it is not a tar archive"),
        ("infra.zip", "the archive infra.zip: it is a zip archive"),
        ("half.tgz", "the archive half.tgz: it is not complete"),
        ("name.tar", "xxx/` (306 bytes) is refused: a part of its path has more than 255 bytes"),
        ("twice.tar", "its entry `live/vpc/main.tf` is refused: its path occurs twice"),
    ] {
        refused(&sandbox.run(&["plan", file]), 8, &[text, "next: "]);
    }
    let ended = sandbox.run(&["plan", "infra.tgz", "--revision", "main"]);
    refused(&ended, 64, &["--revision goes with a git URL or a git bundle"]);
    refused(&sandbox.run(&["plan", "missing.tar"]), 8, &["missing.tar", "does not exist"]);
    refused(&sandbox.run(&["plan", "/dev/null"]), 8, &["/dev/null", "a source is a directory"]);
    assert!(sandbox.calls().is_empty() && sandbox.is_clean());
}

#[test]
fn unpacking_stops_at_a_signal() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let mut header = tar::Header::new_gnu();
    header.set_path("large").unwrap();
    header.set_size(2 << 30);
    header.set_mode(0o644);
    header.set_cksum();
    let frame = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let (zeros, end) = (frame(&vec![0; 64 << 20]), frame(&[0; 1024]));
    let archive = [frame(header.as_bytes()), zeros.repeat(32), end].concat();
    std::fs::write(sandbox.work().join("large.tar.zst"), archive).unwrap();
    let runner = sandbox.start(None, &["plan", "large.tar.zst"]);
    let large = || {
        let runs = std::fs::read_dir(sandbox.path("tmp")).unwrap().map(|run| run.unwrap().path());
        runs.flat_map(|run| std::fs::metadata(run.join("unpacked/large")))
            .map(|file| file.len())
            .max()
    };
    support::eventually("the file is unpacked", || large().is_some_and(|length| length > 0));
    runner.signal("TERM");
    let ended = runner.wait();
    refused(&ended, 143, &["the fetching of the code was stopped by SIGTERM", "next: run again"]);
    assert!(sandbox.is_clean() && sandbox.calls().is_empty());
}

#[test]
fn directories_that_only_paths_name_do_not_delay_the_end_after_a_signal() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let mut archive = tar::Builder::new(Vec::new());
    for number in 0..3000 {
        let path = format!("d{number}/{}x", "d/".repeat(97));
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, &[][..]).unwrap();
    }
    std::fs::write(sandbox.work().join("deep.tar"), archive.into_inner().unwrap()).unwrap();
    let runner = sandbox.start(None, &["plan", "deep.tar"]);
    let runs = || std::fs::read_dir(sandbox.path("tmp")).unwrap().map(|run| run.unwrap().path());
    support::eventually("directories are made", || {
        runs().any(|run| run.join("unpacked/d20").exists())
    });
    runner.signal("TERM");
    let start = std::time::Instant::now();
    let ended = runner.wait();
    refused(&ended, 143, &["the fetching of the code was stopped by SIGTERM", "next: run again"]);
    assert!(start.elapsed() < std::time::Duration::from_secs(15), "{:?}", start.elapsed());
    // The rest, if there is one, belongs to an ended run, whose lock file is removed last.
    assert!(runs().all(|run| run.join(".lock").exists()), "{:?}", runs().collect::<Vec<_>>());
}

#[test]
fn git_of_an_archive_is_not_used() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("[ $STEP != init ] || ls -A . ../..");
    let code = code(&sandbox, "x");
    git(&code, &["init", "--quiet"]);
    std::fs::create_dir(code.join("live/vpc/.terraform")).unwrap();
    std::fs::write(code.join("live/vpc/.terraform/environment"), "production").unwrap();
    tar(&sandbox, "infra.tar", &["."]);
    let ended = sandbox.run(&["plan", "infra.tar", "--path", "live/vpc"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("main.tf"), "{}", ended.stdout);
    assert!(
        !ended.stdout.contains(".git") && !ended.stdout.contains(".terraform"),
        "{}",
        ended.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn git_bundle_is_planned_at_the_given_revision() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let Repository { dir, commits: [first, second, third] } = repository(&sandbox);
    let bundle = sandbox.work().join("infra.bundle").display().to_string();
    git(&dir, &["bundle", "create", "--quiet", &bundle, "--all"]);
    let revisions = [
        (None, &second, "second"),
        (Some("v1"), &first, "first"),
        (Some("feat/side"), &third, "third"),
        (Some(first.as_str()), &first, "first"),
        (Some(&second[..9]), &second, "second"),
    ];
    for report in plan_at(&sandbox, &datastore, ("infra.bundle", "infra"), &revisions).await {
        assert_eq!(report["place"]["repository"], serde_json::Value::Null);
    }
    let args = ["apply", "infra.bundle", "--path", "live/vpc", "--plan", "r3"];
    refused(&sandbox.run_with(&datastore.url, &args), 8, &["the state would be lost"]);
    // The plan's commit is applied, not the bundle's HEAD.
    let ended = sandbox.run_with(&datastore.url, &[&args[..], &["--work-dir", "kept"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("x = \"first\""), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn git_bundle_of_another_history_than_the_plans_is_refused() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, commits: [_, planned, _] } = repository(&sandbox);
    let bundle = |name: &str| {
        let path = sandbox.work().join(name).display().to_string();
        git(&dir, &["bundle", "create", "--quiet", &path, "HEAD", "main"]);
    };
    bundle("a.bundle");
    git(&dir, &["checkout", "--quiet", "--orphan", "other"]);
    git(&dir, &["commit", "--quiet", "-m", "other"]);
    git(&dir, &["branch", "--force", "main"]);
    bundle("b.bundle");
    let run = |action: &str, bundle: &str| {
        let args = [action, bundle, "--path", "live/vpc", "--name", "x", "--snapshot=never"];
        sandbox.run_with(&datastore.url, &args)
    };
    let ended = run("plan", "a.bundle");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let applies = || sandbox.calls().iter().filter(|call| call.starts_with("apply")).count();
    let ended = run("apply", "b.bundle");
    assert_eq!((ended.code, applies()), (9, 0), "{}", ended.stderr);
    let expected =
        format!("b.bundle does not contain the plan's commit {planned}: it has another history");
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
    let ended = run("apply", "a.bundle");
    let expected = format!("working on the plan's commit {planned}");
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
}

#[test]
fn git_bundle_that_cannot_be_used_is_refused() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let path = |name: &str| sandbox.work().join(name).display().to_string();
    git(&dir, &["bundle", "create", "--quiet", &path("all.bundle"), "--all"]);
    git(&dir, &["bundle", "create", "--quiet", &path("branch.bundle"), "main"]);
    git(&dir, &["bundle", "create", "--quiet", &path("since.bundle"), "v1..main"]);
    let whole = std::fs::read(path("all.bundle")).unwrap();
    std::fs::write(path("half.bundle"), &whole[..whole.len() - 40]).unwrap();
    for (args, texts) in [
        (
            &["all.bundle", "--revision", "nope"][..],
            ["has no revision `nope`", "git bundle list-heads"],
        ),
        (&["branch.bundle"], ["has no revision `HEAD`", "the bundle has no HEAD: name a branch"]),
        (
            &["since.bundle", "--revision", "main"],
            ["it needs commits that are not in it", "git bundle create"],
        ),
        (&["half.bundle"], ["half.bundle cannot be used", "next: "]),
    ] {
        let ended = sandbox.run(&[&["plan"], args, &["--path", "live/vpc"]].concat());
        refused(&ended, 8, &texts);
    }
    let args = ["plan", "branch.bundle", "--revision", "main", "--path", "live/vpc"];
    let ended = sandbox.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
