//! Mirrors of every kind: by flags, by tenv's variables, as lists of HTML and of GitHub's API, and as
//! directories that `runner mirror` fills.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use datastore_api::Sha256;
use support::mirror::{platform, script};
use support::{Ended, MirrorFault, MirroredTool, ReleaseMirror};

use crate::resolve::Case;
use MirroredTool::{Terraform, Terragrunt, Tofu};

/// A terragrunt that tells its version.
fn terragrunt(version: &str) -> Vec<u8> {
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

fn ok(ended: &Ended) -> &str {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.stdout.trim_end()
}

fn refused(ended: &Ended, code: i32, words: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{words}: {ended:?}");
    assert!(ended.stderr.contains(words), "{words}: {ended:?}");
}

#[test]
fn terragrunt_is_installed_from_its_archive_or_as_the_bare_binary() {
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
        "releases of terragrunt are signed",
    );
    let unsigned = install("terragrunt@0.50.0", &[]);
    assert_eq!(std::fs::read(ok(&unsigned)).unwrap(), old);
    assert!(unsigned.stderr.contains("only its digest is checked"), "{unsigned:?}");
    case.mirror.remove(&case.mirror.signature_path(Terragrunt, "1.0.0"));
    std::fs::remove_file(ok(&newest)).unwrap();
    refused(&install("terragrunt@1.0.0", &[]), 9, "releases of terragrunt are signed");
    refused(&install("terragrunt@0.18.0", &[]), 9, "published without any digest");
}

