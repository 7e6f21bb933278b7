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
