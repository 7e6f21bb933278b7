//! Plans of read-only directories, such as mounted `ConfigMaps`.

use support::{Sandbox, TestDatastore};

use crate::RUNNER;
use crate::source::checkout::run_read_only_at;

#[tokio::test(flavor = "multi_thread")]
async fn plan_of_a_read_only_directory_is_applied_only_with_the_same_files() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let [from, to] = ["code", "mounted"].map(|name| sandbox.path(name));
    for dir in [from.join("..1"), from.join("m"), to.clone()] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(from.join("main.tf"), "").unwrap();
    std::fs::write(from.join("..1/script.sh"), "true").unwrap();
    std::os::unix::fs::symlink("..1", from.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/script.sh", from.join("script.sh")).unwrap();
    let run = |action: &str, name: &str| {
        let args = ["--name", "c", "--run", name, "--work-dir", "kept", "--datastore"];
        let args = [&args[..], &[datastore.url.as_str()]].concat();
        run_read_only_at(&sandbox, action, &from, &to, &args)
    };
    let planned = run("plan", "p");
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    std::fs::write(sandbox.work().join("kept/made.zip"), "by the tool").unwrap();
    // An update of the mount changes the link.
    std::fs::create_dir(from.join("..2")).unwrap();
    std::fs::remove_file(from.join("..data")).unwrap();
    std::os::unix::fs::symlink("..2", from.join("..data")).unwrap();
    std::fs::write(from.join("..2/script.sh"), "echo EVIL").unwrap();
    std::fs::remove_file(sandbox.path("calls")).unwrap();
    let refused = run("apply", "a");
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("the source has changed since the plan"), "{}", refused.stderr);
    assert!(!sandbox.path("calls").exists());
    std::fs::write(from.join("..2/script.sh"), "true").unwrap();
    let applied = run("apply", "b");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}
