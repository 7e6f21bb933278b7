//! `runner resolve`: which version is selected, and why.

#![expect(clippy::disallowed_types, reason = "tests start the runner itself")]

use std::process::Command;

use support::{Ended, MirrorFault, MirroredTool, ReleaseMirror, Sandbox};

use MirroredTool::{Terraform, Tofu};

/// A sandbox in front of a mirror with some versions of both tools, and no tool on PATH.
pub(crate) struct Case {
    pub(crate) sandbox: Sandbox,
    pub(crate) mirror: ReleaseMirror,
}

impl Case {
    pub(crate) fn new() -> Self {
        let mirror = ReleaseMirror::start();
        for version in ["1.5.6", "1.5.7", "1.9.8", "1.10.0", "1.11.0-rc1"] {
            mirror.add_script(Terraform, version);
        }
        for version in ["1.6.0", "1.11.0", "1.12.6", "1.13.0-alpha1"] {
            mirror.add_script(Tofu, version);
        }
        Self { sandbox: Sandbox::new(env!("CARGO_BIN_EXE_runner")), mirror }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.sandbox.command(args);
        command
            .env_remove("PLANCHA_OFFLINE")
            .env("PATH", self.sandbox.path("bin"))
            .env("TFENV_REMOTE", self.mirror.url(Terraform))
            .env("PLANCHA_TOFU_URL", self.mirror.url(Tofu))
            .env("PLANCHA_KEYRING", self.mirror.keyring());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.command(args).output().unwrap().into()
    }

    /// The same while the mirrors refuse connections.
    pub(crate) fn run_without_network(&self, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        command
            .env("TFENV_REMOTE", "http://127.0.0.1:1")
            .env("PLANCHA_TOFU_URL", "http://127.0.0.1:1");
        command.output().unwrap().into()
    }

