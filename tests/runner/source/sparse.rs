//! Sparse checkouts: what they leave out is missing for the tool, although git says that the tree is clean.

use std::path::Path;

use support::{Ended, Sandbox};

use crate::RUNNER;
use crate::source::checkout::{Repository, commit_all, git, repository};

/// Configuration, a file that is left out, and the end of the place that names it.
const READ: [(&str, &str, &str); 11] = [
    (
        "output \"x\" {\n  value = fileset(path.module, \"files/*.json\")\n}",
        "files/a.json",
        "main.tf:2",
    ),
    ("output \"x\" {\n  value = fileset(\"../shared\", \"**\")\n}", "../shared/a", "main.tf:2"),
    ("output \"x\" {\n  value = fileset(\"../shared\", var.x)\n}", "../shared/a/b", "main.tf:2"),
    ("output \"x\" {\n  value = fileexists(\"files/a b\")\n}", "files/a b", "main.tf:2"),
    (
        "output \"x\" {\n  value = fileexists(\"files/${terraform.workspace}\")\n}",
        "files/x",
        "main.tf:2",
    ),
    ("", "extra.tf", "the tool"),
    ("", ".terraform.lock.hcl", "the tool"),
    ("", "../.terraform-version", "the tool"),
    ("module \"m\" {\n  source = \"../gone\"\n}", "../gone/main.tf", "the tool"),
    ("", "terraform.tfvars", "the tool"),
    ("module \"m\" {\n  source = \"../m\"\n}", "../m/override.tf.json", "the tool"),
];

/// A file of the repository is left out and nothing else: `file` is its path from the module.
fn leave_out(dir: &Path, file: &str) {
    let path = match file.strip_prefix("../") {
        Some(beside) => format!("live/{beside}"),
        None => format!("live/vpc/{file}"),
    };
    let file = dir.join(&path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    commit_all(dir);
    git(dir, &["sparse-checkout", "set", "--no-cone", "/*", &format!("!/{path}")]);
    assert!(!file.exists());
}

fn plan(sandbox: &Sandbox, dir: &Path) -> Ended {
    sandbox.run(&["plan", &dir.display().to_string(), "--path", "live/vpc"])
}

/// Without this file the plan is refused, and with it it is not.
#[track_caller]
fn refused(sandbox: &Sandbox, dir: &Path, file: &str) -> Ended {
    leave_out(dir, file);
    let refused = plan(sandbox, dir);
    assert_eq!(refused.code, 8, "{file}: {}", refused.stderr);
    git(dir, &["sparse-checkout", "disable"]);
    let planned = plan(sandbox, dir);
    assert_eq!(planned.code, 0, "{file}: {}", planned.stderr);
    refused
}

#[test]
fn code_that_reads_a_file_left_out_by_a_sparse_checkout_is_refused() {
    for (code, file, place) in READ {
        let sandbox = Sandbox::new(RUNNER).fake_terraform("");
        let Repository { dir, .. } = repository(&sandbox);
        std::fs::write(dir.join("live/vpc/main.tf"), code).unwrap();
        std::fs::create_dir(dir.join("live/m")).unwrap();
        std::fs::write(dir.join("live/m/main.tf"), "").unwrap();
        let refused = refused(&sandbox, &dir, file);
        let name = file.trim_start_matches("../");
        for expected in [
            &format!("{place} reads "),
            name,
            &format!("{} sparse-checkout disable", dir.display()),
        ] {
            assert!(refused.stderr.contains(expected), "{file}: {expected}: {}", refused.stderr);
        }
    }
}

#[test]
fn sparse_checkout_is_refused_where_a_computed_path_may_name_what_it_leaves_out() {
    let by = |locals: &str, call: &str| format!("locals {{\n  dir = {locals}\n  x = {call}\n}}");
    for (locals, call, file) in [
        ("\"${path.module}/../users\"", "fileset(local.dir, \"*.txt\")", "../users/a.txt"),
        ("path.module", "fileset(\"${local.dir}/users\", \"*.txt\")", "users/a.txt"),
        ("\"${path.module}/x\"", "fileset(dirname(local.dir), \"*.txt\")", "a.txt"),
        ("\"users\"", "fileset(\"${path.module}/${local.dir}\", var.x)", "users/a.txt"),
        ("\"${path.module}/users\"", "fileexists(\"${local.dir}/${var.x}.txt\")", "users/a.txt"),
        ("\"${path.module}/users\"", "fileset(local.dir, var.x)", "users/a.txt"),
    ] {
        let sandbox = Sandbox::new(RUNNER).fake_terraform("");
        let Repository { dir, .. } = repository(&sandbox);
        std::fs::write(dir.join("live/vpc/main.tf"), by(locals, call)).unwrap();
        let refused = refused(&sandbox, &dir, file);
        let expected = "a.txt, which the sparse checkout";
        assert!(refused.stderr.contains(expected), "{call}: {}", refused.stderr);
    }
}

#[test]
fn link_left_out_by_a_sparse_checkout_is_refused_where_the_code_goes_through_it() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let code = "output \"x\" {\n  value = fileset(\"files/deep\", \"*\")\n}";
    std::fs::write(dir.join("live/vpc/main.tf"), code).unwrap();
    std::os::unix::fs::symlink("../other", dir.join("live/vpc/files")).unwrap();
    commit_all(&dir);
    git(&dir, &["sparse-checkout", "set", "--no-cone", "/*", "!/live/vpc/files"]);
    let ended = plan(&sandbox, &dir);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(ended.stderr.contains("live/vpc/files, which the sparse checkout"), "{}", ended.stderr);
}

