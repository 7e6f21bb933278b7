//! Kept states with a real tool and a backend that refuses to write them: the copies, and what a backend must have before
//! an apply goes on.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use support::{Ended, Sandbox, Started, eventually};

use crate::source::checkout::git;
use crate::state_server::StateServer;
use crate::{RUNNER, json};

/// A repository whose module has this backend and one resource, which adds a line to the file `created`.
struct Layer {
    sandbox: Sandbox,
    backend: StateServer,
    url: String,
}

impl Layer {
    fn new() -> Self {
        Self::with_command("")
    }

    /// `command` runs in the resource before the line is added.
    fn with_command(command: &str) -> Self {
        let sandbox = Sandbox::new(RUNNER);
        let (backend, address) = StateServer::at_address();
        let (repository, created) = (sandbox.path("repository"), sandbox.path("created"));
        std::fs::create_dir_all(repository.join("live/vpc")).unwrap();
        let module = format!(
            r#"
            terraform {{
              backend "http" {{
                address   = "{address}"
                retry_max = 0
              }}
            }}
            resource "terraform_data" "a" {{
              provisioner "local-exec" {{
                command = "{command} echo created >> {}"
              }}
            }}
            "#,
            created.display()
        );
        std::fs::write(repository.join("live/vpc/main.tf"), module).unwrap();
        git(&repository, &["init", "--quiet"]);
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "--quiet", "-m", "all"]);
        let url = format!("file://{}", repository.display());
        Self { sandbox, backend, url }
    }

    fn refuse_writes(&self) {
        self.backend.refuse("POST", 403, usize::MAX);
    }

    fn accept_writes(&self) {
        self.backend.contents().faults.clear();
    }

    fn set_state(&self, state: &Value) {
        self.backend.contents().state = Some(state.to_string().into_bytes());
    }

    fn args<'a>(&'a self, action: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let args = [action, &self.url, "--path", "live/vpc", "--name", "x"];
        [&args, more].concat()
    }

    fn apply(&self, more: &[&str]) -> Ended {
        self.sandbox.run(&self.args("apply", &[&["--no-plan"], more].concat()))
    }

    fn plan(&self, more: &[&str]) -> Ended {
        self.sandbox.run(&self.args("plan", more))
    }

    /// An apply whose state is refused, and the copy of its state.
    fn refused_apply(&self, more: &[&str]) -> (Ended, PathBuf) {
        self.refuse_writes();
        let ended = self.apply(&[&["--run", "r"], more].concat());
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        self.accept_writes();
        (ended, super::unsent(&self.sandbox).join("errored.tfstate"))
    }

    /// How often the resource was created.
    fn created(&self) -> usize {
        let lines = std::fs::read_to_string(self.sandbox.path("created")).unwrap_or_default();
        lines.lines().count()
    }

    fn assert_refused(&self, says: &[&str]) -> Ended {
        let before = self.created();
        let ended = self.apply(&[]);
        assert_eq!(ended.code, 8, "{}\n{}", ended.stdout, ended.stderr);
        for says in says {
            assert!(ended.stderr.contains(says), "{says}: {}", ended.stderr);
        }
        assert_eq!(self.created(), before);
        ended
    }

    /// Runs the commands that a message prints, in a checkout of its own.
    fn run_printed(&self, message: &str) {
        let to = tempfile::tempdir().unwrap();
        let to = to.path().join("checkout");
        git(&self.sandbox.path("repository"), &["clone", "--quiet", ".", to.to_str().unwrap()]);
        let next = message.split("next: ").last().unwrap();
        let commands = next.split('`').skip(1).step_by(2).collect::<Vec<_>>();
        for command in commands {
            let mut shell = self.sandbox.program(Path::new("/bin/sh"), &["-c", command]);
            let ended = Ended::from(shell.current_dir(to.join("live/vpc")).output().unwrap());
            assert_eq!(ended.code, 0, "{command}: {}", ended.stderr);
        }
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn is_empty_dir(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// A directory that was not mounted for a while, or removed, is filled again by any run.
#[test]
fn state_stays_known_when_its_directory_is_missing_and_then_filled_again() {
    let layer = Layer::new();
    let (ended, copy) = layer.refused_apply(&["--work-dir", "kept"]);
    let original = layer.sandbox.work().join("kept/live/vpc/errored.tfstate");
    assert!(ended.stderr.contains(&format!("and the copy {}", copy.display())), "{}", ended.stderr);
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&original).unwrap());
    assert_eq!((mode(&copy), mode(copy.parent().unwrap())), (0o600, 0o700));
    assert!(!copy.is_symlink());
    // While both are there, both are named.
    let remove = format!("remove {}, {}", copy.display(), original.display());
    layer.assert_refused(&["the backend has no state", &remove]);

    std::fs::remove_dir_all(layer.sandbox.work().join("kept")).unwrap();
    let plan = layer.plan(&["--work-dir", "kept"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(plan.stderr.contains("an apply is refused"), "{}", plan.stderr);
    assert!(!is_empty_dir(&layer.sandbox.work().join("kept/live/vpc")));
    let push = format!("`TF_WORKSPACE=default terraform state push {}`", copy.display());
    let ended = layer.apply(&["--work-dir", "kept"]);
    assert_eq!((ended.code, layer.created()), (8, 1), "{}", ended.stderr);
    let refused = layer.assert_refused(&[&push, "the backend has no state; this one has serial 1"]);

    layer.run_printed(&refused.stderr);
    let ended = layer.apply(&["--work-dir", "kept"]);
    assert_eq!((ended.code, layer.created()), (0, 1), "{}\n{}", ended.stdout, ended.stderr);
    let says = format!("so its copy {} is removed", copy.display());
    assert!(ended.stderr.contains(&says), "{}", ended.stderr);
    assert!(!copy.exists() && !copy.with_extension("tfstate.json").exists());
    assert_eq!(layer.apply(&[]).code, 0);
}

#[test]
fn state_in_place_stays_known_when_the_directory_is_cleaned() {
    let layer = Layer::new();
    let checkout = layer.sandbox.work().join("checkout");
    git(&layer.sandbox.path("repository"), &["clone", "--quiet", ".", checkout.to_str().unwrap()]);
    let origin = layer.sandbox.path("repository");
    git(&checkout, &["remote", "set-url", "origin", origin.to_str().unwrap()]);
    layer.refuse_writes();
    let apply = || {
        let args = ["apply", "--no-plan", "checkout", "--path", "live/vpc", "--name", "x"];
        layer.sandbox.run(&args)
    };
    assert_eq!((apply().code, layer.created()), (1, 1));
    layer.accept_writes();
    // The state is in the directory of the module: nothing is initialized.
    let refused = apply();
    assert_eq!(refused.code, 8, "{}", refused.stderr);
    assert!(!refused.stderr.contains("the backend has"), "{}", refused.stderr);
    git(&checkout, &["clean", "--quiet", "-ffdx"]);
    let refused = apply();
    assert_eq!((refused.code, layer.created()), (8, 1), "{}", refused.stderr);
    layer.run_printed(&refused.stderr);
    let ended = apply();
    assert_eq!((ended.code, layer.created()), (0, 1), "{}", ended.stderr);
}

#[test]
fn state_counts_as_pushed_only_if_the_backend_has_it() {
    let layer = Layer::new();
    assert_eq!(layer.apply(&[]).code, 0);
    let before = layer.backend.state();
    std::fs::write(
        layer.sandbox.path("repository/live/vpc/b.tf"),
        "resource \"terraform_data\" \"b\" {}\n",
    )
    .unwrap();
    let repository = layer.sandbox.path("repository");
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "-m", "b"]);
    let (_, copy) = layer.refused_apply(&[]);
    layer.assert_refused(&["the backend has serial 1, this one has serial 2"]);
    // Another machine has applied, with the same serial.
    let mut of_other = before.clone();
    of_other["serial"] = 2.into();
    layer.set_state(&of_other);
    layer.assert_refused(&["the backend does not have its terraform_data.b", "if it was pushed"]);
    let mut unrelated = before.clone();
    unrelated["lineage"] = "another".into();
    layer.set_state(&unrelated);
    layer.assert_refused(&["the backend has another state: serial 1 of lineage another"]);
    layer.set_state(&before);
    let refused = layer.assert_refused(&["the backend has serial 1"]);
    layer.run_printed(&refused.stderr);
    assert_eq!(layer.backend.state()["serial"], 3);
    let ended = layer.apply(&[]);
    assert_eq!((ended.code, layer.created()), (0, 1), "{}", ended.stderr);
    assert!(!copy.exists());
}

