//! Mirrors: by flags, by tenv's variables, as HTML lists and as lists of GitHub's API.

use std::io::Write as _;

use datastore_api::Sha256;
use support::release_mirror::platform;
use support::{Ended, MirrorFault, MirroredTool, ReleaseMirror};

use crate::release::resolve::Case;
use MirroredTool::{Terraform, Terragrunt, Tofu};

const API: &str = "/api/repos/gruntwork-io/terragrunt/releases";

/// A terragrunt that prints its version.
pub(crate) fn terragrunt(version: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho terragrunt version v{version}\n").into_bytes()
}

impl Case {
    fn with(&self, variables: &[(&str, &str)], args: &[&str]) -> Ended {
        let mut command = self.command(args);
        command.env_remove("TFENV_REMOTE").env_remove("PLANCHA_TOFU_URL");
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    }

    /// Puts the files of a release, and nothing else, where another layout has them.
    fn moved(&self, tool: MirroredTool, version: &str, to: &str) {
        let mirror = &self.mirror;
        let paths = [
            mirror.archive_path(tool, version),
            mirror.sums_path(tool, version),
            mirror.signature_path(tool, version),
        ];
        for path in paths {
            let name = path.rsplit('/').next().unwrap();
            mirror.put(&format!("{to}/{name}"), mirror.file(&path));
            mirror.remove(&path);
        }
    }
}

pub(crate) fn ok(ended: &Ended) -> &str {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout.trim_end()
}

pub(crate) fn refused(ended: &Ended, code: i32, words: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{words}: {ended:?}");
    assert!(ended.stderr.contains(words), "{words}: {ended:?}");
}

#[test]
fn terragrunt_is_installed_from_an_archive_or_a_bare_binary() {
    let case = Case::new();
    let url = case.mirror.url(Terragrunt);
    let flag = ["--terragrunt-url", url.as_str()];
    let install = |request: &str, further: &[&str]| {
        case.run(&[&["install", request], &flag[..], further].concat())
    };
    for version in ["0.50.0", "0.98.1", "1.0.0"] {
        case.mirror.add(Terragrunt, version, &terragrunt(version));
    }
    let newest = install("terragrunt@latest", &[]);
    assert!(ok(&newest).ends_with("/Terragrunt/1.0.0/terragrunt"), "{newest:?}");
    assert_eq!(std::fs::read(ok(&newest)).unwrap(), terragrunt("1.0.0"));
    assert!(newest.stderr.contains(".zip"), "{newest:?}");

    // A mirror that has the bare binary only, as tenv needs it, will do.
    let bare = terragrunt("0.98.1");
    let name = format!("terragrunt_{}", platform());
    case.mirror.remove(&case.mirror.archive_path(Terragrunt, "0.98.1"));
    case.mirror.put(&format!("/terragrunt/v0.98.1/{name}"), bare.clone());
    let sums = format!("{}  {name}\n", Sha256::of(&bare));
    case.mirror.put_sums(Terragrunt, "0.98.1", sums.into_bytes());
    assert_eq!(std::fs::read(ok(&install("terragrunt@0.98.1", &[]))).unwrap(), bare);

    // Before 0.93.6 there is nothing else, and before 0.98.0 no signature.
    let old = terragrunt("0.50.0");
    case.mirror.put(&format!("/terragrunt/v0.50.0/{name}"), old.clone());
    let sums = format!("{}  {name}\n", Sha256::of(&old));
    case.mirror.put_sums(Terragrunt, "0.50.0", sums.into_bytes());
    case.mirror.remove(&case.mirror.signature_path(Terragrunt, "0.50.0"));
    refused(
        &install("terragrunt@0.50.0", &["--require-signature"]),
        9,
        "releases of terragrunt must be signed",
    );
    let unsigned = install("terragrunt@0.50.0", &[]);
    assert_eq!(std::fs::read(ok(&unsigned)).unwrap(), old);
    assert!(unsigned.stderr.contains("only its digest is checked"), "{unsigned:?}");
    case.mirror.remove(&case.mirror.signature_path(Terragrunt, "1.0.0"));
    std::fs::remove_file(ok(&newest)).unwrap();
    refused(&install("terragrunt@1.0.0", &[]), 9, "releases of terragrunt must be signed");
    refused(&install("terragrunt@0.18.0", &[]), 9, "published without digests");
}

