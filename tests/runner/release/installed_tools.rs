//! Installed tools: on PATH of child processes, verified, listed, removed; and unreachable sites.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use datastore_api::Sha256;
use support::{Ended, MirrorFault, MirroredTool, Sandbox};

use crate::RUNNER;
use crate::release::resolve::Case;
use MirroredTool::Terraform;

const V: &str = "1.9.8";

impl Case {
    fn tool(&self, version: &str) -> PathBuf {
        self.sandbox.path(&format!("cache/plancha/bin/Terraform/{version}/terraform"))
    }

    fn install_all(&self, versions: &[&str]) {
        for version in versions {
            let ended = self.run(&["install", &format!("terraform@{version}")]);
            assert_eq!(ended.code, 0, "{ended:?}");
        }
    }

    /// Says that a version was used last so many days ago.
    fn last_used(&self, version: &str, days: u64) {
        let then = SystemTime::now() - Duration::from_secs(days * 86_400);
        let times = std::fs::FileTimes::new().set_accessed(then).set_modified(then);
        let binary = std::fs::File::options().write(true).open(self.tool(version)).unwrap();
        binary.set_times(times).unwrap();
        std::fs::write(self.tool(version).with_file_name("last-use.txt"), "2001-02-03").unwrap();
    }

    fn lines(&self, words: &[&str]) -> Vec<String> {
        let ended = self.run(words);
        assert_eq!(ended.code, 0, "{words:?}: {ended:?}");
        ended.stdout.lines().map(str::to_owned).collect()
    }

    /// In a home where nothing is remembered.
    fn elsewhere(&self, name: &str, words: &[&str]) -> Ended {
        let mut command = self.command(words);
        command.env("HOME", self.sandbox.path(name)).env("XDG_CACHE_HOME", self.sandbox.path(name));
        command.output().unwrap().into()
    }
}

