//! Git LFS files: with real git, and stand-ins for git-lfs.

use datastore_api::Sha256;
use support::{Ended, Sandbox};

use crate::source::submodules::Repositories;
use crate::{RUNNER, json};

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

/// A stand-in for git-lfs, whose objects are files in DIR. As that of the real one, its filter fails in a checkout without a remote, or of a
/// bundle.
const GIT_LFS: &str = r#"#!/bin/sh
case $1 in
  install)
    git config filter.lfs.clean "git-lfs clean"
    git config filter.lfs.smudge "git-lfs smudge"
    git config filter.lfs.required true;;
  clean)
    text=$(cat)
    case $text in "version https://git-lfs"*) printf '%s\n' "$text"; exit;; esac
    id=$(printf %s "$text" | sha256sum | cut -d' ' -f1)
    printf %s "$text" > "DIR/$id"
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %s\n' "$id" "${#text}";;
  smudge)
    case $(git config remote.origin.url) in
      ""|*.bundle) echo 'batch request: missing protocol: ""' >&2; exit 2;;
    esac
    pointer=$(cat)
    object=DIR/$(printf '%s\n' "$pointer" | sed -n 's/^oid sha256://p')
    [ ! -e DIR/offline ] || { echo 'dial tcp 192.0.2.1:443: connect: connection refused' >&2; exit 2; }
    if [ ! -e "$object" ] && [ "$(git config lfs.skipdownloaderrors)" = true ]; then
      printf '%s\n' "$pointer"; exit
    fi
    cat "$object";;
  pull)
    cp "DIR/$(sed -n 's/^oid sha256://p' "$3")" "$3"
    echo "$3" | git update-index -q --refresh --stdin;;
esac
"#;

/// `infra` with the LFS files `live/*.txt`. The configuration `gitconfig` has the filter, as after `git lfs install`, and `plain`
/// has none.
struct LargeFiles(Repositories);

impl LargeFiles {
    fn new() -> Self {
        let repositories = Repositories::new();
        let sandbox = &repositories.sandbox;
        let dir = sandbox.path("lfs");
        std::fs::create_dir(&dir).unwrap();
        sandbox.script("git-lfs", &GIT_LFS.replace("DIR", &dir.display().to_string()));
        let config = std::fs::read_to_string(sandbox.path("gitconfig")).unwrap();
        std::fs::write(sandbox.path("plain"), &config).unwrap();
        let program = sandbox.path("bin/git-lfs").display().to_string();
        let filter = format!(
            "[filter \"lfs\"]\n\tclean = {program} clean\n\tsmudge = {program} smudge\n\trequired = true\n"
        );
        std::fs::write(sandbox.path("gitconfig"), config + &filter).unwrap();
        let attributes = repositories.infra.join(".gitattributes");
        std::fs::write(attributes, "*.txt filter=lfs -text\n").unwrap();
        Self(repositories)
    }

    /// Commits these LFS files, and a configuration with this output.
    fn commit(&self, files: &[(&str, &str)], output: &str) -> String {
        let infra = &self.0.infra;
        for (name, text) in files {
            std::fs::write(infra.join("live").join(name), text).unwrap();
        }
        self.0.live(&format!("output \"x\" {{\n  value = {output}\n}}\n"));
        self.0.git(infra, &["rev-parse", "HEAD"])
    }

    /// Plans the module `live` with a configuration of git.
    fn plan(&self, config: &str, source: &str, args: &[&str]) -> Ended {
        let sandbox = &self.0.sandbox;
        let plan = ["plan", source, "--path", "live", "--result", "r.json"];
        let mut command = sandbox.command(&[&plan, args].concat());
        command.env("GIT_CONFIG_GLOBAL", sandbox.path(config)).output().unwrap().into()
    }
}

/// Without the filter in the user's configuration, it is in that of the checkout from the first pull on.
#[test]
fn lfs_files_follow_a_git_url_whoever_has_set_up_the_filter() {
    let files = LargeFiles::new();
    let LargeFiles(repositories) = &files;
    let url = repositories.url();
    for (a, other) in [("one", "1"), ("one", "2"), ("two", "3"), ("one", "4")] {
        let head = files.commit(&[("a.txt", a), ("unneeded.txt", other)], "file(\"a.txt\")");
        for config in ["gitconfig", "plain"] {
            let kept = format!("kept-{config}");
            let ended = files.plan(config, &url, &["--work-dir", &kept]);
            assert_eq!(ended.code, 0, "{config}, {other}: {}", ended.stderr);
            let planned = format!("+ x = \"{a}\"");
            assert!(ended.stdout.contains(&planned), "{config}, {other}: {}", ended.stdout);
            assert!(!ended.stderr.contains("LFS"), "{config}, {other}: {}", ended.stderr);
            let file = repositories.sandbox.read(&format!("{kept}/live/unneeded.txt"));
            assert_eq!(file == other, config == "gitconfig" || other != "1", "{config}: {file}");
            let report = json(repositories.sandbox.read("r.json").as_bytes());
            assert_eq!(report["revision"], *head, "{config}, {other}: it is not dirty");
        }
    }
}

#[test]
fn lfs_files_that_are_not_needed_stop_no_checkout_of_a_url_or_bundle() {
    let files = LargeFiles::new();
    let LargeFiles(repositories) = &files;
    let infra = &repositories.infra;
    let (url, bundle) = (repositories.url(), repositories.sandbox.path("all.bundle"));
    let bundle = bundle.display().to_string();
    files.commit(&[("a.txt", "one")], "1");
    repositories.git(infra, &["bundle", "create", "--quiet", &bundle, "--all"]);
    let warning =
        "git LFS cannot fetch files of this checkout, which has pointers in their place: ";
    let planned = |source: &str, is_known: bool| {
        let ended = files.plan("gitconfig", source, &[]);
        assert_eq!(ended.code, 0, "{source}: {}", ended.stderr);
        assert_eq!(!ended.stderr.contains(warning), is_known, "{source}: {}", ended.stderr);
    };
    planned(&url, true);
    planned(&bundle, false);
    let lose = |text: &str| {
        let object = Sha256::of(text.as_bytes()).to_string();
        std::fs::remove_file(repositories.sandbox.path("lfs").join(object)).unwrap();
    };
    lose("one");
    planned(&url, false);
    files.commit(&[("a.txt", "lost"), ("b.txt", "two"), ("c.txt", "three")], "file(\"b.txt\")");
    lose("lost");
    let ended = files.plan("gitconfig", &url, &["--work-dir", "kept"]);
    assert_eq!(ended.code, 0, "only the other one is lost: {}", ended.stderr);
    assert!(ended.stdout.contains("\"two\""), "{}", ended.stdout);
    let other = repositories.sandbox.read("kept/live/c.txt");
    assert_eq!(other, "three", "a provider may read it by a name that only it knows");
    files.commit(&[("a.txt", "lost, too")], "file(\"a.txt\")");
    lose("lost, too");
    let refused = files.plan("gitconfig", &url, &[]);
    assert_eq!(refused.code, 8, "{}", refused.stderr);
}

#[test]
fn lfs_server_that_does_not_answer_leaves_no_pointers() {
    let files = LargeFiles::new();
    files.commit(&[("a.txt", "one")], "1");
    std::fs::write(files.0.sandbox.path("lfs/offline"), "").unwrap();
    let ended = files.plan("gitconfig", &files.0.url(), &[]);
    assert_eq!(ended.code, 6, "{}", ended.stderr);
    assert!(ended.stderr.contains("GIT_LFS_SKIP_SMUDGE=1"), "{}", ended.stderr);
}
