//! Archives as the source of a run.

#![expect(clippy::disallowed_types, reason = "tests make archives with tar and git themselves")]

use std::process::Command;

use support::Sandbox;

use crate::RUNNER;

/// A sandbox with an archive `infra.tar.zst` of a module.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let code = sandbox.path("code");
    std::fs::create_dir_all(code.join("live/vpc")).unwrap();
    std::fs::write(
        code.join("live/vpc/main.tf"),
        "output \"x\" { value = \"from the archive\" }\n",
    )
    .unwrap();
    let made = Command::new("tar")
        .args(["--zstd", "-cf"])
        .arg(sandbox.work().join("infra.tar.zst"))
        .arg("-C")
        .args([code.as_path(), "live".as_ref()])
        .status()
        .unwrap();
    assert!(made.success());
    sandbox
}

#[test]
fn archive_is_planned_in_a_private_directory() {
    let sandbox = sandbox();
    let ended = sandbox.run(&["plan", "infra.tar.zst", "--path", "live/vpc"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(sandbox.is_clean(), "the unpacked files are gone");
}
