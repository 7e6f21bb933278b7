//! Many installs at once, and installs that are killed.

use std::path::Path;
use std::time::{Duration, Instant};

use datastore_api::Sha256;
use rand::Rng as _;
use support::release_mirror::script;
use support::{Ended, MirrorFault, MirroredTool};

use crate::release::resolve::Case;
use MirroredTool::{Terraform, Tofu};

const V: &str = "1.9.8";

#[test]
fn concurrent_installs_share_one_download() {
    let case = Case::new();
    case.mirror.fault(&case.archive(), MirrorFault::Slow(Duration::from_millis(300)));
    let children: Vec<_> = (0..6).map(|_| case.start(&["install", "terraform@1.9.8"])).collect();
    for child in children {
        let ended = Ended::from(child.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.stdout.ends_with("Terraform/1.9.8/terraform\n"), "{ended:?}");
    }
    assert_eq!(case.mirror.requests(&case.archive()), 1);
    assert_eq!(case.left(), Vec::<String>::new());
}

#[test]
fn twenty_processes_install_four_versions_at_once() {
    let case = Case::new();
    let versions = [
        (Terraform, "1.5.7", "Terraform/1.5.7/terraform"),
        (Terraform, "1.9.8", "Terraform/1.9.8/terraform"),
        (Terraform, "1.10.0", "Terraform/1.10.0/terraform"),
        (Tofu, "1.11.0", "OpenTofu/1.11.0/tofu"),
    ];
    for (tool, version, _) in versions {
        let archive = case.mirror.archive_path(tool, version);
        case.mirror.fault(&archive, MirrorFault::Slow(Duration::from_millis(200)));
    }
    let children: Vec<_> = (0..20)
        .map(|index| {
            let (tool, version, end) = versions[index % versions.len()];
            (case.start(&["install", &format!("{}@{version}", tool.program())]), end)
        })
        .collect();
    for (child, end) in children {
        let ended = Ended::from(child.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(ended.stdout, format!("{}\n", case.bin_dir().join(end).display()));
    }
    for (tool, version, end) in versions {
        assert_eq!(case.mirror.requests(&case.mirror.archive_path(tool, version)), 1, "{version}");
        assert_eq!(std::fs::read_to_string(case.bin_dir().join(end)).unwrap(), script(version));
    }
    assert_eq!(case.left(), Vec::<String>::new());
    // What all of them have remembered at once is whole.
    let memory = std::fs::read(case.sandbox.path("cache/plancha/binaries.json")).unwrap();
    assert_eq!(crate::json(&memory)["binaries"].as_object().unwrap().len(), versions.len());
}

/// What no inflater makes small: 4 MiB that look random.
pub(crate) fn noise() -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()[7]
    };
    [
        script(V).into_bytes(),
        b"exit\n".to_vec(),
        std::iter::repeat_with(next).take(4 << 20).collect(),
    ]
    .concat()
}

/// A mirror that gives a version so slowly that its receiver can be killed meanwhile, and the binary.
fn slowed() -> (Case, Vec<u8>) {
    let case = Case::new();
    let binary = noise();
    case.mirror.add(Terraform, V, &binary);
    case.mirror.fault(
        &case.mirror.archive_path(Terraform, V),
        MirrorFault::Slow(Duration::from_millis(1)),
    );
    (case, binary)
}

/// The binary is whole, or not there.
fn check(path: &Path, binary: &[u8]) {
    match std::fs::read(path) {
        Ok(bytes) => assert_eq!(Sha256::of(&bytes), Sha256::of(binary)),
        Err(_) => assert!(!path.exists()),
    }
}

#[test]
fn installer_killed_at_50_moments_leaves_nothing_that_blocks_the_next() {
    let (case, binary) = slowed();
    let path = case.bin_dir().join("Terraform/1.9.8/terraform");
    let started = Instant::now();
    case.installed(&["terraform@1.9.8"]);
    let whole = started.elapsed();
    let mut killed = 0;
    for _ in 0..50 {
        if path.exists() {
            std::fs::remove_file(&path).unwrap();
        }
        let mut child = case.start(&["install", "terraform@1.9.8"]);
        std::thread::sleep(whole.mul_f64(rand::thread_rng().gen_range(0.0..1.1)));
        child.kill().unwrap();
        killed += usize::from(!child.wait().unwrap().success());
        check(&path, &binary);
    }
    assert!(killed > 20, "{killed} of 50 were killed before their end");
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap_or_default();
    assert_eq!(case.installed(&["terraform@1.9.8"]), path);
    check(&path, &binary);
    assert!(path.exists());
    assert_eq!(case.left(), Vec::<String>::new());
}

#[test]
fn mirror_fill_killed_midway_lists_only_complete_versions() {
    let (case, binary) = slowed();
    let dir = case.sandbox.path("mirror");
    let words = ["mirror", "terraform@1.9.8", dir.to_str().unwrap()];
    for moment in 0..10 {
        let mut child = case.start(&words);
        std::thread::sleep(Duration::from_millis(moment * 30));
        child.kill().unwrap();
        child.wait().unwrap();
        if let Ok(index) = std::fs::read(dir.join("terraform/index.json")) {
            assert!(crate::json(&index)["versions"][V]["builds"][0].is_object());
        }
    }
    let ended = case.run(&words);
    assert_eq!(ended.code, 0, "{ended:?}");
    let other = Case::new();
    let url = format!("file://{}", dir.display());
    let keyring = case.mirror.keyring();
    let mut command = other.command(&["install", "terraform@latest", "--releases-url", &url]);
    let ended = Ended::from(command.env("PLANCHA_KEYRING", keyring).output().unwrap());
    check(Path::new(ended.stdout.trim_end()), &binary);
    let names = std::fs::read_dir(dir.join("terraform/1.9.8")).unwrap();
    assert_eq!(names.count(), 3, "nothing half is left");
}
