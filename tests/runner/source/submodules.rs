//! Submodules: with real git, over `file://`, which git does not allow for them unless its configuration does.

#![expect(clippy::disallowed_types, reason = "tests make repositories with git itself")]

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Ended, Sandbox};

use crate::{RUNNER, json};

/// `infra` with the module `modules/net` and the files `data` as submodules, one of them by a relative URL;
/// `net` has a submodule of its own, and `infra` a third one that nothing needs.
pub(crate) struct Repositories {
    pub(super) sandbox: Sandbox,
    pub(super) infra: PathBuf,
}

const LIVE: &str = "module \"net\" {\n  source = \"../modules/net\"\n}\noutput \"x\" {\n  value = module.net.x\n}\n";

impl Repositories {
    pub(super) fn new() -> Self {
        let sandbox = Sandbox::new(RUNNER);
        std::fs::write(sandbox.path("gitconfig"), "[protocol \"file\"]\n\tallow = always\n")
            .unwrap();
        let infra = sandbox.path("repositories/infra");
        let repositories = Self { sandbox, infra };
        let of = |name: &str| repositories.sandbox.path("repositories").join(name);
        let inner = "output \"x\" {\n  value = file(\"${path.module}/x.txt\")\n}\n";
        repositories.repository("inner", &[("main.tf", inner), ("x.txt", "from inner")]);
        let net = "module \"inner\" {\n  source = \"./inner\"\n}\noutput \"x\" {\n  value = module.inner.x\n}\n";
        repositories.repository("net", &[("main.tf", net)]);
        repositories.git(&of("net"), &["submodule", "--quiet", "add", "../inner", "inner"]);
        repositories.commit(&of("net"));
        repositories.repository("data", &[("a.json", "{}")]);
        repositories.repository("unneeded", &[("README", "")]);
        repositories.repository("infra", &[("live/main.tf", LIVE)]);
        let infra = &repositories.infra;
        let net = format!("file://{}", of("net").display());
        repositories.git(infra, &["submodule", "--quiet", "add", &net, "modules/net"]);
        repositories.git(infra, &["submodule", "--quiet", "add", "../data", "data"]);
        repositories.git(infra, &["submodule", "--quiet", "add", "../unneeded", "unneeded"]);
        repositories.commit(infra);
        repositories
    }

    fn repository(&self, name: &str, files: &[(&str, &str)]) {
        let dir = self.sandbox.path("repositories").join(name);
        for (file, text) in files {
            let path = dir.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        self.git(&dir, &["init", "--quiet"]);
        self.commit(&dir);
    }

    pub(super) fn commit(&self, dir: &Path) {
        self.git(dir, &["add", "."]);
        self.git(dir, &["commit", "--quiet", "-m", "all"]);
    }

    pub(super) fn git(&self, dir: &Path, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]);
        command.args(["-c", "init.defaultBranch=main"]).args(args).current_dir(dir);
        let output = command.env("GIT_CONFIG_GLOBAL", self.sandbox.path("gitconfig")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(super) fn url(&self) -> String {
        format!("file://{}", self.infra.display())
    }

    pub(super) fn run(&self, args: &[&str]) -> Ended {
        let mut command = self.sandbox.command(args);
        command.env("GIT_CONFIG_GLOBAL", self.sandbox.path("gitconfig"));
        command.output().unwrap().into()
    }

    /// A clone without submodules, in the working directory.
    pub(super) fn clone_without_submodules(&self) {
        self.git(&self.sandbox.work(), &["clone", "--quiet", &self.url(), "clone"]);
    }

    /// Writes the submodule `modules/net`, with a state if there is to be one.
    pub(super) fn net(&self, text: &str, state: Option<&str>) {
        let net = self.sandbox.path("repositories/net");
        std::fs::write(net.join("main.tf"), text).unwrap();
        if let Some(state) = state {
            std::fs::write(net.join("terraform.tfstate"), state).unwrap();
        }
        self.commit(&net);
        let update = ["submodule", "--quiet", "update", "--init", "--remote", "modules/net"];
        self.git(&self.infra, &update);
        self.commit(&self.infra);
    }

    /// Writes the configuration that is planned.
    pub(super) fn live(&self, text: &str) {
        std::fs::write(self.infra.join("live/main.tf"), text).unwrap();
        self.commit(&self.infra);
    }
}

#[test]
fn submodules_of_a_git_url_are_fetched_with_their_own() {
    let repositories = Repositories::new();
    let url = repositories.url();
    let plan = ["plan", &url, "--path", "live", "--work-dir", "kept"];
    let ended = repositories.run(&plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("+ x = \"from inner\""), "{}", ended.stdout);

    // A kept directory follows a submodule to its new commit and to its new URL.
    let inner = repositories.sandbox.path("repositories/inner");
    std::fs::write(inner.join("x.txt"), "moved").unwrap();
    repositories.commit(&inner);
    let moved = repositories.sandbox.path("repositories/net-moved");
    std::fs::rename(repositories.sandbox.path("repositories/net"), &moved).unwrap();
    repositories.git(&moved, &["submodule", "--quiet", "update", "--init", "--remote", "inner"]);
    repositories.commit(&moved);
    let infra = &repositories.infra;
    let url = format!("file://{}", moved.display());
    repositories.git(infra, &["submodule", "--quiet", "set-url", "modules/net", &url]);
    repositories.git(infra, &["submodule", "--quiet", "update", "--remote", "modules/net"]);
    repositories.commit(infra);
    let ended = repositories.run(&plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("+ x = \"moved\""), "{}", ended.stdout);
}

pub(super) const NET: &str = "kept/modules/net";

/// A git whose update of `modules/net` is killed before it records anything, where the file `killed` exists: it leaves
/// files, and the lock of the index.
fn git_that_is_killed(sandbox: &Sandbox) {
    let real = support::on_path("git").unwrap().display().to_string();
    let killed = sandbox.path("killed").display().to_string();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in submodule*update*modules/net) ;; *) exec {real} \"$@\" ;; esac\n\
         [ -e {killed} ] || exec {real} \"$@\"\n\
         dir=.git/modules/modules/net\nmkdir saved && cp $dir/HEAD $dir/index saved 2>/dev/null\n\
         {real} \"$@\" || exit\nrm $dir/index && echo ref: refs/heads/main > $dir/HEAD\n\
         mv saved/* $dir 2>/dev/null\nrmdir saved && touch $dir/index.lock\nexit 1\n"
    );
    sandbox.script("git", &script);
}

