//! Version files, variables and default constraints.

use crate::version::tests::*;

/// A search context with these variables.
fn with_variables(variables: &[(&'static str, &str)]) -> SearchContext {
    let variables = variables.iter().map(|(name, text)| (*name, (*text).to_owned()));
    SearchContext { variables: variables.collect(), ..SearchContext::default() }
}

fn asked_of(tool: ToolName, files: &[(&str, &str)]) -> String {
    let dir = tree(files);
    wanted(Some(tool), None, dir.path(), &SearchContext::default()).unwrap().request.to_string()
}

#[test]
fn every_version_file_of_every_tool_is_read_in_tenvs_order() {
    use ToolName::{Terraform, Terragrunt, Tofu};
    let tool_versions =
        "# terraform 9\nterraform 1.0.3 1.0.9 # no\nopentofu 1.6.3\nterragrunt 0.50.4\ntofu 9\n";
    let hcl = "terraform_version_constraint = \"1.0.4\"\nterragrunt_version_constraint = \"0.50.5\"\n\
        include \"root\" {\n  path = find_in_parent_folders()\n}\n";
    let json =
        r#"{"terraform_version_constraint": "1.0.5", "terragrunt_version_constraint": "0.50.6"}"#;
    let root = hcl.replace("0.4\"", "0.6\"").replace("50.5", "50.7");
    let root_json = json.replace("0.5\"", "0.7\"").replace("50.6", "50.8");
    let all = [
        (".terraform-version", "1.0.1\n"),
        (".tfswitchrc", "v1.0.2"),
        (".opentofu-version", "1.6.1"),
        (".terragrunt-version", "0.50.1"),
        (".tgswitchrc", " 0.50.2\t"),
        (".tgswitch.toml", "bin = '/x'\nversion = '0.50.3'\n"),
        (".tool-versions", tool_versions),
        ("terragrunt.hcl", hcl),
        ("terragrunt.hcl.json", json),
        ("root.hcl", &root),
        ("root.hcl.json", &root_json),
    ];
    let shared =
        [".tool-versions", "terragrunt.hcl", "terragrunt.hcl.json", "root.hcl", "root.hcl.json"];
    for (tool, own, expected) in [
        (
            Terraform,
            &[".terraform-version", ".tfswitchrc"][..],
            &["1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.0.5", "1.0.6", "1.0.7"][..],
        ),
        (Tofu, &[".opentofu-version"], &["1.6.1", "1.6.3", "1.0.4", "1.0.5", "1.0.6", "1.0.7"]),
        (
            Terragrunt,
            &[".terragrunt-version", ".tgswitchrc", ".tgswitch.toml"],
            &["0.50.1", "0.50.2", "0.50.3", "0.50.4", "0.50.5", "0.50.6", "0.50.7", "0.50.8"],
        ),
    ] {
        let order: Vec<_> = own.iter().chain(&shared).collect();
        assert_eq!(order.len(), expected.len());
        for (index, version) in expected.iter().enumerate() {
            let left = |name: &&(&str, &str)| !order[..index].contains(&&name.0);
            let files: Vec<_> = all.iter().filter(left).copied().collect();
            assert_eq!(asked_of(tool, &files), *version, "{tool} without {:?}", &order[..index]);
        }
    }
}

#[test]
fn of_tool_versions_the_second_word_of_the_last_line_counts() {
    for (text, expected) in [
        ("terraform 1.1\nterraform 1.2\n", "1.2.0"),
        ("  terraform\t1.1  # terraform 1.2\n", "1.1.0"),
        ("terraform 1.1\nterraform\nterraform # 1.2", "1.1.0"),
        ("#terraform 1.1\nopentofu 1.2\nterraforms 1.3", "any stable version"),
        ("terraform latest:^1\\.5\r\n", "latest:^1\\.5"),
    ] {
        assert_eq!(asked_of(ToolName::Terraform, &[(".tool-versions", text)]), expected, "{text}");
    }
    let dir = tree(&[(".tool-versions", "nodejs 20\n\nterraform 1.1.0\n")]);
    assert!(look(dir.path()).origin.ends_with("/.tool-versions:3"));
}

#[test]
fn a_version_file_of_any_kind_may_name_the_tool_but_one_of_terragrunt_does_not() {
    assert_eq!(asked(&[(".tool-versions", "opentofu 1.8.0")]), "tofu 1.8.0");
    assert_eq!(asked(&[(".tool-versions", "opentofu 1.8.0\nterraform 1.5.0")]), "tofu 1.8.0");
    assert_eq!(asked(&[(".tfswitchrc", "1.5.0"), ("main.tofu", "")]), "terraform 1.5.0");
    let hcl = ("terragrunt.hcl", "terraform_version_constraint = \"~> 1.5\"");
    assert_eq!(asked(&[hcl]), "terraform ~> 1.5");
    assert_eq!(asked(&[hcl, ("main.tofu", "")]), "tofu ~> 1.5");
    assert_eq!(asked(&[(".tgswitchrc", "0.50.0")]), "terraform any stable version");
}

#[test]
fn what_terragrunt_would_have_to_evaluate_is_passed_over_and_a_broken_file_is_not() {
    for value in ["file(\"x\")", "local.x", "\"${local.x}\"", "null", "\" \"", "true"] {
        let hcl = format!("terraform_version_constraint = {value}\n");
        let files = [
            ("terragrunt.hcl", hcl.as_str()),
            ("root.hcl.json", r#"{"terraform_version_constraint": "1.7"}"#),
        ];
        assert_eq!(asked(&files), "terraform 1.7.0", "{value}");
    }
    // Blocks with the same words in them say nothing.
    let nested = "locals {\n  terraform_version_constraint = \"1.7\"\n}\n";
    assert_eq!(asked(&[("terragrunt.hcl", nested)]), "terraform any stable version");
    // A file that cannot say anything is not even read as HCL.
    assert_eq!(asked(&[("terragrunt.hcl", "}{")]), "terraform any stable version");
    let broken = "a = 1\nterraform_version_constraint = \"1\n";
    assert_eq!(asked(&[("terragrunt.hcl", broken)]), "terraform any stable version");
    let dir = tree(&[(".tgswitch.toml", "bin = 1\nversion = 0.50\" \n")]);
    let error = wanted(Some(ToolName::Terragrunt), None, dir.path(), &SearchContext::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains(".tgswitch.toml:2:"), "{error}");
    let dir = tree(&[(".tgswitch.toml", "[a]\nversion = \"0.50\"\n")]);
    assert_eq!(look(dir.path()).origin, "the runner's default");
}

#[test]
fn variables_and_tenvs_own_files_are_searched_too() {
    let root = tree(&[
        ("Terraform/version", "1.1.1\n"),
        ("OpenTofu/version", "1.6.1\n"),
        ("Terragrunt/version", "\n"),
        ("Terragrunt/constraint", "< 0.60\n"),
    ]);
    let empty = tree(&[]);
    let file = tree(&[(".terraform-version", "1.2.2")]);
    let ask = |dir: &Path, tool, variables: &[(&'static str, &str)]| {
        let context =
            SearchContext { tenv_root: Some(root.path().to_owned()), ..with_variables(variables) };
        let wanted = wanted(Some(tool), None, dir, &context).unwrap();
        (wanted.request.to_string(), wanted.origin)
    };
    let set = [("TFENV_TERRAFORM_VERSION", "1.3.3"), ("TFENV_TERRAFORM_DEFAULT_VERSION", "1.4.4")];
    let terraform = ToolName::Terraform;
    assert_eq!(
        ask(file.path(), terraform, &set),
        ("1.3.3".into(), "TFENV_TERRAFORM_VERSION".into())
    );
    assert_eq!(ask(file.path(), terraform, &set[1..]).0, "1.2.2");
    assert_eq!(ask(empty.path(), terraform, &set[1..]).0, "1.4.4");
    assert_eq!(ask(empty.path(), terraform, &[("TFENV_TERRAFORM_VERSION", " ")]).0, "1.1.1");
    assert_eq!(ask(empty.path(), ToolName::Tofu, &set).0, "1.6.1");
    assert_eq!(ask(empty.path(), ToolName::Tofu, &[("TOFUENV_TOFU_VERSION", "1.7.0")]).0, "1.7.0");
    assert_eq!(ask(empty.path(), ToolName::Terragrunt, &[]).0, "< 0.60");
    assert_eq!(
        ask(empty.path(), ToolName::Terragrunt, &[("TG_DEFAULT_CONSTRAINT", "~> 0.7")]).0,
        "~> 0.7"
    );
    assert_eq!(ask(empty.path(), ToolName::Terragrunt, &[("TG_VERSION", "latest")]).0, "latest");
}

#[test]
fn a_default_constraint_holds_for_constraints_and_nothing_else() {
    let constraint = [("TFENV_TERRAFORM_DEFAULT_CONSTRAINT", "< 1.6")];
    for (text, expected) in [
        ("~> 1.5", "~> 1.5, < 1.6"),
        ("latest-allowed", "< 1.6"),
        ("min-required", "min-required (< 1.6)"),
        ("1.9.8", "1.9.8"),
        ("latest", "latest"),
        ("latest-pre", "latest-pre"),
        ("latest:^1", "latest:^1"),
        ("min:^1", "min:^1"),
    ] {
        let dir = tree(&[(".terraform-version", text)]);
        let wanted = wanted(None, None, dir.path(), &with_variables(&constraint)).unwrap();
        assert_eq!(wanted.request.to_string(), expected, "{text}");
    }
    let dir = tree(&[("main.tf", &terraform("\"~> 1.5\""))]);
    assert_eq!(
        wanted(None, None, dir.path(), &with_variables(&constraint)).unwrap().request.to_string(),
        "~> 1.5, < 1.6"
    );
    let nonsense = with_variables(&[("TFENV_TERRAFORM_DEFAULT_CONSTRAINT", "newest")]);
    let error = wanted(None, None, dir.path(), &nonsense).unwrap_err().to_string();
    assert_eq!(error, "TFENV_TERRAFORM_DEFAULT_CONSTRAINT: not a version request");
}

#[test]
fn a_default_constraint_holds_for_opentofu_of_every_age() {
    let dir =
        tree(&[(".opentofu-version", "latest-allowed"), ("main.tf", &terraform("\"1.6.0\""))]);
    let context = with_variables(&[("TOFUENV_TOFU_DEFAULT_CONSTRAINT", "< 1.12.6")]);
    let request = wanted(None, None, dir.path(), &context).unwrap().request;
    let allowed = |text: &str| request.allows(&text.parse().unwrap());
    assert!(allowed("1.6.0") && allowed("1.12.0") && !allowed("1.12.6") && !allowed("1.11.0"));
}

#[test]
fn version_file_that_is_a_link_to_nothing_is_reported() {
    let dir = tree(&[(".opentofu-version", "1.6.1")]);
    std::os::unix::fs::symlink("gone", dir.path().join(".terraform-version")).unwrap();
    let context = SearchContext::default();
    wanted(Some(ToolName::Terraform), None, dir.path(), &context).unwrap();
    let warned = context.warned.lock().unwrap();
    let text = ".terraform-version is a link to nothing";
    assert!(warned.iter().any(|warning| warning.ends_with(text)), "{warned:?}");
}

#[test]
fn module_that_a_terragrunt_unit_runs_counts() {
    let module = ("mod/sub/main.tf", &*terraform("\"~> 1.5.0\""));
    let terragrunt = |source: &str| format!("terraform {{\n  source = {source}\n}}\n");
    let json = r#"{"terraform": {"source": "../mod//sub"}}"#;
    let odd = "locals {\n  a = {b = 1, c = 2 d = 3}\n}\n".to_owned();
    for (name, text, expected) in [
        ("terragrunt.hcl", terragrunt("\"../mod/sub\""), "~> 1.5.0"),
        ("terragrunt.hcl", terragrunt("\"../mod//sub\""), "~> 1.5.0"),
        ("terragrunt.hcl", odd + &terragrunt("\"../mod//sub\""), "~> 1.5.0"),
        ("terragrunt.hcl.json", json.to_owned(), "~> 1.5.0"),
        ("terragrunt.hcl", terragrunt("\"git::https://x/mod//sub\""), "any stable version"),
        ("terragrunt.hcl", terragrunt("\"../missing\""), "any stable version"),
        ("terragrunt.hcl", terragrunt("local.x"), "any stable version"),
    ] {
        let dir = tree(&[module, (&format!("live/{name}"), &text)]);
        assert_eq!(look(&dir.path().join("live")).request.to_string(), expected, "{text}");
    }
}

#[test]
fn file_that_a_terragrunt_unit_overwrites_counts_with_its_new_text() {
    let module = ("mod/main.tf", "terraform {\n  required_version = \"~> 1.5.0\"\n}\n");
    let quoted = r#""terraform { required_version = \"~> 1.6.0\" }""#;
    let heredoc = "<<-EOF\n  terraform {\n    required_version = \"~> 1.6.0\"\n  }\n  provider \"x\" {\n    \
        a = ${local.x}\n  }\n  EOF";
    let evaluated = r#""terraform { required_version = \"${local.x}\" }""#;
    let generate = |path: &str, attributes: &str, contents: &str| {
        format!(
            "terraform {{\n  source = \"../mod\"\n}}\ngenerate \"x\" {{\n  path = \"{path}\"\n  {attributes}\n  \
             contents = {contents}\n}}\n"
        )
    };
    let (overwrites, terragrunt) =
        ("if_exists = \"overwrite\"", "if_exists = \"overwrite_terragrunt\"");
    let odd = "locals {\n  a = {b = 1, c = 2 d = 3}\n}\n".to_owned();
    let json = format!(
        r#"{{"terraform": {{"source": "../mod"}}, "generate": {{"x": {{"path": "main.tf", "if_exists": "overwrite",
            "contents": {quoted}}}}}}}"#
    );
    for (name, text, expected) in [
        ("terragrunt.hcl", generate("main.tf", overwrites, quoted), "~> 1.6.0"),
        ("terragrunt.hcl", generate("./main.tf", terragrunt, heredoc), "~> 1.6.0"),
        ("terragrunt.hcl", odd + &generate("main.tf", overwrites, quoted), "~> 1.6.0"),
        ("terragrunt.hcl.json", json, "~> 1.6.0"),
        ("terragrunt.hcl", generate("main.tf", overwrites, "\"\""), "any stable version"),
        ("terragrunt.hcl", generate("main.tf", overwrites, evaluated), "any stable version"),
        ("terragrunt.hcl", generate("main.tf", overwrites, "local.x"), "any stable version"),
        ("terragrunt.hcl", generate("main.tf", "if_exists = \"skip\"", quoted), "~> 1.5.0"),
        ("terragrunt.hcl", generate("${local.x}.tf", overwrites, quoted), "~> 1.5.0"),
        ("terragrunt.hcl", generate("sub/main.tf", overwrites, quoted), "~> 1.5.0"),
        (
            "terragrunt.hcl",
            generate("main.tf", &format!("{overwrites}\n  disable = true"), quoted),
            "~> 1.5.0",
        ),
        (
            "terragrunt.hcl",
            generate("main.tf", &format!("{overwrites}\n  disable = false"), quoted),
            "~> 1.6.0",
        ),
    ] {
        let dir = tree(&[module, (&format!("live/{name}"), &text)]);
        assert_eq!(look(&dir.path().join("live")).request.to_string(), expected, "{text}");
    }
}