/// Its signed digests name no version.
#[test]
fn old_terragrunt_under_the_name_of_a_new_one_is_refused() {
    let case = Case::new();
    let url = case.mirror.url(Terragrunt);
    let failing = b"#!/bin/sh\nexit 3\n";
    let with_variable = b"#!/bin/sh\necho terragrunt version ${FAKE:-1.0.0}\n";
    for (binary, printed) in [
        (&terragrunt("0.98.0")[..], "has terragrunt 0.98.0, not 1.0.0"),
        (failing, "has terragrunt without a version, not 1.0.0"),
        (with_variable, ""),
    ] {
        case.mirror.add(Terragrunt, "1.0.0", binary);
        let mut command = case.command(&["install", "terragrunt@1.0.0", "--terragrunt-url", &url]);
        let ended = Ended::from(command.env("FAKE", "0.98.0").output().unwrap());
        if printed.is_empty() {
            assert!(ok(&ended).ends_with("/Terragrunt/1.0.0/terragrunt"), "{ended:?}");
        } else {
            refused(&ended, 9, printed);
            let left = case.sandbox.path("cache/plancha/bin/Terragrunt/1.0.0");
            assert!(!left.exists(), "{printed}");
        }
    }
}

#[test]
fn terragrunt_preview_is_found_only_by_its_exact_name() {
    let case = Case::new();
    let url = case.mirror.url(Terragrunt);
    let name = "alpha-2026011201";
    case.mirror.add(Terragrunt, name, &terragrunt(name));
    case.mirror.add(Terragrunt, "0.98.0", &terragrunt("0.98.0"));
    case.moved(Terragrunt, name, &format!("/terragrunt/{name}"));
    let flag = ["--terragrunt-url", url.as_str()];
    let path = case.run(&[&["install", &format!("terragrunt@{name}")], &flag[..]].concat());
    assert!(ok(&path).ends_with(&format!("/Terragrunt/{name}/terragrunt")), "{path:?}");
    for request in ["terragrunt@latest-pre", "terragrunt@min:.", "terragrunt@< 1"] {
        assert_eq!(
            ok(&case.run(&[&["resolve", request, "--refresh"], &flag[..]].concat())),
            "0.98.0"
        );
    }
}

#[test]
fn tenvs_remote_has_githubs_layout() {
    let case = Case::new();
    let remote = format!("{}/gh", case.mirror.address());
    case.moved(Tofu, "1.11.0", "/gh/opentofu/opentofu/releases/download/v1.11.0");
    let listing = "<a href=\"../\">../</a>\n<a HREF='x'>\n<a href='v1.6.0/'>\n<a href=\"v1.11.0/\">v1.11.0/</a>";
    case.mirror.put("/gh/opentofu/opentofu/releases/download/", listing.into());
    let with = |variables: &[(&str, &str)]| {
        let all = [&[("TOFUENV_REMOTE", remote.as_str())], variables].concat();
        case.with(&all, &["resolve", "tofu@latest", "--refresh"])
    };
    assert_eq!(ok(&with(&[])), "1.11.0");
    assert_eq!(ok(&with(&[("TOFUENV_LIST_MODE", "html")])), "1.11.0");
    refused(&with(&[("TOFUENV_LIST_MODE", "mirror")]), 8, "/gh/api.json does not exist (404)");
    let list = format!("{}/tofu/api.json", case.mirror.address());
    assert_eq!(ok(&with(&[("TOFUENV_LIST_URL", &list)])), "1.12.6");
    assert_eq!(
        ok(&with(&[("TOFUENV_LIST_URL", &list), ("TOFUENV_LIST_MODE", "mirror")])),
        "1.12.6"
    );
    let installed = case.with(&[("TOFUENV_REMOTE", &remote)], &["install", "tofu@1.11.0"]);
    assert!(ok(&installed).ends_with("/OpenTofu/1.11.0/tofu"));
}