/// Also in the first run, and beside a state, where git would leave changed and missing files as they are.
#[test]
fn files_of_an_interrupted_checkout_are_removed_from_a_submodule() {
    let repositories = Repositories::new();
    let (sandbox, net) = (&repositories.sandbox, repositories.sandbox.path("repositories/net"));
    let url = repositories.url();
    let plan = ["plan", &url, "--path", "live", "--work-dir", "kept"];
    git_that_is_killed(sandbox);
    let good = "output \"x\" {\n  value = 1\n}\n";
    for state in [None, None, Some("kept/modules/net/terraform.tfstate")] {
        if let Some(state) = state {
            sandbox.write(state, "of the apply");
        }
        std::fs::create_dir_all(net.join("deep")).unwrap();
        for file in ["more.tf", "deep/main.tf"] {
            std::fs::write(net.join(file), "output \"more\" {\n  value = 1\n}\n").unwrap();
        }
        repositories.net("output \"x\" {\n  value = 2\n}\n", None);
        std::fs::write(sandbox.path("killed"), "").unwrap();
        assert_ne!(repositories.run(&plan).code, 0);
        assert!(sandbox.work().join(NET).join("more.tf").exists());
        std::fs::remove_file(sandbox.path("killed")).unwrap();
        std::fs::remove_file(net.join("more.tf")).unwrap();
        std::fs::remove_dir_all(net.join("deep")).unwrap();
        repositories.net(good, None);

        let ended = repositories.run(&plan);

        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stderr.contains("an interrupted checkout"), "{}", ended.stderr);
        for file in ["more.tf", "deep"] {
            assert!(!sandbox.work().join(NET).join(file).exists(), "{file}");
        }
        assert_eq!(sandbox.read(&format!("{NET}/main.tf")), good);
        assert_eq!(
            sandbox.read(&format!("{NET}/.gitmodules")),
            std::fs::read_to_string(net.join(".gitmodules")).unwrap()
        );
        let ended = repositories.run(&plan);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert!(!ended.stderr.contains("an interrupted checkout"), "{}", ended.stderr);
        if let Some(state) = state {
            assert_eq!(sandbox.read(state), "of the apply");
        }
    }
}

