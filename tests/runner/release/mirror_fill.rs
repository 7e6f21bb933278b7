//! `runner mirror`: directories that it fills, and that then serve as mirrors.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use support::release_mirror::{platform, script};
use support::{Ended, MirroredTool};

use super::mirrors::{ok, refused, terragrunt};
use crate::release::resolve::Case;
use MirroredTool::{Terraform, Terragrunt};

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

/// A case whose directory `mirror` has been filled, and that directory.
fn filled() -> (Case, PathBuf) {
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
    (case, dir)
}

/// The flags that make a directory the mirror of every tool.
fn flags(dir: &Path) -> Vec<String> {
    let url = |tool: &str| format!("file://{}{tool}", dir.display());
    let flags = [
        ["--releases-url".to_owned(), url("")],
        ["--tofu-url".to_owned(), url("/tofu")],
        ["--terragrunt-url".to_owned(), url("/terragrunt")],
    ];
    flags.concat()
}

#[test]
fn filled_directory_has_files_and_lists_of_each_release() {
    let (_case, dir) = filled();
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
}

#[test]
fn filled_directory_is_a_mirror_without_a_network() {
    let (case, dir) = filled();
    // Another machine, which has the directory and the key, and no network.
    let other = Case::new();
    let flags = flags(&dir);
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
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
fn mirror_fill_refuses_unverified_files_and_invalid_arguments() {
    let case = Case::new();
    let dir = case.sandbox.path("mirror");
    let mirror = |release: &str| case.run(&["mirror", release, dir.to_str().unwrap()]);
    refused(&mirror("terraform"), 64, "is not a release: expected TOOL@REQUEST");
    refused(&mirror("nomad@1"), 64, "is not a release: expected TOOL@REQUEST");
    assert!(!dir.exists());
    case.mirror.put(&case.mirror.archive_path(Terraform, "1.9.8"), script("9").into_bytes());
    refused(&mirror("terraform@1.9.8"), 9, "is signed for it");
    assert_eq!(files(&dir), Vec::<String>::new());
    std::fs::write(dir.join("terraform/index.json"), "{\"versions\": []}").unwrap();
    refused(&mirror("terraform@1.9.7"), 8, "the nearest are 1.5.7 and 1.9.8");
    refused(&mirror("terraform@1.5.7"), 8, "index.json is not a list of versions");
    assert_eq!(std::fs::read(dir.join("terraform/index.json")).unwrap(), b"{\"versions\": []}");
}

#[test]
fn concurrent_mirror_fill_reports_that_it_waits() {
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
