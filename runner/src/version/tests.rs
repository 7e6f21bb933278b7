mod files;

use std::path::Path;

use crate::version::{Request, SearchContext, ToolName, ToolRequest, VersionError, Wanted, wanted};

/// A temporary directory with these files in it.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

fn look(dir: &Path) -> Wanted {
    wanted(None, None, dir, &SearchContext::default()).unwrap()
}

fn asked(files: &[(&str, &str)]) -> String {
    let dir = tree(files);
    let wanted = look(dir.path());
    format!("{} {}", wanted.tool, wanted.request)
}

fn refusal(files: &[(&str, &str)]) -> String {
    let dir = tree(files);
    let error = wanted(None, None, dir.path(), &SearchContext::default()).unwrap_err();
    let text = match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    text.replace(&dir.path().canonicalize().unwrap().display().to_string(), "DIR")
}

fn terraform(text: &str) -> String {
    format!("terraform {{\n  required_version = {text}\n}}\n")
}

#[test]
fn a_tool_is_asked_for_with_or_without_a_version() {
    let tool = |tool, request: Option<&str>| {
        Some(ToolRequest { tool, request: request.map(str::to_owned) })
    };
    assert_eq!(ToolRequest::parse("tofu").unwrap(), tool(ToolName::Tofu, None));
    assert_eq!(
        ToolRequest::parse("terraform@~> 1.9").unwrap(),
        tool(ToolName::Terraform, Some("~> 1.9"))
    );
    assert_eq!(ToolRequest::parse("live/vpc").unwrap(), None);
    assert_eq!(ToolRequest::parse("Terraform").unwrap(), None);
    assert_eq!(ToolRequest::parse("a@b").unwrap(), None);
    ToolRequest::parse("tofu@").unwrap_err();
    ToolRequest::parse("tofu@ ").unwrap_err();
}

#[test]
fn the_words_of_a_request_are_understood() {
    for (text, shown) in [
        ("1.9.8", "1.9.8"),
        ("v1.5", "1.5.0"),
        ("latest", "latest"),
        ("latest-stable", "latest"),
        ("latest-pre", "latest-pre"),
        ("~> 1.9", "~> 1.9"),
        ("=1.9.8", "=1.9.8"),
        ("1.2.3.4", "1.2.3.4"),
        ("latest:^1\\.9", "latest:^1\\.9"),
        ("min:-rc", "min:-rc"),
        ("alpha-2025031901", "alpha-2025031901"),
    ] {
        assert_eq!(text.parse::<Request>().unwrap().to_string(), shown);
    }
    assert!(matches!("1.9".parse::<Request>(), Ok(Request::Exact(_))));
    for text in [
        "",
        "newest",
        "latest:(",
        "min:[1",
        "1.x",
        "1.9.8 # why",
        "1.9.8\n1.9.9",
        "1.5.7-",
        "1.2.3.4-",
    ] {
        text.parse::<Request>().unwrap_err();
    }
}

#[test]
fn the_nearest_version_file_decides_and_a_blank_one_does_not() {
    let dir = tree(&[
        (".terraform-version", "1.5.7\n"),
        ("a/.terraform-version", " 1.9.8 \r\n"),
        ("a/b/.terraform-version", " \n"),
        ("a/b/main.tf", &terraform("\"~> 1.3\"")),
    ]);
    assert_eq!(look(&dir.path().join("a/b")).request.to_string(), "1.9.8");
    assert_eq!(look(dir.path()).request.to_string(), "1.5.7");
    let origin = look(&dir.path().join("a")).origin;
    assert!(origin.ends_with("a/.terraform-version"), "{origin}");
}

#[test]
fn the_home_comes_after_all_parents() {
    let home = tree(&[(".terraform-version", "1.0.0")]);
    let dir = tree(&[("a/main.tf", "")]);
    let context = SearchContext { home: Some(home.path().to_owned()), ..SearchContext::default() };
    let at = |path: &str| wanted(None, None, &dir.path().join(path), &context).unwrap();
    assert_eq!(at("a").request.to_string(), "1.0.0");
    std::fs::write(dir.path().join(".terraform-version"), "1.1.0").unwrap();
    assert_eq!(at("a").request.to_string(), "1.1.0");
}

