//! `tools prune` beside links, and beside other processes.

use support::{Ended, MirroredTool};

use crate::release::concurrent_installs::noise;
use crate::release::resolve::Case;
use MirroredTool::Terraform;

#[test]
fn link_to_a_version_elsewhere_is_pruned_and_not_what_it_leads_to() {
    let case = Case::new();
    let (tools, elsewhere) = (case.bin_dir().join("Terraform"), case.sandbox.path("opt"));
    for dir in [&tools, &elsewhere] {
        std::fs::create_dir_all(dir).unwrap();
    }
    let binary = elsewhere.join("terraform");
    support::executable(&binary, "#!/bin/sh\n");
    std::os::unix::fs::symlink(&elsewhere, tools.join("1.0.0")).unwrap();
    let bin_dir = case.bin_dir();
    let prune = ["tools", "prune", "--keep", "0", "--bin-dir", bin_dir.to_str().unwrap()];
    let ended = case.run(&prune);
    assert_eq!((ended.code, &*ended.stdout), (0, "terraform 1.0.0 removed\n"), "{ended:?}");
    assert!(binary.exists() && !tools.join("1.0.0").is_symlink());
}

#[test]
fn installs_and_prunes_at_once_all_succeed() {
    let case = Case::new();
    // Large enough that its digest takes a while.
    case.mirror.add(Terraform, "1.9.8", &noise());
    let bin_dir = case.bin_dir();
    let bin_dir = ["--bin-dir", bin_dir.to_str().unwrap()];
    let install = [&["install", "terraform@1.9.8"], &bin_dir[..]].concat();
    let prune = [&["tools", "prune", "--keep", "0"], &bin_dir[..]].concat();
    let repeat = |words: &[&str], times| {
        for _ in 0..times {
            let ended: Ended = case.run(words);
            assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| repeat(&install, 12));
            scope.spawn(|| repeat(&prune, 24));
        }
    });
}

#[test]
fn version_that_is_pruned_while_an_install_finds_it_is_installed_again() {
    let case = Case::new();
    let binary = case.installed(&["terraform@1.9.8"]);
    let dir = binary.parent().unwrap();
    let lock_file = dir.with_file_name(".1.9.8.lock");
    let lock = std::fs::File::open(&lock_file).unwrap();
    lock.lock().unwrap();
    let install = case.start(&["install", "terraform@1.9.8"]);
    let files = format!("/proc/{}/fd", install.id());
    let has_lock_file = || {
        let links = std::fs::read_dir(&files).into_iter().flatten().flatten();
        links.filter_map(|link| std::fs::read_link(link.path()).ok()).any(|file| file == lock_file)
    };
    support::eventually("it waits for the lock", has_lock_file);
    std::fs::remove_dir_all(dir).unwrap();
    drop(lock);
    let ended = Ended::from(install.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(binary.exists(), "{ended:?}");
}