/// What the unit in `live` of a tree requires, and the places where that is found.
fn unit(files: &[(&str, &str)]) -> (String, Vec<String>) {
    let dir = tree(files);
    let root = dir.path().canonicalize().unwrap();
    let wanted = look(&dir.path().join("live"));
    let found = wanted.trace.into_iter().filter(|finding| finding.text.starts_with("required"));
    let places = found.map(|finding| finding.place.replace(&*root.to_string_lossy(), "DIR"));
    (wanted.request.to_string(), places.collect())
}

/// A `generate` block with these attributes besides.
fn generate(path: &str, attributes: &str, contents: &str) -> String {
    format!("generate \"x\" {{\n  path = \"{path}\"\n  {attributes}\n  contents = {contents}\n}}\n")
}

const RUNS_MOD: &str = "terraform {\n  source = \"../mod\"\n}\n";
/// The contents of a `generate` block.
const REQUIRES_1_6: &str = r#""terraform { required_version = \"~> 1.6.0\" }""#;
const OVERWRITES: &str = "if_exists = \"overwrite_terragrunt\"";

#[test]
fn file_of_a_terragrunt_unit_takes_the_place_of_the_one_in_the_module() {
    let (old, new) = (terraform("\"~> 1.5.0\""), terraform("\"~> 1.9\""));
    for (theirs, ours, expected) in [
        ("versions.tf", "versions.tf", "~> 1.9"),
        ("versions_override.tf", "versions_override.tf", "~> 1.9"),
        ("versions.tf", "versions_override.tf", "~> 1.9"),
        ("versions_override.tf", "versions.tf", "~> 1.5.0"),
        ("versions.tf", "more.tf", "~> 1.9, ~> 1.5.0"),
    ] {
        let (theirs, ours) = (format!("mod/{theirs}"), format!("live/{ours}"));
        let files = [("live/terragrunt.hcl", RUNS_MOD), (&theirs, &old), (&ours, &new)];
        assert_eq!(unit(&files).0, expected, "{ours} over {theirs}");
    }
}

