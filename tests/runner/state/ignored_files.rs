//! Files that the module reads in its work tree, and that git ignores, or has in another repository: the copy has them.

use std::path::Path;

use support::TestDatastore;

use super::machines::{Origin, module, run};
use crate::source::checkout::{commit_all, git};

const CODE: &str = r#"
variable "size" {
  default = "small"
}
variable "dir" {
  default = "."
}
module "shared" {
  source = "../../shared/names"
}
output "set" {
  value = join(",", fileset("${path.module}/../../frontend/dist", "**"))
}
output "of_variable" {
  value = join(",", fileset(var.dir, "*"))
}
output "file" {
  value = try(file("../../made.txt"), "none")
}
output "size" {
  value = var.size
}
output "shared" {
  value = module.shared.x
}
"#;

const IGNORED: &str = "dist/\n/build/\n/cache/\n/made.txt\n*.tfvars\n.terraform/\n*.tfstate*\n";

fn write(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

/// In place the tool would find them. Without them it plans to destroy what was made of them, and reports nothing.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_git_ignores_are_in_the_copy_if_the_module_reads_them() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let (module, clone) = (module(&machine), machine.work().join("clone"));
    let inner = "output \"x\" {\n  value = \"inner\"\n}\n";
    for (file, text) in [
        (".gitignore", IGNORED),
        ("live/vpc/main.tf", CODE),
        ("frontend/dist/a.html", ""),
        ("frontend/dist/assets/b.js", ""),
        ("build/c.zip", ""),
        ("cache/d", ""),
        ("made.txt", "made"),
        ("common.tfvars", "size = \"large\"\ndir = \"../../build\"\n"),
        ("shared/names/main.tf", inner),
    ] {
        write(&clone.join(file), text);
    }
    std::os::unix::fs::symlink("../../common.tfvars", module.join("terraform.tfvars")).unwrap();
    git(&clone.join("shared"), &["init", "--quiet"]);
    commit_all(&clone.join("shared"));
    let kept = machine.path("kept");
    let plan = ["plan", "--work-dir", kept.to_str().unwrap()];

    let planned = run(&machine, &datastore.url, &plan);

    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for value in ["a.html,assets/b.js", "c.zip", "made", "large", "inner"] {
        let shown = format!("= \"{value}\"\n");
        assert!(planned.stdout.contains(&shown), "{value}: {}", planned.stdout);
    }
    assert!(!kept.join("cache").exists(), "nothing reads it");

    std::fs::remove_file(clone.join("frontend/dist/a.html")).unwrap();
    let planned = run(&machine, &datastore.url, &plan);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(planned.stdout.contains("= \"assets/b.js\"\n"), "{}", planned.stdout);
}

/// The copy had it as an empty directory, which the tool takes for a module without content.
#[tokio::test(flavor = "multi_thread")]
async fn other_repository_in_the_work_tree_that_the_module_does_not_read_is_not_copied() {
    let datastore = TestDatastore::memory().await;
    let machine = Origin::new().machine();
    let shared = machine.work().join("clone/shared");
    write(&shared.join("main.tf"), "");
    git(&shared, &["init", "--quiet"]);
    commit_all(&shared);
    let kept = machine.path("kept");

    let planned = run(&machine, &datastore.url, &["plan", "--work-dir", kept.to_str().unwrap()]);

    assert_eq!(planned.code, 0, "{}", planned.stderr);
    assert!(kept.join("modules/names/main.tf").exists());
    assert!(!kept.join("shared").exists());
}