#[test]
fn resolved_tool_is_on_path_of_child_processes() {
    let case = Case::new();
    case.on_path(Terraform, "1.5.6");
    let script = format!(
        "#!/bin/sh\ncase $* in\n\"version -json\") echo '{{\"terraform_version\": \"{V}\"}}';;\n\
         init*) terraform version -json > seen; exit 3;;\nesac\n"
    );
    case.mirror.add(Terraform, "1.9.9", script.replace(V, "1.9.9").as_bytes());
    case.sandbox.write(".terraform-version", "1.9.9");
    let ended = case.run(&["plan"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(case.sandbox.read("seen").contains("1.9.9"), "{}", case.sandbox.read("seen"));
    assert!(case.sandbox.is_clean());
}

#[test]
fn installed_binary_is_verified_regardless_of_home() {
    let case = Case::new();
    let bin = case.sandbox.path("shared");
    let words = ["install", "terraform@1.9.8", "--bin-dir", bin.to_str().unwrap()];
    assert_eq!(case.run(&words).code, 0);
    let binary = bin.join("Terraform/1.9.8/terraform");
    let record = binary.with_file_name("sha256");
    let original = std::fs::read(&binary).unwrap();
    let recorded = std::fs::read_to_string(&record).unwrap();
    assert_eq!(recorded, format!("{}  terraform\n", Sha256::of(&original)));
    assert_eq!(case.elsewhere("home2", &words).code, 0);

    std::fs::write(&binary, "#!/bin/sh\n").unwrap();
    for home in ["home2", "home3"] {
        let ended = case.elsewhere(home, &words);
        assert_eq!((ended.code, ended.stdout.as_str()), (9, ""), "{ended:?}");
        assert!(ended.stderr.contains("was installed"), "{ended:?}");
    }
    // One without a record, which another program has installed, is accepted and recorded.
    std::fs::remove_file(&record).unwrap();
    assert_eq!(case.elsewhere("home4", &words).code, 0);
    let recorded = std::fs::read_to_string(&record).unwrap();
    assert!(recorded.starts_with(&Sha256::of(b"#!/bin/sh\n").to_string()), "{recorded}");
    std::fs::write(&binary, "#!/bin/sh\n#\n").unwrap();
    assert_eq!(case.elsewhere("home5", &words).code, 9);
}

/// A plan computes the digest of a named version while the code is fetched. One that does not match the
/// record beside the binary must not be remembered: it would refuse the binary once that is restored.
#[test]
fn digest_of_a_refused_binary_is_not_cached() {
    let case = Case::new();
    let bin = case.sandbox.path("shared").display().to_string();
    assert_eq!(case.run(&["install", "terraform@1.9.8", "--bin-dir", &bin]).code, 0);
    let binary = case.sandbox.path("shared/Terraform/1.9.8/terraform");
    let original = std::fs::read(&binary).unwrap();
    let plan =
        ["plan", "--tool", "terraform", "--tool-version", "1.9.8", "--bin-dir", bin.as_str()];
    std::fs::write(&binary, "#!/bin/sh\n").unwrap();
    let ended = case.elsewhere("home2", &plan);
    assert_eq!(ended.code, 9, "{ended:?}");
    std::fs::write(&binary, original).unwrap();
    let ended = case.elsewhere("home2", &plan);
    assert_ne!(ended.code, 9, "{ended:?}");
    assert!(ended.stderr.contains("terraform 1.9.8"), "{ended:?}");
}

/// No user can create a directory in /sys, root included.
#[test]
fn run_uses_a_program_on_path_where_tools_cannot_be_installed() {
    let case = Case::new();
    let plan =
        ["plan", "--tool", "terraform", "--tool-version", V, "--bin-dir", "/sys/plancha/bin"];
    let warning = format!("terraform {V}: cannot write to /sys/plancha/bin/Terraform: ");
    for other in [None, Some("1.9.9")] {
        if let Some(other) = other {
            case.on_path(Terraform, other);
        }
        let ended = case.run(&plan);
        assert_eq!(ended.code, 8, "{ended:?}");
        assert!(ended.stderr.contains(&format!("ERROR {warning}")), "{ended:?}");
        assert!(ended.stderr.contains("--bin-dir"), "{ended:?}");
    }
    case.on_path(Terraform, V);
    let ended = case.run(&plan);
    let path = case.sandbox.path("bin/terraform");
    let uses = format!("; {} is used, which is terraform {V}", path.display());
    assert!(ended.stderr.contains(&format!("WARN {warning}")), "{ended:?}");
    assert!(ended.stderr.contains(&uses), "{ended:?}");
    assert!(!ended.stderr.contains("ERROR terraform 1.9.8: cannot write"), "{ended:?}");
    // `install` is to install it.
    let ended = case.run(&["install", "terraform@1.9.8", "--bin-dir", "/sys/plancha/bin"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (8, ""), "{ended:?}");
}

#[test]
fn arguments_in_variables_do_not_hide_the_version_of_a_program_on_path() {
    for (variable, value) in [("TF_CLI_ARGS", "-lock=false"), ("TF_CLI_ARGS_version", "-help")] {
        let sandbox = Sandbox::new(RUNNER);
        let mut resolve = sandbox.command(&["resolve", "terraform"]);
        let resolved = Ended::from(resolve.env(variable, value).output().unwrap());
        assert_eq!(resolved.code, 0, "{variable}: {}", resolved.stderr);
    }
}

#[test]
fn program_on_path_needs_no_directory_for_tools() {
    let case = Case::new();
    case.sandbox.write("main.tf", "terraform {\n  required_version = \"~> 1.9\"\n}\n");
    let run = |words: &[&str]| {
        let mut command = case.command(words);
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
        Ended::from(command.output().unwrap())
    };
    let warning =
        "there is no directory to install tools in: neither HOME nor XDG_CACHE_HOME is set";
    let plan = ["plan", "--tool", "terraform", "--tool-version", V];
    let ended = run(&plan);
    assert_eq!(ended.code, 8, "{ended:?}");
    assert!(ended.stderr.contains(&format!("ERROR {warning}. next: name one with --bin-dir")));
    case.on_path(Terraform, V);
    let uses =
        format!("{} is used, which is terraform {V}", case.sandbox.path("bin/terraform").display());
    let ended = run(&plan);
    assert!(ended.stderr.contains(&format!("WARN {warning}; {uses}")), "{ended:?}");
    for words in [&["plan", "--offline"][..], &[&plan[..], &["--offline"]].concat()] {
        let ended = run(words);
        assert!(!ended.stderr.contains(warning), "{ended:?}");
        assert!(ended.stderr.contains("terraform 1.9.8 (on PATH: --offline"), "{ended:?}");
    }
    assert_eq!(run(&["resolve", "--offline"]).stdout, "1.9.8\n");
    // These need the directory.
    for words in [&["install", "terraform@1.9.8"][..], &["tools", "list"]] {
        let ended = run(words);
        assert_eq!((ended.code, ended.stdout.as_str()), (8, ""), "{ended:?}");
        assert!(ended.stderr.contains(warning), "{ended:?}");
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Directories that their owner, too, may only read, until this is dropped.
struct ReadOnly(Vec<PathBuf>);

impl ReadOnly {
    fn new(dirs: &[PathBuf]) -> Self {
        for dir in dirs {
            chmod(dir, 0o555);
        }
        Self(dirs.to_vec())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        for dir in &self.0 {
            chmod(dir, 0o755);
        }
    }
}

#[test]
fn unwritable_home_or_directory_is_named() {
    let case = Case::new();
    chmod(&case.sandbox.path(""), 0o755);
    chmod(case.mirror.keyring().parent().unwrap(), 0o755);
    // Root may write everywhere, so it becomes another user.
    let is_root = case.sandbox.path("").metadata().unwrap().uid() == 0;
    let unprivileged = |words: &[&str]| {
        let mut command = case.command(words);
        if is_root {
            command.uid(65534);
        }
        command
    };
    let [home, cache, bin] = ["home", "cache", "bin"].map(|name| case.sandbox.path(name));
    let read_only = ReadOnly::new(&[home.clone(), cache.clone(), bin.clone()]);
    let words = ["install", "terraform@1.9.8"];
    for (dir, variable) in [(cache, None), (home.join(".cache"), Some("XDG_CACHE_HOME"))] {
        let mut command = unprivileged(&words);
        if let Some(variable) = variable {
            command.env_remove(variable);
        }
        let ended = Ended::from(command.output().unwrap());
        assert_eq!((ended.code, ended.stdout.as_str()), (8, ""), "{ended:?}");
        let warning = format!("terraform 1.9.8: cannot write to {}", dir.display());
        assert!(ended.stderr.contains(&warning) && ended.stderr.contains("--bin-dir"), "{ended:?}");
    }

    let words = ["install", "terraform@1.9.8", "--bin-dir", bin.to_str().unwrap()];
    let ended = Ended::from(unprivileged(&words).output().unwrap());
    assert!(ended.code == 8 && ended.stderr.contains("cannot write to"), "{ended:?}");
    // What is installed there can be used.
    drop(read_only);
    assert_eq!(case.run(&words).code, 0);
    let installed = bin.join("Terraform/1.9.8");
    let dirs = [bin.clone(), bin.join("Terraform"), installed.clone()];
    for there in [true, false] {
        let read_only = ReadOnly::new(&dirs);
        let ended = Ended::from(unprivileged(&words).output().unwrap());
        assert_eq!(ended.code, 0, "{ended:?}");
        drop(read_only);
        assert_eq!(installed.join("sha256").exists(), there);
        std::fs::remove_file(installed.join("sha256")).unwrap_or_default();
    }
}

#[test]
fn sums_in_binary_mode_are_parsed() {
    let case = Case::new();
    let archive = case.mirror.archive_path(Terraform, V);
    let digest = Sha256::of(&case.mirror.file(&archive));
    let name = archive.rsplit('/').next().unwrap();
    case.mirror.put_sums(Terraform, V, format!("{digest} *{name}\n").into_bytes());
    case.install_all(&[V]);
}

#[test]
fn tools_are_listed_in_version_order() {
    let case = Case::new();
    assert_eq!(case.lines(&["tools", "list"]), [""; 0]);
    case.install_all(&["1.10.0", V, "1.11.0-rc1"]);
    assert_eq!(case.run(&["install", "tofu@1.6.0"]).code, 0);
    case.last_used(V, 3);
    let lines = case.lines(&["tools", "list"]);
    let words: Vec<_> = lines.iter().map(|line| line.split(' ').collect::<Vec<_>>()).collect();
    let shown: Vec<_> = words.iter().map(|words| (words[0], words[1])).collect();
    let expected =
        [("terraform", V), ("terraform", "1.10.0"), ("terraform", "1.11.0-rc1"), ("tofu", "1.6.0")];
    assert_eq!(shown, expected);
    assert!(words[0][2] < words[1][2], "{lines:?}");
    assert_eq!(words[0][3], case.tool(V).display().to_string());
    let json =
        crate::json(case.lines(&["tools", "list", "terraform", "--json"]).concat().as_bytes());
    let versions: Vec<_> = json.as_array().unwrap().iter().map(|one| &one["version"]).collect();
    assert_eq!(versions, [V, "1.10.0", "1.11.0-rc1"]);

    let lines = case.lines(&["tools", "list", "--available", "terraform"]);
    let expected = [
        "terraform 1.5.6",
        "terraform 1.5.7",
        "terraform 1.9.8 installed",
        "terraform 1.10.0 installed",
        "terraform 1.11.0-rc1 installed",
    ];
    assert_eq!(lines, expected);
    assert_eq!(case.lines(&["tools", "list", "--available", "tofu"])[0], "tofu 1.6.0 installed");
}

#[test]
fn unused_tools_are_pruned() {
    let case = Case::new();
    for words in [&["tools", "prune"][..], &["tools"], &["tools", "prune", "--keep", "x"]] {
        assert_eq!(case.run(words).code, 64, "{words:?}");
    }
    case.install_all(&["1.5.6", "1.5.7", V, "1.10.0"]);
    assert_eq!(
        case.lines(&["tools", "prune", "--keep", "2", "--dry-run"]),
        ["terraform 1.5.6 would be removed", "terraform 1.5.7 would be removed"]
    );
    assert_eq!(case.lines(&["tools", "prune", "--keep", "3"]), ["terraform 1.5.6 removed"]);
    assert!(!case.tool("1.5.6").parent().unwrap().exists() && case.tool("1.5.7").exists());
    case.last_used("1.5.7", 40);
    case.last_used("1.10.0", 40);
    assert_eq!(case.lines(&["tools", "prune", "--unused-for", "60d"]), [""; 0]);
    assert_eq!(
        case.lines(&["tools", "prune", "--keep", "1", "--unused-for", "30d"]),
        ["terraform 1.5.7 removed"]
    );
    assert!(case.tool(V).exists() && case.tool("1.10.0").exists());
    assert_eq!(case.lines(&["tools", "prune", "tofu", "--keep", "0"]), [""; 0]);
    // What was removed can be installed again.
    case.install_all(&["1.5.7"]);
}

#[test]
fn files_of_killed_installs_are_pruned() {
    let case = Case::new();
    case.install_all(&[V]);
    let tools = case.tool(V).ancestors().nth(2).unwrap().to_owned();
    std::fs::write(tools.join(".1.9.8=abc"), "half").unwrap();
    std::fs::write(tools.join(".1.9.9=abc"), "half").unwrap();
    std::fs::create_dir(tools.join("1.9.10")).unwrap();
    std::fs::write(tools.join("1.9.10/sha256"), "x").unwrap();
    std::fs::create_dir(tools.join("notes")).unwrap();
    assert_eq!(case.lines(&["tools", "prune", "--keep", "9"]).len(), 3);
    let mut left: Vec<_> = std::fs::read_dir(&tools)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.contains(".lock"))
        .collect();
    left.sort();
    assert_eq!(left, [V, "notes"]);
}

#[test]
fn used_version_is_not_pruned() {
    let case = Case::new();
    let script = format!(
        "#!/bin/sh\ncase $* in\n\"version -json\") echo '{{\"terraform_version\": \"{V}\"}}';;\n\
         init*) : > started; while [ ! -e go ]; do sleep 0.05; done; exit 3;;\nesac\n"
    );
    case.mirror.add(Terraform, V, script.as_bytes());
    case.sandbox.write(".terraform-version", V);
    let run = support::Started::spawn(case.command(&["plan"]));
    support::eventually("init has started", || case.sandbox.work().join("started").exists());
    let prune = ["tools", "prune", "--keep", "0"];
    assert_eq!(case.lines(&prune), ["terraform 1.9.8 is in use: not removed"]);
    case.sandbox.write("go", "");
    assert_eq!(run.wait().code, 1);
    assert_eq!(case.lines(&prune), ["terraform 1.9.8 removed"]);
}

/// A site that accepts connections and never answers delays no run that an available tool satisfies.
#[test]
fn silent_site_is_requested_once_if_path_has_a_match() {
    let case = Case::new();
    case.on_path(Terraform, V);
    let list = case.mirror.list_path(Terraform);
    case.mirror.fault(list, MirrorFault::Silent);
    let latest = ["resolve", "terraform@latest"];
    let ended = case.run(&latest);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "1.9.8\n"), "{ended:?}");
    assert!(ended.stderr.contains("did not answer within 1 s"), "{ended:?}");
    let ended = case.run(&latest);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "1.9.8\n"), "{ended:?}");
    assert!(ended.stderr.contains("terraform 1.9.8 (on PATH: http://127.0.0.1:"), "{ended:?}");
    assert!(ended.stderr.contains(" was skipped: it could not be reached "), "{ended:?}");
    assert_eq!(case.mirror.requests(list), 1);

    // An exact version needs no list, but its files.
    let ended = case.run(&["install", "terraform@1.9.8"]);
    assert_eq!(ended.stdout, format!("{}\n", case.sandbox.path("bin/terraform").display()));
    assert_eq!(case.mirror.requests(&case.mirror.archive_path(Terraform, V)), 0);

    case.mirror.fault(list, MirrorFault::Status(500, 0));
    let ended = case.run(&["resolve", "terraform@latest", "--refresh"]);
    assert_eq!(ended.stdout, "1.10.0\n", "{ended:?}");
    assert_eq!(case.mirror.requests(list), 2);
    assert_eq!(case.run(&["install", "terraform@1.9.8"]).code, 0);
    assert!(case.tool(V).exists(), "a site that answers again gets requests again");
}