#[test]
fn tenvs_url_template_locates_files() {
    let case = Case::new();
    case.moved(Tofu, "1.11.0", "/t/1.11.0/files");
    let template =
        format!("{}/t/{{{{ .Version }}}}/files/{{{{.Artifact}}}}", case.mirror.address());
    let with = |template: &str, mode: &str| {
        let variables = [("TOFUENV_URL_TEMPLATE", template), ("TOFUENV_INSTALL_MODE", mode)];
        case.with(&variables, &["install", "tofu@1.11.0"])
    };
    refused(
        &with("{{ .Nonsense }}", "mirror"),
        8,
        "TOFUENV_URL_TEMPLATE: not a valid URL template",
    );
    refused(&with(&template, "nonsense"), 8, "TOFUENV_INSTALL_MODE: invalid mode `nonsense`");
    assert!(ok(&with(&template, "mirror")).ends_with("/OpenTofu/1.11.0/tofu"));
}

#[test]
fn a_list_url_does_not_move_the_downloads() {
    let case = Case::new();
    case.mirror.put("/lists/terraform/index.json", br#"{"versions": {"1.5.7": {}}}"#.to_vec());
    let lists = format!("{}/lists", case.mirror.address());
    let remote = case.mirror.url(Terraform);
    let variables = [("TFENV_LIST_URL", lists.as_str()), ("TFENV_REMOTE", &remote)];
    let ended = case.with(&variables, &["install", "terraform@latest"]);
    assert!(ok(&ended).ends_with("/Terraform/1.5.7/terraform"), "{ended:?}");
}

#[test]
fn mirror_without_a_list_is_read_as_html() {
    let case = Case::new();
    let index = case.mirror.list_path(Terraform);
    let listing = "<html><pre>Name</pre><hr/><pre><a href=\"../\">../</a>\n\
        <a href=\"1.5.6/\">1.5.6/</a> 18-Jan-2024 12:37 -\n\
        <a href=\"/artifactory/hashicorp/terraform/1.9.8/?x=1#y\">1.9.8/</a>\n\
        <a href=\"1.11.0-rc1/\">1.11.0-rc1/</a>\n<a href=\"index.json\">index.json</a></pre></html>";
    case.mirror.put("/terraform/", listing.into());
    assert_eq!(ok(&case.run(&["resolve", "terraform@latest"])), "1.10.0", "JSON goes before");
    for json in [None, Some("<html>a frozen page</html>")] {
        match json {
            None => case.mirror.remove(index),
            Some(text) => case.mirror.put(index, text.into()),
        }
        let reported = case.run(&["resolve", "terraform@latest", "--refresh", "--json"]);
        let how = if json.is_none() { "fetched now" } else { "checked now, unchanged" };
        assert!(ok(&reported).contains(&format!("/terraform/ ({how})")), "{reported:?}");
        assert!(reported.stdout.contains("\"version\": \"1.9.8\""), "{reported:?}");
    }
    // The cached list is revalidated with the ETag of the page that had it.
    let before = case.mirror.all_requests();
    assert_eq!(ok(&case.run(&["resolve", "terraform@latest"])), "1.9.8");
    assert_eq!(case.mirror.all_requests(), before);
    let remote = case.mirror.url(Terraform);
    let html = [("TFENV_REMOTE", remote.as_str()), ("TFENV_LIST_MODE", "html")];
    assert_eq!(ok(&case.with(&html, &["resolve", "terraform@latest"])), "1.9.8");
    let api = [("TFENV_REMOTE", remote.as_str()), ("TFENV_LIST_MODE", "api")];
    refused(
        &case.with(&api, &["resolve", "terraform@latest"]),
        8,
        "index.json is not a list of versions",
    );
    // No other refusal is a reason to look elsewhere.
    case.mirror.fault(index, MirrorFault::Status(403, 9));
    refused(&case.run(&["resolve", "terraform@latest", "--refresh"]), 5, "answered 403");
}

/// A page of GitHub's API, of a hundred releases at most.
fn page(minors: std::ops::Range<usize>, further: &str) -> Vec<u8> {
    let release = |minor| {
        format!(
            r#"{{"tag_name": "v0.{minor}.0", "draft": false, "assets": [{{"name": "SHA256SUMS"}}]}}"#
        )
    };
    let releases: Vec<_> = minors.rev().map(release).collect();
    format!("[{}{further}]", releases.join(",")).into_bytes()
}

#[test]
fn github_list_is_read_by_page_with_the_token_and_cached_by_etag() {
    let case = Case::new();
    let address = case.mirror.address();
    let list = format!("{address}{API}");
    for (number, body) in [
        (1, page(200..300, "")),
        (2, page(100..200, "")),
        (3, page(80..99, r#",{"tag_name": "nonsense"}"#)),
    ] {
        case.mirror.put(&format!("{API}?per_page=100&page={number}"), body);
    }
    let variables = [
        ("TG_LIST_MODE", "api"),
        ("TG_LIST_URL", list.as_str()),
        ("TG_REMOTE", address),
        ("TENV_GITHUB_TOKEN", "hunter2"),
    ];
    let resolve = |request: &str| case.with(&variables, &["resolve", request, "--refresh"]);
    // Without knowing the end, until a page is not full.
    assert_eq!(ok(&resolve("terragrunt@latest")), "0.299.0");
    assert_eq!(case.mirror.requests(API), 3);
    assert_eq!(case.mirror.credentials(API).as_deref(), Some("Bearer hunter2"));
    assert_eq!(ok(&resolve("terragrunt@< 0.82")), "0.81.0");
    assert_eq!(case.mirror.requests(API), 4, "the first page was the same");

    std::fs::remove_dir_all(case.sandbox.path("cache/plancha")).unwrap();
    let link = format!(
        "<{address}/x?page=2>; rel=\"next\", <{address}/x?page=3&per_page=100>; rel=\"last\""
    );
    case.mirror.header(API, "link", &link);
    assert_eq!(ok(&resolve("terragrunt@< 0.82")), "0.81.0");
    assert_eq!(case.mirror.requests(API), 7);

    let hidden = r#"[{"tag_name": "v2.0.0", "draft": true}, {"tag_name": "v2.1.0", "assets": []}, {"tag_name": "v1.0.0"}]"#;
    case.mirror.put(&format!("{API}?per_page=100&page=1"), hidden.into());
    assert_eq!(ok(&resolve("terragrunt@latest")), "1.0.0", "no drafts, and nothing without files");
}

#[test]
fn a_password_goes_to_the_mirror_and_the_token_does_not() {
    let case = Case::new();
    let remote = case.mirror.url(Terraform);
    let variables = [
        ("TFENV_REMOTE", remote.as_str()),
        ("TFENV_REMOTE_USER", "me"),
        ("TFENV_REMOTE_PASSWORD", "hunter2"),
        ("TENV_GITHUB_TOKEN", "secret"),
    ];
    let ended = case.with(&variables, &["install", "terraform@latest"]);
    ok(&ended);
    for path in [case.mirror.list_path(Terraform), &case.mirror.archive_path(Terraform, "1.10.0")] {
        assert_eq!(
            case.mirror.credentials(path).as_deref(),
            Some("Basic bWU6aHVudGVyMg=="),
            "{path}"
        );
    }
    assert!(!ended.stderr.contains("hunter2"));
    let half = case.with(&variables[..2], &["resolve", "terraform@latest", "--refresh"]);
    ok(&half);
    assert_eq!(case.mirror.credentials(case.mirror.list_path(Terraform)), None, "both are needed");
    // Another site does not get it.
    let other = ReleaseMirror::start();
    other.add_script(Tofu, "1.9.0");
    let url = other.url(Tofu);
    let tofu = [&variables[..], &[("PLANCHA_TOFU_URL", url.as_str())]].concat();
    ok(&case.with(&tofu, &["resolve", "tofu@latest"]));
    assert_eq!(other.credentials(other.list_path(Tofu)), None);
}

#[test]
fn two_mirrors_on_one_host_get_their_own_passwords() {
    let case = Case::new();
    case.mirror.add_script(Tofu, "1.9.0");
    let (terraform, tofu) = (case.mirror.url(Terraform), case.mirror.url(Tofu));
    let variables = [
        ("TFENV_REMOTE", terraform.as_str()),
        ("TFENV_REMOTE_USER", "me"),
        ("TFENV_REMOTE_PASSWORD", "hunter2"),
        ("PLANCHA_TOFU_URL", tofu.as_str()),
        ("TOFUENV_REMOTE_USER", "you"),
        ("TOFUENV_REMOTE_PASSWORD", "hunter3"),
    ];
    for (tool, of, expected) in [
        ("terraform@latest", Terraform, "Basic bWU6aHVudGVyMg=="),
        ("tofu@latest", Tofu, "Basic eW91Omh1bnRlcjM="),
    ] {
        ok(&case.with(&variables, &["resolve", tool]));
        let sent = case.mirror.credentials(case.mirror.list_path(of));
        assert_eq!(sent.as_deref(), Some(expected), "{tool}");
    }
}

#[test]
fn compressed_list_is_read_and_a_decompression_bomb_is_refused() {
    let case = Case::new();
    let list = case.mirror.list_path(Terraform);
    let zipped = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    case.mirror.header(list, "content-encoding", "gzip");
    case.mirror.put(list, zipped(br#"{"versions": {"1.5.6": {}}}"#));
    assert_eq!(ok(&case.run(&["resolve", "terraform@latest"])), "1.5.6");
    case.mirror.put(list, zipped(&vec![b' '; 40 << 20]));
    refused(&case.run(&["resolve", "terraform@latest", "--refresh"]), 9, "is larger than 32 MiB");
    case.mirror.put(list, b"nonsense".to_vec());
    case.mirror.put("/terraform/", b"nothing".to_vec());
    refused(&case.run(&["resolve", "terraform@latest", "--refresh"]), 8, "broken gzip");
}

#[test]
fn platform_follows_tenvs_variable_and_a_missing_build_is_reported() {
    let case = Case::new();
    let remote = case.mirror.url(Terraform);
    let variables = [("TFENV_REMOTE", remote.as_str()), ("TENV_ARCH", "s390x")];
    let ended = case.with(&variables, &["install", "terraform@1.9.8"]);
    let words = format!("terraform 1.9.8 is not built for linux_s390x, only for {}", platform());
    refused(&ended, 8, &words);
    refused(&ended, 8, &format!("as {remote}{} says", case.mirror.sums_path(Terraform, "1.9.8")));
}

#[test]
fn tenvs_force_remote_variable_is_respected() {
    let case = Case::new();
    let installed = case.sandbox.path("cache/plancha/bin/Terraform/1.5.6/terraform");
    support::executable(&installed, "#!/bin/sh\n");
    let remote = case.mirror.url(Terraform);
    let resolve = |value: &str| {
        let variables = [("TFENV_REMOTE", remote.as_str()), ("TENV_FORCE_REMOTE", value)];
        case.with(&variables, &["resolve", "terraform@~> 1.5"])
    };
    assert_eq!(ok(&resolve("false")), "1.5.6");
    assert_eq!(ok(&resolve("T")), "1.10.0");
    refused(&resolve("yes"), 8, "TENV_FORCE_REMOTE: expected true or false");
}

#[test]
fn invalid_variable_is_named_without_its_value() {
    let case = Case::new();
    let resolve = |variable: (&str, &str)| case.with(&[variable], &["resolve", "terraform@1.9.8"]);
    for (name, value) in [
        ("TFENV_REMOTE", "//me:hunter2@host"),
        ("TFENV_LIST_URL", "me:hunter2@host"),
        ("TFENV_LIST_MODE", "nonsense"),
    ] {
        let ended = resolve((name, value));
        assert_eq!(ended.code, 8, "{ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    }
    assert_eq!(ok(&resolve(("TG_REMOTE", "nonsense"))), "1.9.8", "it is another tool's");
    assert_eq!(ok(&resolve(("TFENV_REMOTE", " "))), "1.9.8", "a blank one is none");
}