#[test]
fn a_preview_of_terragrunt_is_found_by_its_name_only() {
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
fn a_remote_of_tenvs_has_the_layout_of_github() {
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
fn a_template_of_tenvs_says_where_files_are() {
    let case = Case::new();
    case.moved(Tofu, "1.11.0", "/t/1.11.0/files");
    let template =
        format!("{}/t/{{{{ .Version }}}}/files/{{{{.Artifact}}}}", case.mirror.address());
    let with = |template: &str, mode: &str| {
        let variables = [("TOFUENV_URL_TEMPLATE", template), ("TOFUENV_INSTALL_MODE", mode)];
        case.with(&variables, &["install", "tofu@1.11.0"])
    };
    refused(&with("{{ .Nonsense }}", "mirror"), 8, "TOFUENV_URL_TEMPLATE: no template");
    refused(&with(&template, "nonsense"), 8, "TOFUENV_INSTALL_MODE: `nonsense` is no mode");
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
fn a_mirror_without_a_list_is_read_as_html() {
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
        let told = case.run(&["resolve", "terraform@latest", "--refresh", "--json"]);
        assert!(ok(&told).contains("/terraform/ (asked now"), "{told:?}");
        assert!(told.stdout.contains("\"version\": \"1.9.8\""), "{told:?}");
    }
    // Kept, then asked for by the tag of the one that had answered.
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
        "index.json is no list of versions",
    );
    // No other refusal is a reason to look elsewhere.
    case.mirror.fault(index, MirrorFault::Status(403, 9));
    refused(&case.run(&["resolve", "terraform@latest", "--refresh"]), 5, "answered 403");
}

const API: &str = "/api/repos/gruntwork-io/terragrunt/releases";

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
fn a_list_of_githubs_is_read_in_pages_with_the_token_and_kept_by_its_tag() {
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

const LIMIT: [(&str, &str); 2] =
    [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1789000000")];

#[test]
fn a_rate_limit_is_said_with_the_time_it_ends() {
    let case = Case::new();
    let list = format!("{}{API}", case.mirror.address());
    let variables = [("TG_LIST_MODE", "api"), ("TG_LIST_URL", list.as_str())];
    let resolve = |further: &[&str]| {
        case.with(&variables, &[&["resolve", "terragrunt@latest"], further].concat())
    };
    case.mirror.put(API, page(1..3, ""));
    case.mirror.header(API, "x-ratelimit-remaining", "0");
    assert_eq!(ok(&resolve(&[])), "0.2.0", "the last answer counts as well");
    for status in [403, 429] {
        case.mirror.fault(API, MirrorFault::Answer(status, &LIMIT));
        let before = case.mirror.requests(API);
        let old = resolve(&["--refresh"]);
        assert_eq!(ok(&old), "0.2.0", "the list of before stands in");
        assert_eq!(case.mirror.requests(API), before + 1, "asking again would not help");
    }
    std::fs::remove_dir_all(case.sandbox.path("cache/plancha/lists")).unwrap();
    let ended = resolve(&[]);
    refused(
        &ended,
        6,
        "is not answered before 2026-09-10T00:26:40Z: too many requests (rate limit)",
    );
    assert!(ended.stderr.contains("TENV_GITHUB_TOKEN"), "{ended:?}");
    // An exact version needs no list, and so no API.
    assert_eq!(ok(&case.with(&variables, &["resolve", "terragrunt@0.50.0"])), "0.50.0");
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
fn a_compressed_list_is_read_and_a_bomb_is_not() {
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
fn another_platform_is_asked_for_by_tenvs_variable_and_may_not_be_built() {
    let case = Case::new();
    let remote = case.mirror.url(Terraform);
    let variables = [("TFENV_REMOTE", remote.as_str()), ("TENV_ARCH", "s390x")];
    let ended = case.with(&variables, &["install", "terraform@1.9.8"]);
    let words = format!("terraform 1.9.8 is not built for linux_s390x, only for {}", platform());
    refused(&ended, 8, &words);
    refused(&ended, 8, &format!("as {remote}{} says", case.mirror.sums_path(Terraform, "1.9.8")));
}

#[test]
fn tenvs_wish_for_remote_versions_is_heeded() {
    let case = Case::new();
    let installed = case.sandbox.path("cache/plancha/bin/Terraform/1.5.6/terraform");
    crate::resolve::program(&installed, "#!/bin/sh\n");
    let remote = case.mirror.url(Terraform);
    let resolve = |value: &str| {
        let variables = [("TFENV_REMOTE", remote.as_str()), ("TENV_FORCE_REMOTE", value)];
        case.with(&variables, &["resolve", "terraform@~> 1.5"])
    };
    assert_eq!(ok(&resolve("false")), "1.5.6");
    assert_eq!(ok(&resolve("T")), "1.10.0");
    refused(&resolve("yes"), 8, "TENV_FORCE_REMOTE: neither true nor false");
}

#[test]
fn a_variable_that_makes_no_sense_is_named_without_what_it_holds() {
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

/// Every file below a directory, with its mode.
fn files(dir: &Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut found = Vec::new();
    let mut to_do = vec![dir.to_owned()];
    while let Some(next) = to_do.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                to_do.push(path);
                continue;
            }
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            found.push(format!("{mode:o} {}", name.replace(&platform(), "PLATFORM")));
        }
    }
    found.retain(|name| !name.contains(".lock"));
    found.sort();
    found
}

#[test]
fn a_directory_is_filled_and_then_is_a_mirror_without_a_network() {
    let case = Case::new();
    case.mirror.add(Terragrunt, "1.0.0", &terragrunt("1.0.0"));
    let dir = case.sandbox.path("mirror");
    let at = dir.display();
    let terragrunt_url = case.mirror.url(Terragrunt);
    for (release, flag) in [
        ("terraform@1.9.8", format!("--releases-url file://{at}")),
        ("terraform@~> 1.5.0", format!("--releases-url file://{at}")),
        ("tofu@latest", format!("--tofu-url file://{at}/tofu")),
        ("terragrunt@latest", format!("--terragrunt-url file://{at}/terragrunt")),
    ] {
        let words = ["mirror", release, dir.to_str().unwrap(), "--terragrunt-url", &terragrunt_url];
        assert_eq!(ok(&case.run(&words)), flag);
        // Once more changes nothing.
        assert_eq!(ok(&case.run(&words)), flag);
    }
    insta::assert_snapshot!(files(&dir).join("\n"), @"
    644 terraform/1.5.7/terraform_1.5.7_PLATFORM.zip
    644 terraform/1.5.7/terraform_1.5.7_SHA256SUMS
    644 terraform/1.5.7/terraform_1.5.7_SHA256SUMS.sig
    644 terraform/1.9.8/terraform_1.9.8_PLATFORM.zip
    644 terraform/1.9.8/terraform_1.9.8_SHA256SUMS
    644 terraform/1.9.8/terraform_1.9.8_SHA256SUMS.sig
    644 terraform/index.json
    644 terragrunt/api.json
    644 terragrunt/v1.0.0/SHA256SUMS
    644 terragrunt/v1.0.0/SHA256SUMS.gpgsig
    644 terragrunt/v1.0.0/terragrunt_PLATFORM.zip
    644 tofu/api.json
    644 tofu/v1.12.6/tofu_1.12.6_PLATFORM.zip
    644 tofu/v1.12.6/tofu_1.12.6_SHA256SUMS
    644 tofu/v1.12.6/tofu_1.12.6_SHA256SUMS.gpgsig
    ");
    let index: serde_json::Value =
        crate::json(&std::fs::read(dir.join("terraform/index.json")).unwrap());
    let release = &index["versions"]["1.9.8"];
    assert_eq!(release["builds"].as_array().unwrap().len(), 1, "{index}");
    assert_eq!(index["versions"].as_object().unwrap().len(), 2, "{index}");

    // Another machine, which has the directory and the key, and no network.
    let other = Case::new();
    let url = |tool: &str| format!("file://{at}{tool}");
    let flags = [
        ["--releases-url".to_owned(), url("")],
        ["--tofu-url".to_owned(), url("/tofu")],
        ["--terragrunt-url".to_owned(), url("/terragrunt")],
    ];
    let flags: Vec<_> = flags.iter().flatten().map(String::as_str).collect();
    let keyring = case.mirror.keyring();
    for (request, end) in [
        ("terraform@latest", "Terraform/1.9.8/terraform"),
        ("terraform@< 1.9", "Terraform/1.5.7/terraform"),
        ("tofu@latest", "OpenTofu/1.12.6/tofu"),
        ("terragrunt@latest", "Terragrunt/1.0.0/terragrunt"),
    ] {
        let words = [&["install", request, "--offline"][..], &flags].concat();
        let mut command = other.command(&words);
        command.env("PLANCHA_KEYRING", &keyring);
        let ended = Ended::from(command.output().unwrap());
        assert!(ok(&ended).ends_with(end), "{ended:?}");
    }
    assert_eq!(other.mirror.all_requests(), 0);
    let missing = other.run(&[&["install", "terraform@1.9.7"][..], &flags].concat());
    refused(&missing, 8, "the nearest are 1.5.7 and 1.9.8");

    // Without its list it is read as a directory; with a byte changed not at all.
    std::fs::remove_file(dir.join("terraform/index.json")).unwrap();
    assert_eq!(ok(&other.run(&[&["resolve", "terraform@latest"][..], &flags].concat())), "1.9.8");
    let archive = dir.join(format!("terraform/1.5.7/terraform_1.5.7_{}.zip", platform()));
    let mut bytes = std::fs::read(&archive).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    let third = Case::new();
    let mut command = third.command(&[&["install", "terraform@1.5.7"][..], &flags].concat());
    let ended = Ended::from(command.env("PLANCHA_KEYRING", &keyring).output().unwrap());
    refused(&ended, 9, "is signed for it");
}

#[test]
fn a_mirror_takes_nothing_unverified_and_words_must_make_sense() {
    let case = Case::new();
    let dir = case.sandbox.path("mirror");
    let mirror = |release: &str| case.run(&["mirror", release, dir.to_str().unwrap()]);
    refused(&mirror("terraform"), 64, "names no release");
    refused(&mirror("nomad@1"), 64, "names no release");
    assert!(!dir.exists());
    case.mirror.put(&case.mirror.archive_path(Terraform, "1.9.8"), script("9").into_bytes());
    refused(&mirror("terraform@1.9.8"), 9, "is signed for it");
    assert_eq!(files(&dir), Vec::<String>::new());
    std::fs::write(dir.join("terraform/index.json"), "{\"versions\": []}").unwrap();
    refused(&mirror("terraform@1.9.7"), 8, "the nearest are 1.5.7 and 1.9.8");
    refused(&mirror("terraform@1.5.7"), 8, "index.json is no list of versions");
    assert_eq!(std::fs::read(dir.join("terraform/index.json")).unwrap(), b"{\"versions\": []}");
}

#[test]
fn who_fills_a_mirror_beside_another_says_that_it_waits() {
    let case = Case::new();
    let dir = case.sandbox.path("mirror");
    std::fs::create_dir_all(dir.join("terraform")).unwrap();
    let held = std::fs::File::create(dir.join("terraform/.lock")).unwrap();
    held.lock().unwrap();
    let mut child =
        case.command(&["mirror", "terraform@1.9.8", dir.to_str().unwrap()]).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = said.map(Result::unwrap).skip_while(|line| !line.contains("another process"));
    let waiting = said.next().unwrap();
    assert!(waiting.contains("is filling") && waiting.ends_with(": waiting"), "{waiting}");
    drop(held);
    assert!(child.wait().unwrap().success());
}