#[test]
fn unreachable_site_is_not_requested_if_an_installed_tool_matches() {
    let case = Case::new();
    case.install_all(&[V]);
    let latest = ["install", "terraform@latest"];
    let ended = case.run_without_network(&latest);
    assert_eq!(ended.stdout, format!("{}\n", case.tool(V).display()), "{ended:?}");
    let ended = case.run_without_network(&latest);
    let warning = format!(
        "terraform 1.9.8 (already installed in {}: the list of versions cannot be updated: \
         http://127.0.0.1:1 was skipped",
        case.tool(V).ancestors().nth(2).unwrap().display()
    );
    assert!(ended.stderr.contains(&warning), "{ended:?}");
    // Where no installed version matches, it is requested.
    let ended = case.run_without_network(&["resolve", "tofu@latest"]);
    assert!(ended.code == 6 && ended.stderr.contains("cannot connect to"), "{ended:?}");
}

/// Another program of that name is first on PATH.
#[test]
fn local_exec_of_a_real_tool_finds_the_resolved_tool() {
    let sandbox = Sandbox::new(RUNNER);
    let tools = [("terraform", "Terraform"), ("tofu", "OpenTofu")];
    let found = |(name, dir)| Some((name, dir, support::on_path(name)?));
    let (name, dir, real) = tools.into_iter().find_map(found).expect("no terraform, no tofu");
    let version = sandbox.program(&real, &["version", "-json"]).output().unwrap();
    let version = crate::json(&version.stdout)["terraform_version"].as_str().unwrap().to_owned();
    let dir = sandbox.path("tools").join(dir).join(&version);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::copy(&real, dir.join(name)).unwrap();
    sandbox.script(name, "#!/bin/sh\necho '{\"terraform_version\": \"1.0.0\"}'\n");
    sandbox.write(
        "main.tf",
        &format!(
            "resource \"terraform_data\" \"x\" {{\n  provisioner \"local-exec\" {{\n    \
             command = \"{name} version -json > seen\"\n  }}\n}}\n"
        ),
    );
    let tools = sandbox.path("tools");
    let tools = ["--tool", name, "--bin-dir", tools.to_str().unwrap()];
    let args = [&["apply", "--no-plan", "--tool-version", &version], &tools[..]].concat();
    let ended = sandbox.run(&args);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let seen = crate::json(sandbox.read("seen").as_bytes());
    assert_eq!(seen["terraform_version"], *version);
}
