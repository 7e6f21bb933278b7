//! What is found in configurations of every kind.

use crate::source::references::*;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn shown(files: &[(&str, &str)]) -> String {
    let dir = tree(files);
    let read = read(&dir.path().join("root")).unwrap();
    let line = |(path, place): (&PathBuf, &String)| format!("{} {place}", path.display());
    let pointers = read.pointers.iter().map(|pointer| format!("pointer {}", line(pointer)));
    let lines = read.paths.iter().map(line).chain(pointers);
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    text.replace(&format!("{}/", dir.path().display()), "").replace(" \n", "\n")
}

const EVERY_KIND: &str = r#"
module "a" { source = "../a" }
module "registry" { source = "hashicorp/a/aws" }
# module "b" { source = "../commented" }
locals {
  a = file("${path.module}/x/one.txt")
  b = fileset("${path.root}/y", "**/*.json")
  c = jsondecode(templatefile("z/t.tpl", { v = file("nested.txt") }))
  d = file("${path.module}/policies/${var.name}.json")
  e = file(var.any)
  f = file("${var.dir}/x")
  g = fileset(path.module, "*.txt")
  h = provider::x::file("no")
}
"#;

#[test]
fn what_is_named_literally_is_found_in_all_called_modules() {
    insta::assert_snapshot!(shown(&[
        ("root/main.tf", EVERY_KIND),
        ("a/a.tf", "module \"b\" {\n  source = \"./b\"\n}\noutput \"f\" {\n  value = file(\"${path.module}/f\")\n}\n"),
        ("a/b/b.tf.json", r#"{"locals": {"x": "${file(\"${path.module}/j\")}"}, "module": {"c": {"source": "./c"}}}"#),
    ]), @r"
a root/main.tf:2
a/b a/a.tf:2
a/b/c a/b/b.tf.json:1
a/b/j a/b/b.tf.json:1
a/f a/a.tf:5
root the working directory
root/nested.txt root/main.tf:8
root/policies root/main.tf:9
root/x/one.txt root/main.tf:6
root/y root/main.tf:7
root/z/t.tpl root/main.tf:8
");
}

#[test]
fn a_file_that_the_parser_refuses_is_scanned() {
    let refused = format!("{EVERY_KIND}locals {{\n  x = {{\n    a = 1\n    a = 2\n  }}\n}}\n");
    assert!(hcl_edit::parser::parse_body(&refused).is_err());
    let parsed = shown(&[("root/main.tf", EVERY_KIND)]);
    assert_eq!(shown(&[("root/main.tf", &refused)]), parsed);
}

#[test]
fn pointers_are_found_where_the_tool_would_read_them() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    insta::assert_snapshot!(shown(&[
        ("root/main.tf", "locals {\n  a = file(\"one.bin\")\n  b = fileset(\"set\", \"**/*.{json,yaml}\")\n}\n"),
        ("root/more.tf", pointer),
        ("root/x.auto.tfvars", pointer),
        ("root/other.tfvars", pointer),
        ("root/one.bin", pointer),
        ("root/two.bin", pointer),
        ("root/set/a/b.json", pointer),
        ("root/set/c.yaml", pointer),
        ("root/set/d.txt", pointer),
    ]), @r"
root the working directory
root/one.bin root/main.tf:2
root/set root/main.tf:3
pointer root/more.tf
pointer root/one.bin root/main.tf:2
pointer root/set/a/b.json root/main.tf:3
pointer root/set/c.yaml root/main.tf:3
pointer root/x.auto.tfvars
");
}
