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
    let read = read(&dir.path().join("root"), &Called::new()).unwrap();
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

#[test]
fn path_of_a_format_with_literal_values_is_followed_and_of_others_its_beginning() {
    for (expression, expected) in [
        (r#"format("%s/x/a.txt", path.module)"#, "root/x/a.txt"),
        (r#"format("%s/%s", path.root, "x/a.txt")"#, "root/x/a.txt"),
        (r#"format("x/%s.txt", "a")"#, "root/x/a.txt"),
        (r#""${format("%s", path.module)}/x/a.txt""#, "root/x/a.txt"),
        (r#"format("x/100%%.txt")"#, "root/x/100%.txt"),
        (r#"format("%s/x/%s.txt", path.module, var.name)"#, "root/x"),
        (r#"format("x/%d.txt", 1)"#, "root/x"),
        (r#"format("x/%[1]s.txt", "a")"#, "root/x"),
        (r#"format("x/%s.txt")"#, "root/x"),
        (r#"format("x/%")"#, "root/x"),
        (r#"format("x/%s", path.module)"#, "root/x"),
        (r#"format("%s/a.txt", var.dir)"#, ""),
        ("format(var.format, path.module)", ""),
        ("format()", ""),
    ] {
        let code = format!("locals {{\n  a = file({expression})\n}}\n");
        assert!(hcl_edit::parser::parse_body(&code).is_ok(), "{expression}");
        let found = shown(&[("root/main.tf", &code)]);
        let found = found.lines().find_map(|line| line.strip_suffix(" root/main.tf:2"));
        assert_eq!(found.unwrap_or_default(), expected, "{expression}");
    }
}

#[test]
fn files_outside_of_the_source_are_found_with_and_without_a_parser_but_not_those_of_connections() {
    let code = r#"
locals {
  a = file("/abs/a.txt")
  b = file("~/b.txt")
  c = filesha256(pathexpand("~/c.txt"))
  d = file("${pathexpand("~")}/d.txt")
  e = file(abspath("~/in-source.txt"))
  f = file(abspath("in-source.txt"))
  g = file("/abs/${var.x}.txt")
  h = file(join("/", ["/abs", "h.txt"]))
  i = file(join("/", ["/abs", var.x, "i.txt"]))
  j = file(format("%s/%s.txt", "/abs", "j"))
  k = file(format("/abs/%s.txt", var.x))
}
provider "x" {
  token = file("/abs/token")
}
resource "x" "y" {
  provisioner "remote-exec" {
    connection {
      private_key = file("~/.ssh/key")
    }
  }
}
"#;
    let json =
        r#"{"locals": {"a": "${file(\"/abs/a.txt\")}", "c": "${file(pathexpand(\"~/c.txt\"))}"}}"#;
    for (name, text, expected) in [
        (
            "root/main.tf",
            code,
            &["/abs/a.txt", "/abs/h.txt", "/abs/j.txt", "~/b.txt", "~/c.txt", "~/d.txt"][..],
        ),
        ("root/main.tf.json", json, &["/abs/a.txt", "~/c.txt"]),
    ] {
        let dir = tree(&[(name, text), ("root/in-source.txt", "")]);
        let root = dir.path().join("root");
        let names = outside(&root, Some(Path::new("/home/user")), &Called::new()).unwrap();
        let found = names.keys().map(|name| name.display().to_string()).collect::<Vec<_>>();
        assert_eq!(found, expected, "{name}");
        assert_eq!(names[Path::new("~/c.txt")], Path::new("/home/user/c.txt"));
        let files = read(&root, &Called::new()).unwrap().files;
        assert_eq!(files.contains(&root.join("in-source.txt")), name == "root/main.tf");
    }
}

/// A renewed credential changes no plan, so its file is not compared.
#[test]
fn file_of_a_local_value_is_left_out_only_if_the_value_reaches_nothing_but_connections() {
    let code = r#"
locals {
  key   = file("~/key")
  keys  = { main = local.key }
  both  = file("~/both")
  way   = file("~/way")
  unused = file("~/unused")
  output = "${local.way}!"
}
provider "x" {
  token = "${local.both}"
}
resource "x" "y" {
  connection {
    private_key = local.keys.main
  }
  provisioner "remote-exec" {
    connection {
      private_key = local.key
      password    = local.way
    }
  }
  other {
    connection {
      secret = file("~/other")
    }
  }
  name = local.both
}
"#;
    let usual = ["~/both", "~/other", "~/unused", "~/way"];
    let all = ["~/both", "~/key", "~/other", "~/unused", "~/way"];
    for (more, text, expected) in [
        ("more.tf", "output \"o\" {\n  value = local.output\n}\n", &usual[..]),
        ("more.tf", "output \"o\" {\n  value = [for x in local.output : x]\n}\n", &usual),
        ("more.tf", "output \"o\" {\n  value = local.keys\n}\n", &all),
        ("more.tf", "output \"o\" {\n  value = <<-E\n    ${local[\"x\"]}\n  E\n}\n", &all),
        ("more.tf", "output \"o\" {\n  value = keys(local)\n}\n", &all),
        ("more.tf", "module \"m\" {\n  source = \"./m\"\n  a = { (local.key) = 1 }\n}\n", &all),
        ("more.tf", "this is not parsed", &all),
        ("more.tf.json", "{}", &all),
        // Another module has its own local values.
        ("m/more.tf", "output \"o\" {\n  value = local.key\n}\n", &usual),
    ] {
        let dir = tree(&[("root/main.tf", code), (&format!("root/{more}"), text)]);
        let names =
            outside(&dir.path().join("root"), Some(Path::new("/home/user")), &Called::new())
                .unwrap();
        let found = names.keys().map(|name| name.display().to_string()).collect::<Vec<_>>();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn fileset_outside_of_the_source_names_its_files_as_the_configuration_does() {
    let set = tree(&[("b/x.json", ""), ("b/y.txt", "")]);
    let top = set.path().join("b").display().to_string();
    let code = format!("locals {{\n  a = fileset(\"{top}\", \"*.json\")\n}}\n");
    let dir = tree(&[("root/main.tf", &code)]);
    let names = outside(&dir.path().join("root"), None, &Called::new()).unwrap();
    let file = set.path().join("b/x.json");
    assert_eq!(names, BTreeMap::from([(file.clone(), file)]));
}
