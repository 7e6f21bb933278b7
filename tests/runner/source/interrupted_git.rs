//! What an interrupted git leaves in a work directory that is kept.

use support::Sandbox;

use crate::RUNNER;
use crate::source::checkout::{Repository, commit_all, repository};

/// What a git that is killed leaves: files that its index does not name.
#[test]
fn files_of_an_interrupted_checkout_are_removed_from_a_kept_work_directory() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("[ $STEP != plan ] || ls -A");
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let plan = ["plan", &url, "--path", "live/vpc", "--work-dir", "kept"];
    let real = support::on_path("git").unwrap();
    let real = real.display();
    let interrupted = sandbox.path("interrupted");
    // Each fetch deletes the commits that no reference names.
    let script = format!(
        "#!/bin/sh\n[ $1 != fetch ] || {{ {real} reflog expire --expire=now --all && {real} gc --quiet --prune=now; }}\n\
         [ $1 = checkout ] && [ -e {interrupted:?} ] || exec {real} \"$@\"\n\
         mkdir saved && mv .git/HEAD .git/index saved\n\
         cp saved/* .git && {real} \"$@\" && mv saved/* .git && rmdir saved\n\
         exit 1\n"
    );
    sandbox.script("git", &script);
    assert_eq!(sandbox.run(&plan).code, 0);
    for state in [None, Some("kept/live/vpc/terraform.tfstate")] {
        if let Some(state) = state {
            sandbox.write(state, "of the apply");
        }
        std::fs::write(dir.join("live/vpc/more.tf"), "").unwrap();
        commit_all(&dir);
        std::fs::write(&interrupted, "").unwrap();
        assert_ne!(sandbox.run(&plan).code, 0);
        assert!(sandbox.work().join("kept/live/vpc/more.tf").exists());
        std::fs::remove_file(&interrupted).unwrap();
        std::fs::remove_file(dir.join("live/vpc/more.tf")).unwrap();
        commit_all(&dir);
        let ended = sandbox.run(&plan);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains("main.tf"), "{}", ended.stdout);
        assert!(!ended.stdout.contains("more.tf"), "{}", ended.stdout);
        assert!(ended.stderr.contains("an interrupted checkout"), "{}", ended.stderr);
        let ended = sandbox.run(&plan);
        assert!(!ended.stderr.contains("an interrupted checkout"), "{}", ended.stderr);
        if let Some(state) = state {
            assert_eq!(sandbox.read(state), "of the apply");
        }
    }
}

#[test]
fn locks_of_a_killed_git_are_removed_from_a_kept_work_directory() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let plan = ["plan", &url, "--path", "live/vpc", "--work-dir", "kept"];
    let real = support::on_path("git").unwrap();
    let killed = sandbox.path("killed");
    // Git holds the first of the locks while it downloads a shallow commit.
    let script = format!(
        "#!/bin/sh\n[ $1 = fetch ] && [ -e {killed:?} ] || exec {} \"$@\"\n\
         mkdir -p .git/modules/m && touch .git/shallow.lock .git/index.lock .git/modules/m/shallow.lock\n\
         kill -9 $$\n",
        real.display()
    );
    sandbox.script("git", &script);
    assert_eq!(sandbox.run(&plan).code, 0);
    std::fs::write(&killed, "").unwrap();
    std::fs::write(dir.join("live/vpc/more.tf"), "").unwrap();
    commit_all(&dir);
    assert_ne!(sandbox.run(&plan).code, 0);
    std::fs::remove_file(&killed).unwrap();
    let ended = sandbox.run(&plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("/.git/shallow.lock of a git that was killed"),
        "{}",
        ended.stderr
    );
    assert!(!sandbox.work().join("kept/.git/modules/m/shallow.lock").exists());
}

/// If the guard is killed as well, nothing stops the git of a killed runner.
#[test]
fn git_of_a_killed_run_is_waited_for_in_a_kept_work_directory() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let url = format!("file://{}", dir.display());
    let plan = ["plan", &url, "--path", "live/vpc", "--work-dir", "kept"];
    let real = support::on_path("git").unwrap();
    let [kills, wait, fetches] = ["kills", "wait", "fetches"].map(|name| sandbox.path(name));
    let script = format!(
        "#!/bin/sh\n[ $1 != fetch ] || echo x >> {fetches:?}\n\
         if [ $1 = fetch ] && rm {kills:?} 2>/dev/null; then\n\
         for child in $(cat /proc/$PPID/task/*/children); do [ $child = $$ ] || kill -9 $child; done\n\
         kill -9 $PPID; touch .git/shallow.lock\n\
         while [ -e {wait:?} ]; do sleep 0.05; done; rm .git/shallow.lock\nfi\nexec {} \"$@\"\n",
        real.display()
    );
    sandbox.script("git", &script);
    std::fs::write(&kills, "").unwrap();
    std::fs::write(&wait, "").unwrap();
    assert_eq!(sandbox.run(&plan).code, -1);
    let next = sandbox.start(None, &plan);
    let count = || std::fs::read_to_string(&fetches).unwrap().lines().count();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(count(), 1, "the next run waits");
    assert!(sandbox.work().join("kept/.git/shallow.lock").exists());
    std::fs::remove_file(&wait).unwrap();
    let ended = next.wait();
    assert_eq!((ended.code, count()), (0, 2), "{}", ended.stderr);
    let says = "the git of a killed run still works in kept: waiting for it";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
}