#[test]
fn removed_copy_counts_as_pushed() {
    let layer = Layer::new();
    let (_, copy) = layer.refused_apply(&["--work-dir", "kept"]);
    std::fs::remove_file(copy).unwrap();
    let ended = layer.apply(&[]);
    assert_eq!((ended.code, layer.created()), (0, 2), "{}", ended.stderr);
    assert!(!ended.stdout.contains("state pull"), "{}", ended.stdout);
}

#[test]
fn newer_original_is_the_one_to_push() {
    let layer = Layer::new();
    let (_, copy) = layer.refused_apply(&["--work-dir", "kept"]);
    let original = layer.sandbox.work().join("kept/live/vpc/errored.tfstate");
    let mut state = json(&std::fs::read(&original).unwrap());
    state["serial"] = 5.into();
    std::fs::write(&original, state.to_string()).unwrap();
    let push = format!("terraform state push {}`", original.display());
    let remove = format!("remove {}, {}", original.display(), copy.display());
    layer.assert_refused(&[&push, &remove, "this one has serial 5"]);
}

#[test]
fn backend_that_cannot_be_read_refuses_an_apply() {
    let layer = Layer::new();
    let (_, copy) = layer.refused_apply(&[]);
    // `init` succeeds.
    let real = support::on_path("terraform").or_else(|| support::on_path("tofu")).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ \"$1 $2\" = 'state pull' ]; then echo 'Error: no access' >&2; exit 1; fi\nexec {} \"$@\"\n",
        real.display()
    );
    layer.sandbox.script(real.file_name().unwrap().to_str().unwrap(), &script);
    layer.assert_refused(&["it is unknown whether the backend has it by now", "state pull"]);
    assert!(copy.exists());
}

