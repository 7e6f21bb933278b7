//! tenv's `remote.yaml`, and tenv settings other than a version.

use support::{Ended, MirrorFault, MirroredTool};

use crate::release::resolve::Case;
use MirroredTool::{Terraform, Tofu};

impl Case {
    /// With this file in tenv's directory, and no flag or variable that names a mirror.
    fn by_file(&self, yaml: &str, variables: &[(&str, &str)], words: &[&str]) -> Ended {
        let root = self.sandbox.path("tenv");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("remote.yaml"), yaml).unwrap();
        let mut command = self.command(words);
        command.env_remove("TFENV_REMOTE").env_remove("PLANCHA_TOFU_URL").env("TENV_ROOT", root);
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    }
}

fn ok(ended: &Ended) -> &str {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout.trim_end()
}

fn refused(ended: &Ended, words: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (8, ""), "{words:?}: {ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
}

#[test]
fn remote_yaml_names_mirrors_and_variables_and_flags_override_it() {
    let case = Case::new();
    let (address, latest) = (case.mirror.address(), ["install", "terraform@latest"]);
    let file = format!("# ours\nterraform:\n  url: {address}/\natmos:\n  url: x\n");
    let ended = case.by_file(&file, &[], &latest);
    assert!(ok(&ended).ends_with("/Terraform/1.10.0/terraform"), "{ended:?}");
    let gone = "terraform: {url: \"http://127.0.0.1:1\", list_mode: html}";
    let words = ["resolve", "terraform@~> 1.9.0"];
    assert_eq!(case.by_file(gone, &[], &words).code, 6);
    let variables = [("TFENV_REMOTE", address), ("TFENV_LIST_MODE", "api")];
    assert_eq!(ok(&case.by_file(gone, &variables, &words)), "1.9.8");
    let flag = [&words[..], &["--releases-url", address, "--refresh"]].concat();
    assert_eq!(ok(&case.by_file("terraform: {url: \"http://127.0.0.1:1\"}", &[], &flag)), "1.9.8");
    // Another file may be named; one that is empty or not there says nothing.
    case.sandbox.write("ours.yaml", &file);
    let named = [("TENV_REMOTE_CONF", "ours.yaml")];
    let refresh = [&words[..], &["--refresh"]].concat();
    assert_eq!(ok(&case.by_file(gone, &named, &refresh)), "1.9.8");
    for nothing in ["", "# nothing\n", "terraform:\n", "terraform: {url: }"] {
        assert_eq!(ok(&case.by_file(nothing, &variables, &refresh)), "1.9.8", "{nothing}");
    }
    let missing = [("TENV_REMOTE_CONF", "missing"), variables[0]];
    assert_eq!(ok(&case.by_file(gone, &missing, &refresh)), "1.9.8");
}

#[test]
fn vendor_urls_can_be_rewritten() {
    let case = Case::new();
    let address = case.mirror.address();
    let moved = |tool: MirroredTool, version: &str, to: &str| {
        for path in [
            case.mirror.archive_path(tool, version),
            case.mirror.sums_path(tool, version),
            case.mirror.signature_path(tool, version),
        ] {
            let name = path.rsplit('/').next().unwrap();
            case.mirror.put(&format!("{to}/{name}"), case.mirror.file(&path));
            case.mirror.remove(&path);
        }
    };
    moved(Tofu, "1.11.0", "/gh/opentofu/opentofu/releases/download/v1.11.0");
    moved(Terraform, "1.9.8", "/hc/terraform/1.9.8");
    let file = format!(
        "tofu:\n  old_base_url: https://github.com/\n  new_base_url: {address}/gh\n  \
         list_url: {address}/tofu/api.json\nterraform: {{new_base_url: \"{address}/hc\"}}\n"
    );
    let install = |release: &str| case.by_file(&file, &[], &["install", release]);
    assert!(ok(&install("tofu@~> 1.11.0")).ends_with("/OpenTofu/1.11.0/tofu"));
    assert!(ok(&install("terraform@1.9.8")).ends_with("/Terraform/1.9.8/terraform"));
}