#[test]
fn contradiction_of_a_terragrunt_unit_and_its_module_names_both_files() {
    let (old, new) = (terraform("\"~> 1.5.0\""), terraform("\"~> 1.9\""));
    let generated = RUNS_MOD.to_owned() + &generate("a.tf", OVERWRITES, REQUIRES_1_6);
    for (files, expected) in [
        (
            &[("live/terragrunt.hcl", RUNS_MOD), ("live/a.tf", &*new), ("mod/main.tf", &*old)][..],
            ["~> 1.9 (DIR/live/a.tf:2)", "~> 1.5.0 (DIR/mod/main.tf:2)"],
        ),
        (
            &[("live/terragrunt.hcl", &*generated), ("mod/main.tf", &*old)],
            [
                "~> 1.6.0 (DIR/live/terragrunt.hcl, which generates a.tf)",
                "~> 1.5.0 (DIR/mod/main.tf:2)",
            ],
        ),
    ] {
        let dir = tree(files);
        let root = dir.path().canonicalize().unwrap();
        let places = look(&dir.path().join("live")).request.contradiction().unwrap();
        assert_eq!(places.map(|text| text.replace(&*root.to_string_lossy(), "DIR")), expected);
    }
}

#[test]
fn file_that_a_terragrunt_unit_generates_counts_where_none_was_before() {
    let module = ("mod/main.tf", &*terraform("\"~> 1.5.0\""));
    let over = "versions_override.tf";
    let null = r#""terraform { required_version = null }""#;
    let evaluated = r#""terraform { required_version = \"${local.x}\" }""#;
    let (skip, error) = ("if_exists = \"skip\"", "if_exists = \"error\"");
    for (block, expected) in [
        (generate(over, OVERWRITES, REQUIRES_1_6), "~> 1.6.0"),
        (generate(over, skip, REQUIRES_1_6), "~> 1.6.0"),
        (generate(over, error, REQUIRES_1_6), "~> 1.6.0"),
        (generate(over, "if_exists = local.x", REQUIRES_1_6), "~> 1.6.0"),
        (generate("versions.tf", OVERWRITES, REQUIRES_1_6), "~> 1.5.0, ~> 1.6.0"),
        (generate("versions.tofu", OVERWRITES, REQUIRES_1_6), "~> 1.5.0"),
        (generate("versions.txt", OVERWRITES, REQUIRES_1_6), "~> 1.5.0"),
        (generate("/versions.tf", OVERWRITES, REQUIRES_1_6), "~> 1.5.0"),
        (generate("sub/versions.tf", OVERWRITES, REQUIRES_1_6), "~> 1.5.0"),
        (generate(over, OVERWRITES, null), "any stable version"),
        (generate(over, OVERWRITES, evaluated), "~> 1.5.0"),
        (generate(over, &format!("{OVERWRITES}\n  disable = true"), REQUIRES_1_6), "~> 1.5.0"),
        (generate(over, &format!("{OVERWRITES}\n  disable = local.x"), REQUIRES_1_6), "~> 1.5.0"),
    ] {
        let odd = "locals {\n  a = {b = 1, c = 2 d = 3}\n}\n";
        for text in [RUNS_MOD.to_owned() + &block, odd.to_owned() + RUNS_MOD + &block] {
            assert_eq!(unit(&[module, ("live/terragrunt.hcl", &text)]).0, expected, "{text}");
        }
    }
    let text = RUNS_MOD.to_owned() + &generate(over, OVERWRITES, REQUIRES_1_6);
    let (_, places) = unit(&[module, ("live/terragrunt.hcl", &text)]);
    let expected =
        ["DIR/mod/main.tf:2", "DIR/live/terragrunt.hcl, which generates versions_override.tf"];
    assert_eq!(places, expected);
    let json = format!(
        r#"{{"terraform": {{"source": "../mod"}}, "generate": {{"x": {{"path": "{over}", "if_exists": "skip",
            "contents": {REQUIRES_1_6}}}}}}}"#
    );
    assert_eq!(unit(&[module, ("live/terragrunt.hcl.json", &json)]).0, "~> 1.6.0");
}