#[test]
fn files_left_out_by_a_sparse_checkout_that_no_code_reads_are_not_missed() {
    let code = "output \"x\" {\n  value = [fileset(\"files\", \"*.json\"), file(\"${path.module}/${var.x}\")]\n}";
    for file in
        ["README.md", "files/a.txt", "files/deep/a.json", "nested/main.tf", "../other/main.tf"]
    {
        let sandbox = Sandbox::new(RUNNER).fake_terraform("");
        let Repository { dir, .. } = repository(&sandbox);
        std::fs::write(dir.join("live/vpc/main.tf"), code).unwrap();
        leave_out(&dir, file);
        let ended = plan(&sandbox, &dir);
        assert_eq!(ended.code, 0, "{file}: {}", ended.stderr);
    }
}

#[test]
fn sparse_checkout_of_a_submodule_is_refused_where_the_code_reads_what_it_leaves_out() {
    let sandbox = Sandbox::new(RUNNER).fake_terraform("");
    let Repository { dir, .. } = repository(&sandbox);
    let module = sandbox.path("module");
    for (file, text) in [
        ("lib/main.tf", "output \"x\" {\n  value = fileset(\"${path.module}/../users\", \"*\")\n}"),
        ("users/a.txt", ""),
    ] {
        std::fs::create_dir_all(module.join(file).parent().unwrap()).unwrap();
        std::fs::write(module.join(file), text).unwrap();
    }
    git(&module, &["init", "--quiet"]);
    commit_all(&module);
    let url = module.display().to_string();
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", &url, "vendor"];
    git(&dir, &add);
    let code = "module \"m\" {\n  source = \"../../vendor/lib\"\n}";
    std::fs::write(dir.join("live/vpc/main.tf"), code).unwrap();
    commit_all(&dir);
    let ended = plan(&sandbox, &dir);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    git(&dir.join("vendor"), &["sparse-checkout", "set", "lib"]);
    let ended = plan(&sandbox, &dir);
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    for expected in
        ["vendor/users/a.txt, which the sparse checkout", "vendor sparse-checkout disable"]
    {
        assert!(ended.stderr.contains(expected), "{expected}: {}", ended.stderr);
    }
}
