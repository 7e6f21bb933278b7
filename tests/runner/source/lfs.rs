//! Git LFS files: with real git, and stand-ins for git-lfs.

use support::Sandbox;

use crate::RUNNER;
use crate::source::submodules::Repositories;

const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0000000000000000000000000000000000000000000000000000000000000000\nsize 12\n";

#[test]
fn lfs_pointer_that_the_tool_reads_is_refused() {
    let sandbox = Sandbox::new(RUNNER);
    let work = sandbox.work();
    crate::source::checkout::git(&work, &["init", "--quiet"]);
    for (name, main, refused) in [
        (
            "a.json",
            "output \"x\" {\n  value = file(\"a.json\")\n}\n",
            Some("main.tf:2 reads `a.json`"),
        ),
        (
            "d/a.json",
            "output \"x\" {\n  value = fileset(\"d\", \"*.json\")\n}\n",
            Some("main.tf:2 reads `d/a.json`"),
        ),
        ("x.auto.tfvars", "", Some("the tool reads `x.auto.tfvars`")),
        ("more.tf", "", Some("the tool reads `more.tf`")),
        ("image.png", "output \"x\" {\n  value = 1\n}\n", None),
    ] {
        sandbox.write("main.tf", main);
        sandbox.write(name, POINTER);
        let ended = sandbox.run(&["plan"]);
        match refused {
            None => assert_eq!(ended.code, 0, "{name}: {}", ended.stderr),
            Some(text) => {
                assert_eq!(ended.code, 8, "{name}: {}", ended.stderr);
                assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
                let line = format!("lfs pull --include {name}");
                assert!(ended.stderr.contains(&line), "{line}: {}", ended.stderr);
            }
        }
        std::fs::remove_file(work.join(name)).unwrap();
    }
}

/// A stand-in for git-lfs, which writes the file that it is to pull.
#[test]
fn lfs_files_of_a_git_url_are_pulled() {
    let repositories = Repositories::new();
    repositories.live("output \"x\" {\n  value = file(\"a.txt\")\n}\n");
    std::fs::write(repositories.infra.join("live/a.txt"), POINTER).unwrap();
    repositories.commit(&repositories.infra);
    let url = repositories.url();
    let plan = ["plan", &url, "--path", "live"];
    let ended = repositories.run(&plan);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let text = "live/main.tf:2 reads `live/a.txt`, but that is a git LFS pointer";
    assert!(ended.stderr.contains(text), "{}", ended.stderr);

    let script = "#!/bin/sh\ncase $1 in pull) git config remote.origin.url > \"$3\";; esac\n";
    repositories.sandbox.script("git-lfs", script);
    let ended = repositories.run(&plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains(&url), "{}", ended.stdout);
}

#[test]
fn lfs_files_are_neither_pulled_nor_required_with_no_submodules() {
    let repositories = Repositories::new();
    repositories.live("output \"x\" {\n  value = file(\"a.txt\")\n}\n");
    std::fs::write(repositories.infra.join("live/a.txt"), POINTER).unwrap();
    repositories.commit(&repositories.infra);
    let pulled = repositories.sandbox.path("pulled");
    let script = format!("#!/bin/sh\ncase $1 in pull) touch {};; esac\n", pulled.display());
    repositories.sandbox.script("git-lfs", &script);
    repositories.clone_without_submodules();
    let url = repositories.url();
    for source in [&["clone/live"][..], &[&url, "--path", "live"]] {
        let plan = [&["plan"], source].concat();
        let ended = repositories.run(&plan);
        assert_eq!(ended.code, 8, "{}", ended.stderr);
        assert!(ended.stderr.contains("--no-submodules plans without it"), "{}", ended.stderr);
        // Only for a URL, and in vain.
        assert_eq!(std::fs::remove_file(&pulled).is_ok(), source.len() > 1);

        let ended = repositories.run(&[&plan[..], &["--no-submodules"]].concat());
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.contains("version https://git-lfs"), "{}", ended.stdout);
        assert!(!pulled.exists(), "{source:?}");
    }
}