#[test]
fn disabled_block_of_a_terragrunt_unit_removes_the_file_where_it_says_so() {
    let module = ("mod/versions.tf", &*terraform("\"~> 1.5.0\""));
    for (if_disabled, expected) in [
        ("remove", "any stable version"),
        ("remove_terragrunt", "any stable version"),
        ("skip", "~> 1.5.0"),
    ] {
        let attributes = format!("disable = true\n  if_disabled = \"{if_disabled}\"");
        let text = RUNS_MOD.to_owned() + &generate("versions.tf", &attributes, REQUIRES_1_6);
        assert_eq!(unit(&[module, ("live/terragrunt.hcl", &text)]).0, expected, "{if_disabled}");
    }
}

#[test]
fn terragrunt_unit_without_a_source_is_its_own_module() {
    let own = ("live/main.tf", &*terraform("\"~> 1.5.0\""));
    let evaluated = r#""terraform { required_version = \"${local.x}\" }""#;
    for (block, expected) in [
        (generate("versions_override.tf", OVERWRITES, REQUIRES_1_6), "~> 1.6.0"),
        (generate("versions_override.tf", "if_exists = \"skip\"", REQUIRES_1_6), "~> 1.6.0"),
        // It is as terragrunt wrote it last, or terraform runs without terragrunt.
        (generate("main.tf", OVERWRITES, REQUIRES_1_6), "~> 1.5.0"),
        (generate("main.tf", "if_exists = \"skip\"", REQUIRES_1_6), "~> 1.5.0"),
        (
            generate("main.tf", "disable = true\n  if_disabled = \"remove\"", REQUIRES_1_6),
            "~> 1.5.0",
        ),
        (generate("main.tf", OVERWRITES, evaluated), "~> 1.5.0"),
        (generate("main.tf", OVERWRITES, "local.x"), "~> 1.5.0"),
    ] {
        assert_eq!(unit(&[own, ("live/terragrunt.hcl", &block)]).0, expected, "{block}");
    }
}