#[test]
fn what_is_given_goes_before_what_is_found() {
    let dir = tree(&[(".opentofu-version", "1.8.0"), (".terraform-version", "1.9.8")]);
    let given = |tool, text| {
        let asked = Some((text, "--tool-version"));
        wanted(tool, asked, dir.path(), &SearchContext::default()).unwrap()
    };
    let both = given(Some(ToolName::Terraform), "1.2.3");
    assert_eq!((both.tool, both.request.to_string()), (ToolName::Terraform, "1.2.3".to_owned()));
    assert_eq!(both.origin, "--tool-version");
    assert_eq!(given(None, "1.2.3").tool, ToolName::Tofu);
    assert_eq!(given(Some(ToolName::Terraform), " ").request.to_string(), "1.9.8");
    let (tool, asked) = (Some(ToolName::Tofu), Some(("1.9", "x")));
    let nowhere = wanted(tool, asked, Path::new("/no/such/dir"), &SearchContext::default());
    assert_eq!(nowhere.unwrap().request.to_string(), "1.9.0");
}

#[test]
fn the_tool_is_the_one_that_a_file_names() {
    assert_eq!(asked(&[]), "terraform any stable version");
    assert_eq!(asked(&[(".opentofu-version", "1.8.0")]), "tofu 1.8.0");
    assert_eq!(asked(&[("main.tofu", "")]), "tofu any stable version");
    assert_eq!(asked(&[("main.tofu", ""), (".terraform-version", "1.9.8")]), "terraform 1.9.8");
    let dir = tree(&[(".terraform-version", "1.9.8"), ("a/main.tofu", "")]);
    assert_eq!(look(&dir.path().join("a")).tool, ToolName::Tofu);
}