    /// The version that is resolved.
    fn resolve(&self, args: &[&str]) -> String {
        let ended = self.run(&[&["resolve"], args].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        ended.stdout.trim_end().to_owned()
    }

    /// Puts a tool of this version on PATH.
    pub(crate) fn on_path(&self, tool: MirroredTool, version: &str) {
        self.sandbox.script(tool.program(), &support::release_mirror::script(version));
    }
}

fn terraform(constraint: &str) -> String {
    format!("terraform {{\n  required_version = \"{constraint}\"\n}}\n")
}

#[test]
fn exact_version_needs_no_network() {
    let case = Case::new();
    assert_eq!(case.resolve(&["terraform@1.2.3"]), "1.2.3");
    assert_eq!(case.resolve(&["tofu@v1.9"]), "1.9.0");
    case.sandbox.write(".terraform-version", "1.3.9\n");
    assert_eq!(case.resolve(&[]), "1.3.9");
    assert_eq!(case.mirror.all_requests(), 0);
}

#[test]
fn constraint_selects_from_the_published_versions() {
    let case = Case::new();
    for (request, version) in [
        ("terraform@latest", "1.10.0"),
        ("terraform@latest-pre", "1.11.0-rc1"),
        ("terraform@~> 1.5", "1.10.0"),
        ("terraform@~> 1.5.0, != 1.5.7", "1.5.6"),
        ("terraform@>= 1.11.0-alpha1", "1.11.0-rc1"),
        ("tofu@latest", "1.12.6"),
        ("tofu@< 1.11", "1.6.0"),
    ] {
        assert_eq!(case.resolve(&[request]), version, "{request}");
    }
}

#[test]
fn directory_determines_the_requested_version() {
    let case = Case::new();
    case.sandbox.write("vpc/versions.tf", &terraform("~> 1.5.0"));
    assert_eq!(case.resolve(&["vpc"]), "1.5.7");
    assert_eq!(case.resolve(&["terraform", "vpc"]), "1.5.7");
    case.sandbox.write("vpc/versions_override.tf", &terraform(">= 1.9, < 1.10"));
    assert_eq!(case.resolve(&["vpc"]), "1.9.8");
    case.sandbox.write(".terraform-version", "1.5.6");
    assert_eq!(case.resolve(&["vpc"]), "1.5.6", "a file of a parent goes before the configuration");
    case.sandbox.write("dns/main.tofu", &terraform("~> 1.11.0"));
    assert_eq!(case.resolve(&["dns"]), "1.11.0", "a file that only OpenTofu reads is nearer");
    assert_eq!(case.resolve(&["terraform@latest-allowed", "vpc"]), "1.9.8");
    assert_eq!(case.resolve(&["terraform@min-required", "vpc"]), "1.9.8");
}

#[test]
fn without_a_request_the_newest_stable_version_is_selected_and_reported() {
    let case = Case::new();
    let asked = |constraint: &str| {
        let mut command = case.command(&["resolve"]);
        let ended = Ended::from(
            command.env("TFENV_TERRAFORM_DEFAULT_CONSTRAINT", constraint).output().unwrap(),
        );
        assert_eq!(ended.code, 0, "{ended:?}");
        let (_, by) = ended.stderr.split_once("requested by ").unwrap();
        format!("{} {}", ended.stdout.trim_end(), by.trim_end())
    };
    assert_eq!(asked(""), "1.10.0 the runner's default");
    assert_eq!(asked("< 1.9"), "1.5.7 TFENV_TERRAFORM_DEFAULT_CONSTRAINT");
    case.sandbox.write("main.tf", &terraform("~> 1.9.0"));
    assert_eq!(asked(""), "1.9.8 required_version");
}

#[test]
fn json_output_explains_the_choice() {
    let case = Case::new();
    case.sandbox.write("main.tofu", &terraform("< 1.12"));
    let ended = case.run(&["resolve", "--json"]);
    let reported: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(reported["tool"], "tofu");
    assert_eq!(reported["version"], "1.11.0");
    assert_eq!(reported["request"], "< 1.12");
    let archive = case.mirror.archive_path(Tofu, "1.11.0");
    assert!(reported["source"].as_str().unwrap().ends_with(&archive), "{reported}");
    let why: Vec<_> = reported["why"]
        .as_array()
        .unwrap()
        .iter()
        .map(|why| why["place"].as_str().unwrap())
        .collect();
    let [tool, constraint, list] = why.as_slice() else { panic!("{reported}") };
    assert!(tool.ends_with("/main.tofu") && constraint.ends_with("/main.tofu:2"), "{reported}");
    assert!(list.contains("/tofu/api.json (fetched now)"), "{reported}");
    assert!(reported["looked_at"][0].as_str().unwrap().ends_with("/main.tofu"), "{reported}");
    let dropped = reported["dropped"].as_array().unwrap();
    let [constraint] = dropped.as_slice() else { panic!("{reported}") };
    assert_eq!(
        constraint["versions"],
        serde_json::json!(["1.12.6", "1.13.0-alpha1"]),
        "{reported}"
    );
    let because = constraint["because"].as_str().unwrap();
    assert!(because.starts_with("< 1.12 (/") && because.ends_with("/main.tofu:2)"), "{reported}");
}

#[test]
fn json_output_names_the_default_request() {
    let case = Case::new();
    case.sandbox.write("main.tf", "module \"vpc\" {\n  source = \"./vpc\"\n}\n");
    case.sandbox.write("vpc/main.tf", &terraform("~> 1.5.0"));
    let mut command = case.command(&["resolve", "--json"]);
    command.env("TFENV_TERRAFORM_DEFAULT_CONSTRAINT", "!= 1.5.7");
    let ended = Ended::from(command.output().unwrap());
    let reported: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&reported["version"], &reported["origin"]),
        (&"1.5.6".into(), &"required_version".into())
    );
    assert_eq!(reported["request"], "~> 1.5.0, != 1.5.7");
    assert_eq!(reported["looked_at"].as_array().unwrap().len(), 2, "{reported}");
    let dropped: Vec<_> = reported["dropped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|dropped| (dropped["because"].as_str().unwrap(), dropped["versions"].to_string()))
        .collect();
    assert_eq!(dropped[0], ("!= 1.5.7 (TFENV_TERRAFORM_DEFAULT_CONSTRAINT)", "[\"1.5.7\"]".into()));
    assert_eq!(dropped[1].1, r#"["1.9.8","1.10.0","1.11.0-rc1"]"#);
    let mut command = case.command(&["resolve"]);
    command.env("TFENV_TERRAFORM_VERSION", "1.9.8");
    assert_eq!(Ended::from(command.output().unwrap()).stdout, "1.9.8\n");
}

#[test]
fn version_list_is_cached_for_an_hour_and_then_revalidated_by_etag() {
    let case = Case::new();
    let list = case.mirror.list_path(Terraform);
    case.resolve(&["terraform@latest"]);
    case.mirror.add_script(Terraform, "1.10.1");
    assert_eq!(case.resolve(&["terraform@latest"]), "1.10.0");
    assert_eq!(case.mirror.requests(list), 1);
    assert_eq!(case.resolve(&["terraform@latest", "--refresh"]), "1.10.1");
    assert_eq!(case.mirror.requests(list), 2);

    let kept = case.sandbox.path("cache/plancha/lists/terraform.json");
    let text = std::fs::read_to_string(&kept).unwrap();
    let mut hour_old: serde_json::Value = serde_json::from_str(&text).unwrap();
    hour_old["fetched"] = (hour_old["fetched"].as_u64().unwrap() - 3600).into();
    std::fs::write(&kept, hour_old.to_string()).unwrap();
    let reported = case.run(&["resolve", "terraform@latest", "--json"]).stdout;
    assert!(reported.contains("(checked now, unchanged)"), "{reported}");
    assert_eq!(case.mirror.requests(list), 3);
    assert_eq!(case.resolve(&["terraform@latest"]), "1.10.1");
    assert_eq!(case.mirror.requests(list), 3, "an unchanged list is fresh again");

    for nonsense in ["", "{", "{\"url\": 1}", "\0"] {
        std::fs::write(&kept, nonsense).unwrap();
        assert_eq!(case.resolve(&["terraform@latest"]), "1.10.1");
    }
}

#[test]
fn constraint_prefers_installed_versions_and_latest_does_not() {
    let case = Case::new();
    support::executable(
        &case.sandbox.path("cache/plancha/bin/Terraform/1.5.6/terraform"),
        "#!/bin/sh\n",
    );
    assert_eq!(case.resolve(&["terraform@~> 1.5"]), "1.5.6");
    assert_eq!(case.resolve(&[]), "1.5.6");
    assert_eq!(case.mirror.all_requests(), 0);
    assert_eq!(case.resolve(&["terraform@~> 1.5", "--refresh"]), "1.10.0");
    assert_eq!(case.resolve(&["terraform@latest"]), "1.10.0");
    assert_eq!(case.resolve(&["terraform@~> 1.9"]), "1.10.0");
}

#[test]
fn partial_install_does_not_count() {
    let case = Case::new();
    let bin = case.sandbox.path("cache/plancha/bin/Terraform");
    std::fs::create_dir_all(bin.join("1.5.5")).unwrap();
    support::executable(&bin.join("1.5.4/terraform"), "");
    std::fs::create_dir_all(bin.join("1.5.3/terraform")).unwrap();
    std::fs::create_dir_all(bin.join("1.5.2")).unwrap();
    std::fs::write(bin.join("1.5.2/terraform"), "not executable").unwrap();
    support::executable(&bin.join("v1.5.1/terraform"), "not the name of a version");
    let ended = case.run(&["resolve", "terraform@< 1.5.6", "--offline"]);
    assert_eq!(ended.code, 8, "{ended:?}");
    support::executable(&bin.join("1.5.0/terraform"), "#!/bin/sh\n");
    assert_eq!(case.resolve(&["terraform@< 1.5.6", "--offline"]), "1.5.0");
}

#[test]
fn without_a_connection_installed_versions_then_the_cached_list_then_path_are_used() {
    let mut case = Case::new();
    let resolve = |case: &Case, args: &[&str]| case.run(&[&["resolve"], args].concat());
    assert_eq!(resolve(&case, &["terraform@latest"]).stdout, "1.10.0\n");
    // The same address, which refuses connections now.
    let url = case.mirror.url(Terraform);
    case.mirror = ReleaseMirror::start();
    let gone = |args: &[&str]| {
        let mut command = case.command(&[&["resolve"], args].concat());
        Ended::from(command.env("TFENV_REMOTE", &url).output().unwrap())
    };
    case.on_path(Terraform, "1.9.9");
    let old = gone(&["terraform@latest", "--refresh"]);
    assert_eq!((old.code, old.stdout.as_str()), (0, "1.10.0\n"), "{old:?}");
    assert!(old.stderr.contains("from an old cache"), "{old:?}");

    std::fs::remove_dir_all(case.sandbox.path("cache/plancha")).unwrap();
    let path = gone(&["terraform@latest"]);
    assert_eq!((path.code, path.stdout.as_str()), (0, "1.9.9\n"), "{path:?}");
    assert!(path.stderr.contains("on PATH: cannot connect to http://127.0.0.1:"), "{path:?}");
    let other = gone(&["terraform@~> 1.10"]);
    assert_eq!(other.code, 6, "{other:?}");
    assert!(other.stderr.contains("is 1.9.9, which does not match `~> 1.10`"), "{other:?}");

    support::executable(
        &case.sandbox.path("cache/plancha/bin/Terraform/1.5.6/terraform"),
        "#!/bin/sh\n",
    );
    assert_eq!(gone(&["terraform@latest"]).stdout, "1.5.6\n");
}

#[test]
fn offline_makes_no_request() {
    let case = Case::new();
    let refused = case.run(&["resolve", "terraform@latest", "--offline"]);
    assert_eq!(refused.code, 8, "{refused:?}");
    assert!(refused.stderr.contains("--offline forbids network access"), "{refused:?}");
    case.on_path(Terraform, "1.9.9");
    assert_eq!(case.resolve(&["terraform@latest", "--offline"]), "1.9.9");
    assert_eq!(case.run(&["resolve", "tofu@latest", "--offline"]).code, 8);
    assert_eq!(case.mirror.all_requests(), 0);
}

#[test]
fn http_error_selects_no_other_version() {
    for (status, code, tries) in
        [(404, 8, 1), (403, 5, 1), (401, 5, 1), (418, 8, 1), (500, 6, 4), (429, 6, 4)]
    {
        let case = Case::new();
        case.on_path(Terraform, "1.9.9");
        let list = case.mirror.list_path(Terraform);
        case.mirror.fault(list, MirrorFault::Status(status, 99));
        let ended = case.run(&["resolve", "terraform@latest"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{status}: {ended:?}");
        assert!(ended.stderr.contains("/terraform/index.json"), "{ended:?}");
        assert_eq!(case.mirror.requests(list), tries, "{status}");
    }
}

#[test]
fn invalid_response_is_not_a_connection_error() {
    let case = Case::new();
    case.on_path(Terraform, "1.9.9");
    let mut command = case.command(&["resolve", "terraform@latest"]);
    let url = case.mirror.url(Terraform).replace("http://", "https://");
    let ended = Ended::from(command.env("TFENV_REMOTE", url).output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (6, ""), "{ended:?}");
    assert!(ended.stderr.contains("https://127.0.0.1:"), "{ended:?}");
}

#[test]
fn proxy_is_read_from_the_environment() {
    let case = Case::new();
    let with = |variables: &[(&str, &str)]| {
        let mut command = case.command(&["resolve", "terraform@latest"]);
        Ended::from(command.envs(variables.iter().copied()).output().unwrap()).code
    };
    assert_eq!(with(&[("http_proxy", "http://127.0.0.1:1")]), 6);
    assert_eq!(with(&[("http_proxy", "http://127.0.0.1:1"), ("no_proxy", "127.0.0.1")]), 0);
}

#[test]
fn transient_errors_are_retried() {
    let case = Case::new();
    let list = case.mirror.list_path(Terraform);
    case.mirror.fault(list, MirrorFault::Status(503, 2));
    assert_eq!(case.resolve(&["terraform@latest"]), "1.10.0");
    let list = case.mirror.list_path(Tofu);
    case.mirror.fault(list, MirrorFault::Cut(20, 1));
    assert_eq!(case.resolve(&["tofu@latest"]), "1.12.6");
}

#[test]
fn invalid_mirror_content_is_refused() {
    let case = Case::new();
    case.mirror.put(case.mirror.list_path(Terraform), b"<html>index of</html>".to_vec());
    let ended = case.run(&["resolve", "terraform@latest"]);
    assert_eq!(ended.code, 8, "{ended:?}");
    assert!(ended.stderr.contains("index.json is not a list of versions"), "{ended:?}");

    case.mirror.fault(case.mirror.list_path(Tofu), MirrorFault::Circle);
    let ended = case.run(&["resolve", "tofu@latest"]);
    assert_eq!(ended.code, 8, "{ended:?}");
    assert!(ended.stderr.contains("redirects"), "{ended:?}");

    let weird = r#"{"versions": {"1.2.3": null, "nonsense": {}, "../../x": {}, "1.2.4-": {}}}"#;
    case.mirror.put(case.mirror.list_path(Terraform), weird.into());
    assert_eq!(case.resolve(&["terraform@latest"]), "1.2.3");
}

#[test]
fn unknown_version_is_reported_with_the_newest() {
    let case = Case::new();
    let ended = case.run(&["resolve", "terraform@> 2"]);
    assert_eq!(ended.code, 8, "{ended:?}");
    let reported = "no published version of terraform matches `> 2` (requested by the command line); the newest is 1.10.0 in http://127.0.0.1:";
    assert!(ended.stderr.contains(reported), "{ended:?}");
}

#[test]
fn invalid_version_file_is_reported_with_line_and_column() {
    let case = Case::new();
    case.sandbox.write("main.tf", "x = 1 +\nterraform {\n  required_version = \"~> 1.5.0\"\n}\n");
    let ended = case.run(&["resolve"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "1.5.7\n"),
        "the tool reports it: {ended:?}"
    );
    assert!(ended.stderr.contains("/main.tf:1:"), "{ended:?}");
    std::fs::remove_file(case.sandbox.work().join("main.tf")).unwrap();
    case.sandbox.write("main.tf.json", "{\n \"required_version\": ]}");
    let ended = case.run(&["resolve"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "1.10.0\n"), "{ended:?}");
    assert!(ended.stderr.contains("/main.tf.json:2:22: not JSON"), "{ended:?}");
    std::fs::remove_file(case.sandbox.work().join("main.tf.json")).unwrap();
    case.sandbox.write(".terraform-version", "one\n");
    let ended = case.run(&["resolve"]);
    assert_eq!(ended.code, 8);
    assert!(
        ended.stderr.contains("/.terraform-version: not a version request: `one`"),
        "{ended:?}"
    );
}

#[test]
fn invalid_arguments_are_usage_errors() {
    let case = Case::new();
    for args in [
        &["tofu@"][..],
        &["nomad", "."],
        &["--nonsense"],
        &["a", "b", "c"],
        &["--offline", "--refresh"],
    ] {
        let ended = case.run(&[&["resolve"], args].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (64, ""), "{args:?}: {ended:?}");
    }
    for args in [&["no/such/directory"][..], &["terraform@1.9.8", "no/such/directory"]] {
        let ended = case.run(&[&["resolve"], args].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (8, ""), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains("there is no directory"), "{ended:?}");
    }
    for (wrong, meant) in
        [("terrafrom@1.9.8", "terraform@1.9.8"), ("tofuu", "tofu"), ("terragrnt@", "terragrunt@")]
    {
        let ended = case.run(&["resolve", wrong]);
        assert_eq!(ended.code, 8, "{ended:?}");
        assert!(ended.stderr.contains(&format!("there is no directory `{wrong}`")), "{ended:?}");
        assert!(ended.stderr.contains(&format!("did you mean `{meant}`?")), "{ended:?}");
    }
    for request in ["terraform@one", "terraform@1.5.7-"] {
        let ended = case.run(&["resolve", request]);
        assert_eq!((ended.code, ended.stdout.as_str()), (64, ""), "{ended:?}");
    }
}

#[test]
fn mirror_urls_must_be_http_and_passwords_are_not_shown() {
    let case = Case::new();
    let with = |url: &str| {
        let mut command = case.command(&["resolve", "terraform@latest"]);
        Ended::from(command.env("TFENV_REMOTE", url).output().unwrap())
    };
    let ended = with("file:///srv/mirror");
    assert_eq!(ended.code, 8, "{ended:?}");
    let secret = case.mirror.url(Terraform).replace("://", "://user:hunter2@");
    assert_eq!(with(&secret).stdout, "1.10.0\n");
    case.mirror.fault(case.mirror.list_path(Terraform), MirrorFault::Status(403, 9));
    let ended = with(&(secret + "/"));
    assert!(
        ended.stderr.contains("//***@127.0.0.1") && !ended.stderr.contains("hunter2"),
        "{ended:?}"
    );
}

/// The search reads a file for each tool.
#[test]
fn version_file_that_cannot_be_read_is_warned_of_once() {
    let case = Case::new();
    for name in [".tool-versions", "root.hcl"] {
        let pipe = case.sandbox.work().join(name);
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let ended = case.run(&["resolve"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    for name in [".tool-versions", "root.hcl"] {
        let warning = format!("{name} is not a regular file");
        assert_eq!(ended.stderr.matches(&warning).count(), 1, "{name}: {}", ended.stderr);
    }
}