/// The module may have a file of that name.
#[test]
fn generated_file_that_gives_way_to_an_unknown_one_is_passed_over() {
    for source in ["\"git::https://x/mod\"", "local.x", "\"../missing\""] {
        for (if_exists, expected) in [
            (OVERWRITES, "~> 1.6.0"),
            ("if_exists = \"error\"", "~> 1.6.0"),
            ("if_exists = \"skip\"", "any stable version"),
        ] {
            let text = format!("terraform {{\n  source = {source}\n}}\n")
                + &generate("versions.tf", if_exists, REQUIRES_1_6);
            let files = [("live/terragrunt.hcl", &*text)];
            assert_eq!(unit(&files).0, expected, "{text}");
        }
    }
}

#[test]
fn child_module_in_a_terragrunt_unit_is_put_over_the_one_of_the_module() {
    let call = "module \"a\" {\n  source = \"./a\"\n}\nmodule \"b\" {\n  source = \"./b\"\n}\n";
    let [one, two, three] = ["\"~> 1.5.0\"", "\"< 1.9\"", "\"> 1.6\""].map(terraform);
    let up = "module \"c\" {\n  source = \"../c\"\n}\n";
    let files = [
        ("live/terragrunt.hcl", RUNS_MOD),
        ("mod/main.tf", call),
        ("mod/a/main.tf", &one),
        ("live/a/main.tf", &two),
        // Only in the unit, and it calls another one.
        ("live/b/main.tf", up),
        ("live/c/main.tf", &three),
    ];
    let (_, mut places) = unit(&files);
    places.sort();
    assert_eq!(places, ["DIR/live/a/main.tf:2", "DIR/live/c/main.tf:2"]);
    // Beside the unit are other units, not modules.
    let files = [
        ("live/terragrunt.hcl", RUNS_MOD),
        ("mod/main.tf", up),
        ("c/main.tf", &one),
        ("live/c/main.tf", &two),
    ];
    assert_eq!(unit(&files).1, ["DIR/c/main.tf:2"]);
}