/// A clone that was killed has a repository without a commit, and locks.
#[test]
fn interrupted_clone_of_a_submodule_is_repeated() {
    let repositories = Repositories::new();
    let url = repositories.url();
    let plan = ["plan", &url, "--path", "live", "--work-dir", "kept"];
    assert_eq!(repositories.run(&plan).code, 0);
    let sandbox = &repositories.sandbox;
    let git = sandbox.work().join("kept/.git");
    let commit = repositories.git(&repositories.infra, &["rev-parse", "HEAD"]);
    std::os::unix::fs::symlink(commit, git.join("plancha-incomplete")).unwrap();
    for file in ["shallow.lock", "modules/modules/net/shallow.lock", "modules/data/index.lock"] {
        std::fs::write(git.join(file), "").unwrap();
    }
    std::fs::remove_dir_all(git.join("modules/modules/net/refs")).unwrap();
    for file in [".git", "main.tf", ".gitmodules"] {
        std::fs::remove_file(sandbox.work().join(NET).join(file)).unwrap();
    }
    std::fs::remove_dir_all(sandbox.work().join(NET).join("inner")).unwrap();

    let ended = repositories.run(&plan);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("+ x = \"from inner\""), "{}", ended.stdout);
}

/// Git leaves the files of a submodule that a commit does not have, also where the commit has a directory in its place.
#[test]
fn files_of_a_removed_submodule_are_removed() {
    let repositories = Repositories::new();
    let (url, infra) = (repositories.url(), &repositories.infra);
    let plan = ["plan", &url, "--path", "live", "--work-dir", "kept"];
    assert_eq!(repositories.run(&plan).code, 0);
    for path in ["modules/net", "data", "unneeded"] {
        repositories.git(infra, &["submodule", "--quiet", "deinit", "--force", path]);
        repositories.git(infra, &["rm", "--quiet", path]);
    }
    let module = infra.join("modules/net");
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(module.join("outputs.tf"), "output \"x\" {\n  value = 1\n}\n").unwrap();
    repositories.commit(infra);

    let ended = repositories.run(&plan);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let kept = repositories.sandbox.work().join("kept");
    let left = std::fs::read_dir(kept.join("modules/net")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(left, ["outputs.tf"]);
    assert!(!kept.join("data").exists() && !kept.join("unneeded").exists());
}

/// What git itself does not allow is not fetched, and what is then missing is not planned.
#[test]
fn required_submodule_that_git_may_not_fetch_is_refused() {
    let repositories = Repositories::new();
    let url = repositories.url();
    let plan = ["plan", &url, "--path", "live"];
    let ended = repositories.sandbox.run(&plan);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for text in [
        "live/main.tf:2 needs `modules/net`, but the submodule `modules/net` is empty",
        "transport 'file' not allowed",
        "--no-submodules",
    ] {
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
    let ended = repositories.sandbox.run(&[&plan[..], &["--no-submodules"]].concat());
    assert!(ended.stderr.contains("terraform plan failed"), "{}", ended.stderr);

    repositories.live("output \"x\" {\n  value = 1\n}\n");
    let ended = repositories.sandbox.run(&plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("modules/net is not fetched"), "{}", ended.stderr);
}

#[test]
fn unreachable_submodule_is_a_network_error() {
    let repositories = Repositories::new();
    let infra = &repositories.infra;
    let url = "http://127.0.0.1:9/net.git";
    repositories.git(infra, &["submodule", "--quiet", "set-url", "modules/net", url]);
    repositories.commit(infra);
    let ended = repositories.run(&["plan", &repositories.url(), "--path", "live"]);
    assert_eq!(ended.code, 6, "{}", ended.stderr);
    assert!(ended.stderr.contains("the submodule `modules/net`"), "{}", ended.stderr);
}

/// In a kept work directory the files of an earlier run would be planned.
#[test]
fn required_submodule_that_cannot_be_updated_is_refused() {
    let repositories = Repositories::new();
    let (url, infra) = (repositories.url(), &repositories.infra);
    let plan = ["plan", &url, "--path", "live", "--work-dir", "kept"];
    assert_eq!(repositories.run(&plan).code, 0);
    repositories.net("output \"x\" {\n  value = 1\n}\n", None);
    let missing = "file:///nonexistent/net.git";
    repositories.git(infra, &["submodule", "--quiet", "set-url", "modules/net", missing]);
    repositories.commit(infra);

    let ended = repositories.run(&plan);

    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for text in ["live/main.tf:2 needs the submodule", "could not be brought up to date"] {
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    }
    repositories.live("output \"x\" {\n  value = 1\n}\n");
    let ended = repositories.run(&plan);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn state_in_a_submodule_is_not_replaced() {
    let repositories = Repositories::new();
    let url = repositories.url();
    let plan = ["plan", &url, "--path", "live", "--work-dir", "kept"];
    let net = "output \"x\" {\n  value = 1\n}\n";
    repositories.net(net, Some("committed"));
    assert_eq!(repositories.run(&plan).code, 0);
    repositories.sandbox.write("kept/modules/net/terraform.tfstate", "of an apply");
    repositories.net(net, Some("committed later"));

    let ended = repositories.run(&plan);

    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("could not be brought up to date"), "{}", ended.stderr);
    assert_eq!(repositories.sandbox.read("kept/modules/net/terraform.tfstate"), "of an apply");
}

#[test]
fn directory_with_an_empty_submodule_is_refused_and_not_changed() {
    let repositories = Repositories::new();
    repositories.clone_without_submodules();
    let clone = repositories.sandbox.work().join("clone");
    for (live, needs) in [
        (LIVE, "live/main.tf:2 needs `modules/net`, but the submodule `modules/net` is empty"),
        (
            "output \"x\" {\n  value = file(\"${path.module}/../data/a.json\")\n}\n",
            "live/main.tf:2 needs `data/a.json`, but the submodule `data` is empty",
        ),
        (
            "output \"x\" {\n  value = fileset(\"../data\", \"*.json\")\n}\n",
            "live/main.tf:2 needs `data`, but the submodule `data` is empty",
        ),
        (
            "variable \"n\" {}\noutput \"x\" {\n  value = templatefile(\"${path.root}/../data/${var.n}\", {})\n}\n",
            "live/main.tf:3 needs `data`, but the submodule `data` is empty",
        ),
    ] {
        std::fs::write(clone.join("live/main.tf"), live).unwrap();
        let ended = repositories.run(&["plan", "clone/live"]);
        assert_eq!(ended.code, 8, "{live}: {}", ended.stderr);
        assert!(ended.stderr.contains(needs), "{needs}: {}", ended.stderr);
        let clone = std::fs::canonicalize(&clone).unwrap();
        let submodule = needs.split('`').nth(3).unwrap();
        let line = format!(
            "git -C {} submodule update --init --recursive -- {submodule}",
            clone.display()
        );
        assert!(ended.stderr.contains(&line), "{line}: {}", ended.stderr);
    }
    assert_eq!(std::fs::read_dir(clone.join("modules/net")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(clone.join("data")).unwrap().count(), 0);

    // The line that the error gives is the way out.
    let update = ["submodule", "--quiet", "update", "--init", "--recursive", "--", "modules/net"];
    repositories.git(&clone, &update);
    std::fs::write(clone.join("live/main.tf"), LIVE).unwrap();
    let ended = repositories.run(&["plan", "clone/live"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("the submodule data and 1 more is empty"), "{}", ended.stderr);
}

#[test]
fn empty_nested_submodule_is_detected() {
    let repositories = Repositories::new();
    repositories.clone_without_submodules();
    let clone = repositories.sandbox.work().join("clone");
    repositories.git(&clone, &["submodule", "--quiet", "update", "--init"]);
    let ended = repositories.run(&["plan", "clone/live"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    let text = "main.tf:2 needs `inner`, but the submodule `inner` is empty";
    assert!(ended.stderr.contains(text), "{}", ended.stderr);

    // Before, this was a plan to destroy all that the module has created.
    let mut command = repositories.sandbox.command(&["plan", "clone/live", "--result", "r.json"]);
    command.env("PLANCHA_NO_SUBMODULES", "1").output().unwrap();
    let report = json(repositories.sandbox.read("r.json").as_bytes());
    assert_eq!(report["errors"][0]["summary"], "Unsupported attribute", "{report}");
}

#[test]
fn submodules_without_git_are_detected_by_gitmodules() {
    let repositories = Repositories::new();
    let export = repositories.sandbox.work().join("export");
    std::fs::create_dir(&export).unwrap();
    let tar = repositories.sandbox.path("export.tar");
    let archive = ["archive", "--output", tar.to_str().unwrap(), "HEAD"];
    repositories.git(&repositories.infra, &archive);
    let untar =
        Command::new("tar").args(["-xf", tar.to_str().unwrap()]).current_dir(&export).status();
    assert!(untar.unwrap().success());
    let ended = repositories.run(&["plan", "export/live"]);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("the submodule `modules/net` is empty"), "{}", ended.stderr);
}

#[test]
fn empty_directory_that_is_no_submodule_is_ignored() {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "module \"m\" {\n  source = \"./m\"\n}\n");
    std::fs::create_dir(sandbox.work().join("m")).unwrap();
    crate::source::checkout::git(&sandbox.work(), &["init", "--quiet"]);
    let ended = sandbox.run(&["plan"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}
