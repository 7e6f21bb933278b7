//! Installing with a full disk, a restrictive umask, an unwritable stdout, a terminal.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use datastore_api::Sha256;
use support::{Ended, MirrorFault, MirroredTool};

use crate::RUNNER;
use crate::release::concurrent_installs::noise;
use crate::release::resolve::Case;
use MirroredTool::Terraform;

const V: &str = "1.9.8";

impl Case {
    /// A line of shell where `$RUNNER` is the runner, and another directory is `$DIR`.
    fn shell(&self, wrapper: &[&str], line: &str) -> Ended {
        let mut command =
            self.sandbox.program(Path::new("env"), &[wrapper, &["sh", "-c", line]].concat());
        std::fs::create_dir_all(self.sandbox.path("other")).unwrap();
        command
            .env_remove("PLANCHA_OFFLINE")
            .env("RUNNER", RUNNER)
            .env("DIR", self.sandbox.path("other"))
            .env("TFENV_REMOTE", self.mirror.url(Terraform))
            .env("PLANCHA_KEYRING", self.mirror.keyring());
        Ended::from(command.output().unwrap())
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
#[ignore = "needs mounts in a user namespace"]
fn full_disk_is_reported_and_leaves_no_partial_install() {
    let binary = noise();
    // Less than the archive, which has 4 MiB; and enough for it, but not for the binary as well.
    for size in ["1m", "6m"] {
        let case = Case::new();
        case.mirror.add(Terraform, V, &binary);
        let ended = case.shell(
            &["unshare", "-rm"],
            &format!(
                "mount -t tmpfs -o size={size} tmpfs \"$DIR\" && cd /
                \"$RUNNER\" install terraform@{V} --bin-dir \"$DIR/bin\"; echo \"exit $?\"
                find \"$DIR\" -type f ! -name .{V}.lock
                PATH=/none \"$RUNNER\" resolve 'terraform@< 2' --offline --bin-dir \"$DIR/bin\"; echo \"exit $?\"
                mount -o remount,size=64m \"$DIR\"
                \"$RUNNER\" install terraform@{V} --bin-dir \"$DIR/bin\" && sha256sum < \"$DIR/bin/Terraform/{V}/terraform\"",
            ),
        );
        let dir = case.sandbox.path("other/bin/Terraform");
        let reported =
            format!("ERROR the disk is full: no room for terraform {V} in {}", dir.display());
        assert!(ended.stderr.contains(&reported), "{size}: {ended:?}");
        assert!(ended.stderr.contains(". next: free some space"), "{size}: {ended:?}");
        let path = dir.join(V).join("terraform").display().to_string();
        let sum = format!("{}  -", Sha256::of(&binary));
        let lines: Vec<_> = ended.stdout.lines().collect();
        assert_eq!(lines, ["exit 1", "exit 8", &path, &sum], "{size}: {ended:?}");
    }
}

#[test]
fn shared_files_are_readable_by_all_regardless_of_umask() {
    let case = Case::new();
    let line =
        format!("umask 077; exec \"$RUNNER\" install terraform@{V} --bin-dir \"$DIR/a/bin\"");
    let ended = case.shell(&[], &line);
    let bin = case.sandbox.path("other/a/bin");
    let path = bin.join(format!("Terraform/{V}/terraform"));
    assert_eq!(ended.stdout, format!("{}\n", path.display()), "{ended:?}");
    for part in path.ancestors().take(5) {
        assert_eq!(mode(part), 0o755, "{}", part.display());
    }
    assert_eq!(mode(&bin.join(format!("Terraform/.{V}.lock"))), 0o644);
    let line = format!("umask 077; exec \"$RUNNER\" mirror terraform@{V} \"$DIR/mirror\"");
    assert_eq!(case.shell(&[], &line).code, 0);
    let mirror = case.sandbox.path("other/mirror");
    let release = mirror.join("terraform").join(V);
    for part in release.ancestors().take(3) {
        assert_eq!(mode(part), 0o755, "{}", part.display());
    }
    for file in std::fs::read_dir(release).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o644);
    }
    // A group that may write keeps that.
    let line =
        format!("umask 002; exec \"$RUNNER\" install terraform@{V} --bin-dir \"$DIR/group\"");
    assert_eq!(case.shell(&[], &line).code, 0);
    assert_eq!(mode(&case.sandbox.path("other/group/Terraform")), 0o775);
    // In the user's cache all of it is behind a door that is the user's alone.
    let line = format!("umask 022; exec \"$RUNNER\" install terraform@{V}");
    assert_eq!(case.shell(&[], &line).code, 0);
    assert_eq!(mode(&case.sandbox.path("cache/plancha")), 0o700);
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let case = Case::new();
    let mirror = case.sandbox.path("mirror");
    for words in [
        &["resolve", "terraform@1.9.8"][..],
        &["resolve", "terraform@1.9.8", "--json"],
        &["install", "terraform@1.9.8"],
        &["mirror", "terraform@1.9.8", mirror.to_str().unwrap()],
        &["version"],
    ] {
        let mut command = case.command(words);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = Ended::from(command.stdout(full).output().unwrap());
        assert_eq!(ended.code, 1, "{words:?}: {ended:?}");
        let reported = "ERROR stdout cannot be written: No space left on device";
        assert!(ended.stderr.contains(reported) && !ended.stderr.contains("panic"), "{ended:?}");
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let case = Case::new();
    for words in [&["--help"][..], &["plan", "--help"], &["help"], &["--version"]] {
        let mut command = case.command(words);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = Ended::from(command.stdout(full).output().unwrap());
        assert_eq!(ended.code, 1, "{words:?}: {ended:?}");
        let reported = "stdout cannot be written: No space left on device";
        assert!(ended.stderr.contains(reported) && ended.stderr.contains("next: "), "{ended:?}");
    }
}

#[test]
#[ignore = "needs script(1) of util-linux"]
fn download_progress_is_shown_only_on_a_terminal() {
    let case = Case::new();
    case.mirror.add(Terraform, V, &noise());
    let archive = case.mirror.archive_path(Terraform, V);
    case.mirror.fault(&archive, MirrorFault::Slow(Duration::from_millis(20)));
    let line =
        format!("script -qec '\"$RUNNER\" install terraform@{V}' \"$DIR/typescript\" > /dev/null");
    let ended = case.shell(&["TERM=xterm"], &line);
    assert_eq!(ended.code, 0, "{ended:?}");
    let seen = std::fs::read(case.sandbox.path("other/typescript")).unwrap();
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains(" of 4.22 MiB, ") && seen.contains(" left"), "{seen}");
    // The bar is gone at the end, and the path of the binary has its own line.
    let path = case.bin_dir().join("Terraform/1.9.8/terraform").display().to_string();
    assert!(seen.lines().any(|line| line.trim_end() == path), "{seen}");

    std::fs::remove_dir_all(case.bin_dir()).unwrap();
    let ended = case.install(&[&format!("terraform@{V}")]);
    assert!(ended.code == 0 && !ended.stderr.contains("MiB"), "{ended:?}");
}