/// The tool that waits for the state's lock would apply as soon as the first one has released it.
#[test]
fn apply_that_waits_for_another_one_finds_the_state_that_it_leaves() {
    let says = "another runner is applying the layer default/x: waiting for it";
    waiting_apply_is_refused("x", says, |_| {});
}

/// The state is the same.
#[test]
fn apply_under_another_name_and_tmpdir_waits_for_the_other_one_and_finds_its_state() {
    let says = "another runner is applying to the same state (http, address ";
    waiting_apply_is_refused("y", says, |layer| {
        std::fs::create_dir(layer.sandbox.path("tmp2")).unwrap();
    });
}

#[test]
fn apply_of_a_bundle_waits_for_one_of_its_repository_and_finds_its_state() {
    let says = "another runner is applying to the same state (http, address ";
    waiting_apply_is_refused("bundle", says, |layer| {
        let bundle = layer.sandbox.path("code.bundle");
        let bundle = bundle.to_str().unwrap();
        git(&layer.sandbox.path("repository"), &["bundle", "create", "--quiet", bundle, "HEAD"]);
    });
}

/// A second apply starts while one works whose state is refused. `name` is that of the second one.
fn waiting_apply_is_refused(name: &'static str, says: &str, prepare: impl Fn(&Layer)) {
    let layer = Layer::with_command("touch $STARTED; while [ -e $WAIT ]; do sleep 0.05; done;");
    prepare(&layer);
    let [started, wait] = ["started", "wait"].map(|name| layer.sandbox.path(name));
    std::fs::write(&wait, "").unwrap();
    layer.refuse_writes();
    let bundle = layer.sandbox.path("code.bundle");
    let start = |run: &str, name: &str| {
        let code = if name == "bundle" { bundle.to_str().unwrap() } else { &layer.url };
        let args = ["apply", code, "--path", "live/vpc", "--name", name, "--no-plan", "--run", run];
        let mut command = layer.sandbox.command(&args);
        command.env("STARTED", &started).env("WAIT", &wait);
        if name == "y" {
            command.env("TMPDIR", layer.sandbox.path("tmp2"));
        }
        Started::spawn(command)
    };
    let first = start("a", "x");
    eventually("the first apply has started", || started.exists());
    std::fs::remove_file(&started).unwrap();
    let second = start("b", name);
    // It has read by then what earlier applies have left.
    eventually("the second one waits, or applies", || {
        started.exists() || second.logged("waiting for it") || second.said("initialized")
    });
    std::thread::sleep(Duration::from_millis(500));
    std::fs::remove_file(&wait).unwrap();
    let first = first.wait();
    assert_eq!(first.code, 1, "{}", first.stderr);
    layer.accept_writes();
    let second = second.wait();
    assert_eq!((second.code, layer.created()), (8, 1), "{}\n{}", second.stdout, second.stderr);
    assert!(second.stderr.contains(says), "{}", second.stderr);
}

/// A command that says that it has created something, and waits before it succeeds.
const CREATES_AND_WAITS: &str =
    "echo created >> $CREATED; touch $STARTED; while [ -e $WAIT ]; do sleep 0.05; done; exit 0;";