#[test]
fn html_listing_may_contain_versions_as_link_text() {
    let case = Case::new();
    let listing = "<a href=\"?id=1\">..</a> 1.99.0 <a href=\"?id=2\"> v1.5.7/ </a>\
        <a href='9.9.9'>terraform</a><a href=\"?id=3\"><b>1.5.6</b></a><a href=\"?id=4\">1.5.6</a>";
    case.mirror.put("/terraform/", listing.into());
    let file = |part: &str| {
        format!(
            "terraform: {{url: \"{}\", list_mode: html, part: \"{part}\"}}",
            case.mirror.address()
        )
    };
    let words = ["resolve", "terraform@latest", "--refresh"];
    assert_eq!(ok(&case.by_file(&file("#text"), &[], &words)), "1.5.7");
    assert_eq!(ok(&case.by_file(&file("href"), &[], &words)), "9.9.9");
    let other = case.by_file(&file("title"), &[], &words);
    refused(&other, &["/tenv/remote.yaml, terraform, part: ", "`title`", ". next: "]);
}

#[test]
fn invalid_remote_yaml_is_named_without_its_content() {
    let case = Case::new();
    let words = ["resolve", "terraform@latest"];
    for (yaml, reported) in [
        ("terraform: {url: \"me:hunter2@host\"}", "/remote.yaml, terraform, url: not an http"),
        ("terraform: {list_mode: hunter}", "/remote.yaml, terraform, list_mode: "),
        (
            "terraform: {new_base_url: \"//hunter2\"}",
            "/remote.yaml, terraform, new_base_url: not an http",
        ),
        ("terraform:\n  url: [hunter2\n", "/remote.yaml:"),
        ("- hunter2\n", "/remote.yaml:1:"),
        ("terraform: hunter2\n", "/remote.yaml:1:12: invalid syntax"),
    ] {
        let ended = case.by_file(yaml, &[], &words);
        refused(&ended, &[reported, ". next: "]);
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    let ended =
        case.by_file("tofu: {url: nonsense}", &[("TFENV_REMOTE", case.mirror.address())], &words);
    assert_eq!(ok(&ended), "1.10.0", "it is another tool's");
}

#[test]
fn unreadable_remote_yaml_is_an_error_only_if_configured() {
    let case = Case::new();
    let root = case.sandbox.path("tenv");
    // No file, for root may read every one.
    std::fs::create_dir_all(root.join("remote.yaml")).unwrap();
    let resolve = |variable: &str, path| {
        let mut command = case.command(&["resolve", "terraform@latest"]);
        Ended::from(command.env(variable, path).output().unwrap())
    };
    let ended = resolve("TENV_ROOT", &root);
    assert_eq!(ok(&ended), "1.10.0");
    assert!(ended.stderr.contains("WARN tenv's mirror settings are ignored"), "{ended:?}");
    refused(&resolve("TENV_REMOTE_CONF", &root.join("remote.yaml")), &["/remote.yaml"]);
}

#[test]
fn password_is_sent_to_the_configured_mirror() {
    let case = Case::new();
    let file = format!("terraform: {{url: \"{}\"}}", case.mirror.address());
    let variables = [("TFENV_REMOTE_USER", "me"), ("TFENV_REMOTE_PASSWORD", "hunter2")];
    ok(&case.by_file(&file, &variables, &["resolve", "terraform@latest"]));
    let list = case.mirror.list_path(Terraform);
    assert_eq!(case.mirror.credentials(list).as_deref(), Some("Basic bWU6aHVudGVyMg=="));
    case.mirror.fault(list, MirrorFault::Status(403, 9));
    let ended = case.by_file(&file, &[], &["resolve", "terraform@latest", "--refresh"]);
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(ended.stderr.contains("set TFENV_REMOTE_USER"), "{ended:?}");
    assert!(!ended.stderr.contains("password@"), "{ended:?}");
}

#[test]
fn downloads_are_verified_regardless_of_tenvs_settings() {
    let case = Case::new();
    case.mirror.remove(&case.mirror.signature_path(Terraform, "1.9.8"));
    let file = format!("terraform: {{url: \"{}\"}}", case.mirror.address());
    for mode in ["sha", "none"] {
        let validation = [("TENV_VALIDATION", mode)];
        let ended = case.by_file(&file, &validation, &["install", "terraform@1.9.8"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (9, ""), "{ended:?}");
        let warning = format!("TENV_VALIDATION={mode} is ignored: everything is always verified");
        assert!(ended.stderr.contains(&warning), "{ended:?}");
    }
    let validation = [("TENV_VALIDATION", "signature")];
    let ended = case.by_file(&file, &validation, &["install", "terraform@1.9.8"]);
    assert!(ended.code == 9 && !ended.stderr.contains("is ignored: everything"), "{ended:?}");
}