#[test]
fn every_required_version_counts() {
    let files = [
        ("b.tf", terraform("\"~> 1.5\"") + &terraform("\"!= 1.5.5\"")),
        ("a.tf", terraform("<<-EOT\n    >= 1.4\n  EOT")),
        ("c.tf.json", r#"{"terraform": [{"required_version": "< 1.9"}, {}], "//": 1}"#.to_owned()),
        ("d.tf.json", r#"{"terraform": {"required_version": 1}}"#.to_owned()),
        ("e.tf", "\u{feff}".to_owned() + &terraform("\"< ${\"1.8\"}\"")),
        ("f.tf", terraform("null")),
        ("g.tf", "# required_version = \"9\"\nlocals {\n required_version = 9\n}".to_owned()),
        (".hidden.tf", terraform("\"9\"")),
        ("backup.tf~", terraform("\"9\"")),
        ("#a.tf#", terraform("\"9\"")),
        ("a.tofu.bak", terraform("\"9\"")),
        ("deeper/main.tf", terraform("\"9\"")),
    ];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(asked(&files), "terraform >= 1.4, ~> 1.5, != 1.5.5, < 1.9, 1, < 1.8");
}

#[test]
fn an_override_file_replaces_what_was_required() {
    let (main, first, second) = (terraform("\"1.1\""), terraform("\"1.2\""), terraform("\"1.3\""));
    let files = [("main.tf", main.as_str()), ("a_override.tf", &first), ("override.tf", "")];
    assert_eq!(asked(&files), "terraform 1.2");
    let files = [("main.tf", main.as_str()), ("a_override.tf", &first), ("override.tf", &second)];
    assert_eq!(asked(&files), "terraform 1.3");
}

/// As terraform 1.11.4 has it: `null` requires nothing, and in an override file it replaces what did.
#[test]
fn null_in_an_override_file_removes_what_was_required() {
    let main = "terraform {\n  required_version = \"~> 1.9.0\"\n}\n";
    let null = "terraform {\n  required_version = null\n}\n";
    let json = r#"{"terraform": {"required_version": null}}"#;
    let removed = allowed(&[("main.tf", ""), ("other.tf", "")]);
    assert_eq!(allowed(&[("main.tf", main), ("override.tf", null)]), removed);
    assert_eq!(allowed(&[("main.tf", main), ("x_override.tf.json", json)]), removed);
    assert_ne!(allowed(&[("main.tf", main), ("other.tf", null)]), removed);
}

/// The tools refuse a prerelease where it counts in the end, not where an override file replaces it.
#[test]
fn a_prerelease_that_an_override_file_replaces_is_no_obstacle() {
    let (main, over) = (terraform("\"> 0.12.0-beta1, ~> 1.11.3\""), terraform("\"!= 1.11.3\""));
    let files = [("main.tf", main.as_str()), ("x_override.tf", over.as_str())];
    assert_eq!(asked(&files), "terraform != 1.11.3");
    assert_eq!(allowed(&files), ["1.6.0", "1.11.0", "1.12.0", "1.12.6"]);
    let says = "`> 0.12.0-beta1` names a prerelease";
    for files in [
        &[("main.tf", main.as_str()), ("x_override.tf", "")][..],
        &[("main.tf", &over), ("x_override.tf", &main)],
        &[("main.tf", &over), ("more.tf", &main)],
    ] {
        assert!(refusal(files).contains(says), "{}", refusal(files));
    }
    // OpenTofu replaces it before 1.12, and adds to it from then on.
    let files = [("main.tofu", main.as_str()), ("x_override.tofu", over.as_str())];
    assert_eq!(allowed(&files), ["1.6.0", "1.11.0"]);
}

#[test]
fn what_must_be_evaluated_is_passed_over() {
    for text in ["var.v", "file(\"x\")", "\"~> ${var.v}\"", "true"] {
        assert_eq!(asked(&[("main.tf", &terraform(text))]), "terraform any stable version");
    }
}

#[test]
fn a_broken_file_is_named_with_its_line_and_column() {
    insta::assert_snapshot!(refusal(&[("main.tf", &terraform("\"^1.5\""))]), @"DIR/main.tf:2: not a version request: `^1.5` is not a valid version constraint (`>= 1.5, < 2`: = != > >= < <= ~> and commas)");
    insta::assert_snapshot!(refusal(&[(".terraform-version", "1.9.8 # stay\n")]), @"DIR/.terraform-version: not a version request: `1.9.8 # stay` is not a valid version, constraint or keyword");
    insta::assert_snapshot!(refusal(&[(".opentofu-version", "latest:^(1")]), @"DIR/.opentofu-version: not a version request: `^(1` is not a valid regular expression (RE2)");
}

/// The tool reports what is really wrong: the parser also refuses files that the tools accept.
#[test]
fn a_file_that_the_parser_refuses_is_read_all_the_same() {
    let broken = "terraform {\n  required_version = \"1.5\" }\n  x = \n}";
    assert_eq!(asked(&[("main.tf", broken)]), "terraform 1.5");
    let odd = "x = { a = 1, a = 2 }\n";
    let main = odd.to_owned() + &terraform("\"< 2\"") + "module \"m\" {\n source = \"./m\"\n}\n";
    let child = odd.to_owned() + &terraform("<<E\n> 1\nE");
    let files = [("main.tf", main.as_str()), ("m/main.tf", &child)];
    assert_eq!(asked(&files), "terraform < 2, > 1");
    let dir = tree(&files);
    let why = look(dir.path()).trace.into_iter().map(|reason| reason.place).collect::<Vec<_>>();
    assert!(why[0].ends_with("main.tf:3") && why[1].ends_with("m/main.tf:3"), "{why:?}");
    let terragrunt = odd.to_owned() + "terraform_version_constraint = \"~> 1.5\"\n";
    assert_eq!(asked(&[("terragrunt.hcl", &terragrunt)]), "terraform ~> 1.5");
    let json =
        r#"{"terraform": {"required_version": "< 2"}, "terraform": {"required_version": "> 1"}}"#;
    assert_eq!(asked(&[("main.tf.json", json)]), "terraform < 2, > 1");
    let language =
        odd.to_owned() + "language {\n compatible_with {\n  opentofu = \"> 1.12.0\"\n }\n}\n";
    assert_eq!(allowed(&[("main.tofu", &language)]), ["1.12.6"]);
    let dir = tree(&[]);
    std::fs::write(
        dir.path().join("main.tf"),
        [b"# caf\xe9\n", terraform("\"1.5\"").as_bytes()].concat(),
    )
    .unwrap();
    assert_eq!(look(dir.path()).request.to_string(), "1.5");
}

#[test]
fn json_that_does_not_parse_is_read_all_the_same() {
    let required = "{\n  \"terraform\": {\"required_version\": \"1.9.8\"},\n}";
    assert_eq!(asked(&[("a.tf.json", required)]), "terraform 1.9.8");
    let unknown = "{\n \"required_version\": ]";
    assert_eq!(asked(&[("a.tf.json", unknown)]), "terraform any stable version");
    let terragrunt = "{\"terraform_version_constraint\": \"1.7.0\",}";
    assert_eq!(asked(&[("terragrunt.hcl.json", terragrunt)]), "terraform 1.7.0");
}

#[test]
fn nothing_is_read_without_a_limit() {
    let dir = tree(&[(".terraform-version", &" ".repeat(65 * 1024))]);
    let error = wanted(None, None, dir.path(), &SearchContext::default()).unwrap_err();
    assert!(matches!(error, VersionError::TooLarge { limit: 65_536, .. }), "{error}");

    let dir = tree(&[]);
    let sparse = std::fs::File::create(dir.path().join("main.tf")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let error = wanted(None, None, dir.path(), &SearchContext::default()).unwrap_err();
    assert!(matches!(error, VersionError::TooLarge { limit: 16_777_216, .. }), "{error}");
}

#[test]
fn what_is_no_file_is_passed_over() {
    let dir = tree(&[
        (".terraform-version/x", ""),
        ("modules.tf/x", ""),
        ("main.tf", &terraform("\"1.5\"")),
    ]);
    nix::unistd::mkfifo(&dir.path().join("pipe.tf"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    nix::unistd::mkfifo(&dir.path().join(".opentofu-version"), nix::sys::stat::Mode::S_IRWXU)
        .unwrap();
    assert_eq!(look(dir.path()).request.to_string(), "1.5");
}

#[test]
fn a_nest_of_brackets_does_not_overflow_the_stack() {
    let nest = format!("required_version = {}", "[".repeat(1 << 20));
    assert_eq!(asked(&[("main.tf", &nest)]), "terraform any stable version");
    let deep = format!("x = {}1{}\n", "(".repeat(1 << 10), ")".repeat(1 << 10));
    assert_eq!(asked(&[("main.tf", &(deep + &terraform("\"1.5\"")))]), "terraform 1.5");
    let nest = format!("{{\"required_version\": {}", "[".repeat(1 << 20));
    assert_eq!(asked(&[("main.tf.json", &nest)]), "terraform any stable version");
}

/// Which of some versions a directory of OpenTofu allows.
fn allowed(files: &[(&str, &str)]) -> Vec<&'static str> {
    let dir = tree(files);
    let wanted = wanted(Some(ToolName::Tofu), None, dir.path(), &SearchContext::default()).unwrap();
    let candidates = ["1.6.0", "1.11.0", "1.12.0-beta1", "1.12.0", "1.12.6"];
    candidates.into_iter().filter(|text| wanted.request.allows(&text.parse().unwrap())).collect()
}

#[test]
fn opentofu_passes_over_a_pin_of_terraform_from_1_12_on() {
    let pin = terraform("\"1.6.0\"");
    assert_eq!(allowed(&[("main.tf", &pin)]), ["1.6.0", "1.12.0", "1.12.6"]);
    assert_eq!(allowed(&[("main.tofu", &pin)]), ["1.6.0"]);
    assert_eq!(
        allowed(&[("main.tf", &pin), ("main.tofu", "")]),
        ["1.6.0", "1.11.0", "1.12.0", "1.12.6"]
    );
    assert_eq!(
        allowed(&[("main.tf", &pin), ("main.tofu.json", "{}")]),
        ["1.6.0", "1.12.0", "1.12.6"]
    );
    let language = "language {\n  compatible_with {\n    opentofu = \"< 1.12.6\"\n  }\n}\n";
    assert_eq!(allowed(&[("main.tf", language)]), ["1.12.0"]);
    let json = r#"{"language": {"compatible_with": {"opentofu": "> 1.12.0"}}}"#;
    assert_eq!(allowed(&[("main.tf.json", json)]), ["1.12.6"]);
    assert_eq!(asked(&[("main.tf", language)]), "terraform any stable version");
}

#[test]
fn an_override_file_of_opentofu_1_12_adds_constraints() {
    let (main, over) = (terraform("\"< 1.12.6\""), terraform("\">= 1.11\""));
    let files = [("main.tofu", main.as_str()), ("override.tofu", over.as_str())];
    assert_eq!(allowed(&files), ["1.11.0", "1.12.0"]);
    assert_eq!(allowed(&[("main.tofu", &terraform("\"1.6.0\"")), files[1]]), ["1.11.0"]);
    let language = |text: &str| {
        format!("language {{\n  compatible_with {{\n    opentofu = \"{text}\"\n  }}\n}}\n")
    };
    let (main, over) = (language("< 1.12.6"), language("> 1.0"));
    assert_eq!(allowed(&[("main.tf", &main), ("main_override.tf", &over)]), ["1.12.0"]);
}

#[test]
fn the_lowest_is_chosen_where_that_is_asked() {
    let dir =
        tree(&[(".terraform-version", "min-required"), ("main.tf", &terraform("\"~> 1.5\""))]);
    let versions = ["1.4.0", "1.6.0", "1.5.1", "1.5.0-rc1"].map(|text| text.parse().unwrap());
    let wanted = look(dir.path());
    assert_eq!(wanted.request.best(&versions).unwrap().to_string(), "1.5.1");
    assert!(matches!(
        look(tree(&[(".terraform-version", "min-required")]).path()).request,
        Request::Latest
    ));
}

#[test]
fn the_why_names_every_place() {
    let dir = tree(&[("main.tofu", ""), ("a.tf", &terraform("\"~> 1.5\""))]);
    let why: Vec<_> = look(dir.path())
        .trace
        .iter()
        .map(|reason| format!("{}: {}", reason.place, reason.text))
        .collect();
    let why =
        why.join("\n").replace(&dir.path().canonicalize().unwrap().display().to_string(), "DIR");
    insta::assert_snapshot!(why, @r"
    DIR/main.tofu: only OpenTofu reads this file
    DIR/a.tf:2: required_version ~> 1.5
    ");
}

/// The best of some versions of a request's.
fn best(request: &str) -> Option<String> {
    let versions = [
        "1.5.6",
        "1.5.7",
        "1.9.8",
        "1.10.0",
        "1.10.0-rc1",
        "1.11.0-alpha2",
        "1.11.0-beta1",
        "alpha-1",
    ];
    let versions: Vec<_> = versions.iter().map(|text| text.parse().unwrap()).collect();
    request.parse::<Request>().unwrap().best(&versions).map(ToString::to_string)
}

#[test]
fn the_best_version_is_the_one_that_the_request_means() {
    for (request, expected) in [
        ("1.5", None),
        ("1.5.7", Some("1.5.7")),
        ("v1.10", Some("1.10.0")),
        ("1.10.0-rc1", Some("1.10.0-rc1")),
        ("alpha-1", Some("alpha-1")),
        ("alpha1", None),
        ("latest", Some("1.10.0")),
        ("latest-stable", Some("1.10.0")),
        ("latest-pre", Some("1.11.0-beta1")),
        ("latest:^1\\.5\\.", Some("1.5.7")),
        ("latest:5", Some("1.5.7")),
        ("latest:alpha", Some("1.11.0-alpha2")),
        ("latest:(?i)RC", Some("1.10.0-rc1")),
        ("latest:\\d-", Some("1.11.0-beta1")),
        ("latest:", Some("1.11.0-beta1")),
        ("latest:^1\\.5\\.[0-6]$", Some("1.5.6")),
        ("min:^1\\.1", Some("1.10.0-rc1")),
        ("min:.", Some("1.5.6")),
        ("min:^2", None),
        ("~> 1.5.0", Some("1.5.7")),
        ("~> 1", Some("1.10.0")),
        ("< 1.10", Some("1.9.8")),
        ("> 1.5.6, < 1.9, != 1.5.7", None),
        ("!= 1.10.0", Some("1.9.8")),
        (">= 1.11.0-alpha1", Some("1.11.0-beta1")),
    ] {
        assert_eq!(best(request).as_deref(), expected, "{request}");
    }
}

#[test]
fn a_regular_expression_that_would_eat_all_memory_is_refused() {
    for text in ["latest:(a{1000}){1000}", "latest:\\p{Greek}", "min:(?P<", "latest:\\1"] {
        text.parse::<Request>().unwrap_err();
    }
    let nest = format!("latest:{}", "(".repeat(100_000));
    nest.parse::<Request>().unwrap_err();
}

#[test]
fn local_child_modules_count_however_deep_and_in_circles() {
    let module = |source: &str| format!("module \"m\" {{\n  source = \"{source}\"\n}}\n");
    let files = [
        ("main.tf", module("./a") + &module("hashicorp/consul/aws").replace("\"m\"", "\"n\"")),
        ("a/main.tf", terraform("\">= 1.2\"") + &module("../b")),
        ("b/main.tf.json", r#"{"terraform": {"required_version": "< 1.9"}, "module": [{"m": {"source": "../a/"}}, {"x": [{"source": "./none"}]}]}"#.to_owned()),
        ("c/main.tf", terraform("\"9\"")),
    ];
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    assert_eq!(asked(&files), "terraform >= 1.2, < 1.9");
    // Terraform has it that an override file's module takes the place of the other.
    let (over, one) = (module("./c"), terraform("\"1\""));
    let mut files = files;
    files.extend([("z_override.tf", over.as_str()), ("d/main.tf", &one)]);
    assert_eq!(asked(&files), "terraform 9");
}

#[test]
fn a_child_module_of_opentofu_follows_opentofus_rules() {
    let pin = terraform("\"1.6.0\"");
    let module = "module \"m\" {\n  source = \"./a\"\n}\n";
    assert_eq!(allowed(&[("main.tf", module), ("a/main.tf", &pin)]), ["1.6.0", "1.12.0", "1.12.6"]);
    assert_eq!(allowed(&[("main.tf", module), ("a/main.tofu", &pin)]), ["1.6.0"]);
}

#[test]
fn a_module_that_is_no_literal_or_not_there_is_passed_over() {
    for source in ["var.x", "\"./${var.x}\"", "\"./missing\"", "\"./main.tf\"", "null"] {
        let text = format!("module \"m\" {{\n  source = {source} # \"./\n}}\n");
        assert_eq!(asked(&[("main.tf", &text)]), "terraform any stable version", "{source}");
    }
}

#[test]
fn what_was_read_is_told() {
    let dir = tree(&[
        (".terraform-version", " "),
        ("terragrunt.hcl", "inputs = {}"),
        ("main.tf", "module \"m\" {\n  source = \"./a\"\n}\n"),
        ("a/x.tf", ""),
    ]);
    let root = dir.path().canonicalize().unwrap();
    let looked_at = look(dir.path()).files_read;
    let names: Vec<_> = looked_at.iter().map(|path| path.strip_prefix(&root).unwrap()).collect();
    let expected = [".terraform-version", "terragrunt.hcl", "main.tf", "a/x.tf"];
    assert_eq!(names, expected.map(Path::new));
}