impl Layer {
    /// A run that gets the paths of the files that the command uses.
    fn start(&self, args: &[&str], tmp: &str) -> Started {
        let [started, wait, created] =
            ["started", "wait", "created"].map(|name| self.sandbox.path(name));
        let tmp = self.sandbox.path(tmp);
        std::fs::create_dir_all(&tmp).unwrap();
        let mut command = self.sandbox.command(&[&["apply", "--no-plan"], args].concat());
        command.env("STARTED", started).env("WAIT", wait);
        command.env("CREATED", created).env("TMPDIR", tmp);
        Started::spawn(command)
    }

    /// Starts an apply whose state is refused, and kills its runner. The tool works until the file `wait` is removed.
    fn kill_apply(&self, args: &[&str]) {
        let [started, wait] = ["started", "wait"].map(|name| self.sandbox.path(name));
        std::fs::write(&wait, "").unwrap();
        self.refuse_writes();
        let killed = self.start(args, "tmp");
        eventually("the apply has started", || started.exists());
        killed.signal("KILL");
        assert_eq!(killed.wait().code, -1);
        std::fs::remove_file(&started).unwrap();
    }

    /// The module in two directories that are in no repository.
    fn in_two_directories(&self) -> [PathBuf; 2] {
        let module = self.sandbox.path("repository/live/vpc/main.tf");
        ["a", "b"].map(|name| {
            let dir = self.sandbox.work().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::copy(&module, dir.join("main.tf")).unwrap();
            dir
        })
    }

    /// The lock files that name an apply.
    fn named_applies(&self) -> usize {
        let (mut found, mut dirs) = (0, vec![self.sandbox.path("home/.local/state/plancha")]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() {
                    dirs.push(path);
                } else if path.to_string_lossy().contains("plancha/applying-") {
                    assert_eq!(mode(&path), 0o600);
                    found += usize::from(entry.metadata().unwrap().len() > 0);
                }
            }
        }
        found
    }
}

/// The locks of a killed runner are free. Another name has another layer, and another TMPDIR not its directory.
#[test]
fn apply_under_another_name_and_tmpdir_waits_for_the_tool_of_a_killed_one_and_finds_its_state() {
    let layer = Layer::with_command(CREATES_AND_WAITS);
    let args = |name: &'static str| [&*layer.url, "--path", "live/vpc", "--name", name];
    layer.kill_apply(&args("x"));
    assert_eq!(layer.named_applies(), 2, "of the layer and of the state");
    let second = layer.start(&args("y"), "tmp2");
    eventually("the second one waits, or applies", || {
        layer.sandbox.path("started").exists() || second.said("successfully initialized")
    });
    std::thread::sleep(Duration::from_millis(500));
    std::fs::remove_file(layer.sandbox.path("wait")).unwrap();
    let second = second.wait();
    layer.accept_writes();
    assert_eq!((second.code, layer.created()), (8, 1), "{}\n{}", second.stdout, second.stderr);
    // Another one finds it as well, and applies once the backend has the state.
    let third = layer.start(&args("z"), "tmp3").wait();
    assert_eq!((third.code, layer.created()), (8, 1), "{}\n{}", third.stdout, third.stderr);
    layer.run_printed(&third.stderr);
    let (code, before) = (layer.start(&args("z"), "tmp3").wait().code, layer.named_applies());
    assert_eq!((code, before), (0, 1), "only the lock of the killed layer is left");
}

#[test]
fn apply_in_another_directory_finds_the_state_of_a_killed_one_without_its_tmpdir() {
    for removes_tmp in [false, true] {
        let layer = Layer::with_command(CREATES_AND_WAITS);
        let [first, _] = layer.in_two_directories();
        layer.kill_apply(&["a"]);
        std::fs::remove_file(layer.sandbox.path("wait")).unwrap();
        let left = first.join("errored.tfstate");
        eventually("the tool leaves its state", || left.exists());
        std::thread::sleep(Duration::from_millis(500));
        layer.accept_writes();
        if removes_tmp {
            std::fs::remove_dir_all(layer.sandbox.path("tmp")).unwrap();
        }
        for tmp in ["tmp", "tmp2"] {
            let refused = layer.start(&["b"], tmp).wait();
            assert_eq!((refused.code, layer.created()), (8, 1), "{}", refused.stderr);
            assert!(refused.stderr.contains("state push "), "{}", refused.stderr);
        }
    }
}
