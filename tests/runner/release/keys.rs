//! Public keys of vendors: known by fingerprint, and where they are fetched from.

use std::time::Duration;

use support::{Ended, MirroredTool, ReleaseMirror};

use crate::release::resolve::Case;
use MirroredTool::{Terraform, Terragrunt};

const OPENTOFU: &str = "e3e6e43d84cb852eadb0051d0c0af313e5fd9f80";
const GRUNTWORK: &str = "68c80f86df98e710c0f22e2e577774aca847cc49";

impl Case {
    /// Without a keyring, and with the makers' own sites behind a proxy that is not there.
    fn without_keyring(&self, words: &[&str]) -> Ended {
        let mut command = self.command(words);
        command
            .env_remove("PLANCHA_KEYRING")
            .env("PLANCHA_TERRAGRUNT_URL", self.mirror.url(Terragrunt))
            .env("HTTPS_PROXY", "http://127.0.0.1:1");
        Ended::from(command.output().unwrap())
    }
}

fn refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{words:?}: {ended:?}");
    for word in words.iter().chain(&[". next: "]) {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
}

#[test]
fn vendor_key_is_required_and_no_other_key_replaces_it() {
    let case = Case::new();
    case.mirror.add_script(Terragrunt, "1.0.0");
    for (release, key, site) in [
        ("tofu@1.11.0", OPENTOFU, "https://get.opentofu.org/opentofu.asc"),
        ("terragrunt@1.0.0", GRUNTWORK, "https://gruntwork.io/.well-known/pgp-key.txt"),
    ] {
        let tool = release.split_once('@').unwrap().0;
        let needs =
            format!("needs the key {key}, which could not be fetched: cannot connect to {site}");
        let by_name = format!("/{tool}/{key}.asc");
        // The mirror has no key, then one that it calls by that name.
        for _ in 0..2 {
            let ended = case.without_keyring(&["install", release]);
            refused(&ended, 6, &[&needs, "supply the key with --keyring"]);
            assert!(!case.sandbox.path("cache/plancha/keys").exists());
            case.mirror.put(&by_name, std::fs::read(case.mirror.keyring()).unwrap());
        }
        assert_eq!(case.mirror.requests(&by_name), 2);
    }
    // HashiCorp's is part of the program.
    let ended = case.without_keyring(&["install", "terraform@1.9.8"]);
    refused(&ended, 9, &["made by the unknown key"]);
    assert_eq!(case.left(), Vec::<String>::new());
}

#[test]
#[ignore = "needs ../shared/data"]
fn vendor_key_is_fetched_from_a_mirror_by_fingerprint_and_cached() {
    let data = support::shared_data("signatures").unwrap();
    for (release, key, file) in [
        ("tofu@1.11.0", OPENTOFU, "opentofu-0C0AF313E5FD9F80.asc"),
        ("terragrunt@1.0.0", GRUNTWORK, "gruntwork-577774ACA847CC49.asc"),
    ] {
        let real = std::fs::read(data.join(file)).unwrap();
        let case = Case::new();
        case.mirror.add_script(Terragrunt, "1.0.0");
        let by_name = format!("/{}/{key}.asc", release.split_once('@').unwrap().0);
        // Among others, as makers serve them.
        let others = std::fs::read(case.mirror.keyring()).unwrap();
        case.mirror.put(&by_name, [others.clone(), real].concat());
        let kept = case.sandbox.path(&format!("cache/plancha/keys/{key}.asc"));
        for _ in 0..2 {
            // The mirror has signed by its own key, which is in that file too and is not trusted.
            let ended = case.without_keyring(&["install", release]);
            refused(&ended, 9, &["is not signed by a key that is trusted", "the unknown key"]);
            assert!(kept.is_file());
        }
        assert_eq!(case.mirror.requests(&by_name), 1, "it is kept");
        // What is kept is looked at as if it had just come.
        std::fs::write(&kept, &others).unwrap();
        refused(&case.without_keyring(&["install", release]), 9, &["the unknown key"]);
        assert_eq!(case.mirror.requests(&by_name), 2);
    }
}

#[test]
fn key_of_another_mirror_is_not_accepted() {
    let (case, stranger) = (Case::new(), ReleaseMirror::start());
    let keyring = stranger.keyring();
    let words = ["install", "tofu@1.11.0", "--keyring", keyring.to_str().unwrap()];
    let ended = case.without_keyring(&words);
    refused(&ended, 6, &["which could not be fetched"]);
    let ended = case.install(&["tofu@1.11.0"]);
    assert_eq!(ended.code, 0, "with the mirror's own: {ended:?}");
}

#[test]
fn program_that_is_still_being_written_is_retried() {
    let case = Case::new();
    let path = case.sandbox.path("bin/terraform");
    support::executable(&path, &support::release_mirror::script("1.9.9"));
    let writing = std::fs::File::options().append(true).open(&path).unwrap();
    let child = case.start(&["resolve", "terraform@latest", "--offline"]);
    std::thread::sleep(Duration::from_millis(60));
    drop(writing);
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "1.9.9\n"), "{ended:?}");
    assert_eq!(case.mirror.requests(case.mirror.list_path(Terraform)), 0);
}
