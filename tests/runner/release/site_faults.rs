//! Faults of release sites: each is reported with its URL and the next step, and leaves no files.

use std::time::Duration;

use support::{Ended, MirrorFault, MirroredTool, Proxy, Resetting, TlsFront};

use crate::release::resolve::Case;
use MirroredTool::Terraform;

impl Case {
    fn asked(&self, words: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = self.command(words);
        Ended::from(command.envs(variables.iter().copied()).output().unwrap())
    }
}

/// Exit code, words, and a next step.
fn answered_text(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{words:?}: {ended:?}");
    for word in words.iter().chain(&[". next: "]) {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
}

#[test]
fn every_fault_of_a_version_list_is_named() {
    const LIMIT: [(&str, &str); 2] =
        [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1789000000")];
    for (fault, code, words, tries) in [
        (MirrorFault::Status(404, 99), 8, "does not exist (404)", 1),
        (MirrorFault::Status(401, 99), 5, "answered 401", 1),
        (MirrorFault::Status(429, 99), 6, "still answered 429 after 4 tries", 4),
        (MirrorFault::Status(502, 99), 6, "still answered 502 after 4 tries", 4),
        (MirrorFault::Answer(403, &LIMIT), 6, "(rate limit)", 1),
        (MirrorFault::Cut(9, 99), 6, "failed", 4),
        (MirrorFault::Circle, 8, "has a redirect that is not allowed", 11),
        (MirrorFault::Endless, 9, "is larger than 32 MiB", 1),
    ] {
        let case = Case::new();
        let list = case.mirror.list_path(Terraform);
        case.mirror.fault(list, fault);
        let ended = case.run(&["resolve", "terraform@latest"]);
        answered_text(&ended, code, &[list, words]);
        let is_early =
            |line: &str| line.contains("trying again") && line.contains("still answered");
        assert!(!ended.stderr.lines().any(is_early), "{ended:?}");
        assert_eq!(case.mirror.requests(list), tries, "{words}");
    }
}

#[test]
fn every_fault_of_an_archive_is_named_and_leaves_no_files() {
    for (fault, code, words) in [
        (MirrorFault::Status(404, 99), 8, "an incomplete mirror"),
        (MirrorFault::Status(403, 99), 5, "answered 403"),
        (MirrorFault::Status(429, 99), 6, "still answered 429 after 4 tries"),
        (MirrorFault::Cut(100, 99), 6, "failed"),
        (MirrorFault::Circle, 8, "has a redirect that is not allowed"),
    ] {
        let case = Case::new();
        let archive = case.mirror.archive_path(Terraform, "1.9.8");
        case.mirror.fault(&archive, fault);
        answered_text(&case.run(&["install", "terraform@1.9.8"]), code, &[&archive, words]);
        let left = std::fs::read_dir(case.sandbox.path("cache/plancha/bin/Terraform")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [".1.9.8.lock"], "{words}");
        // The same place serves well again.
        case.mirror.fault(&archive, MirrorFault::Slow(Duration::from_millis(1)));
        assert_eq!(case.run(&["install", "terraform@1.9.8"]).code, 0, "{words}");
    }
}

#[test]
fn connection_reset_is_retried_and_selects_no_other_binary() {
    let case = Case::new();
    let ill = Resetting::start();
    case.on_path(Terraform, "1.10.0");
    let ended = case.asked(&["install", "terraform@latest"], &[("TFENV_REMOTE", &ill.url())]);
    answered_text(
        &ended,
        6,
        &["the transfer of http://127.0.0.1:", "/terraform/index.json failed"],
    );
}

#[test]
fn private_certificate_authority_is_trusted_only_when_configured() {
    let case = Case::new();
    let front = TlsFront::before(case.mirror.address());
    let remote = [("TFENV_REMOTE", front.url())];
    let remote = remote.each_ref().map(|(name, url)| (*name, url.as_str()));
    let ended = case.asked(&["install", "terraform@latest"], &remote);
    answered_text(&ended, 6, &["the TLS handshake with https://127.0.0.1:", "--ca-file"]);
    assert_eq!(case.mirror.all_requests(), 0);

    let ca_file = front.ca_file();
    let words = ["install", "terraform@latest", "--ca-file", ca_file.to_str().unwrap()];
    let ended = case.asked(&words, &remote);
    assert!(ended.stdout.ends_with("/Terraform/1.10.0/terraform\n"), "{ended:?}");
    // The file that every other program takes it from will do as well.
    let ca_file = ca_file.to_str().unwrap();
    let all = [&remote[..], &[("SSL_CERT_FILE", ca_file)]].concat();
    let ended = case.asked(&["resolve", "terraform@latest", "--refresh"], &all);
    assert_eq!(ended.stdout, "1.10.0\n", "{ended:?}");
}

#[test]
fn self_signed_certificate_of_an_authority_is_not_to_be_added_again() {
    let case = Case::new();
    let front = TlsFront::self_signed(case.mirror.address());
    let ca_file = TlsFront::own_certificate();
    let words = ["install", "terraform@latest", "--ca-file", ca_file.to_str().unwrap()];
    let ended = case.asked(&words, &[("TFENV_REMOTE", &front.url())]);
    answered_text(&ended, 6, &["CaUsedAsEndEntity", "give the server one with CA:FALSE"]);
    assert!(!ended.stderr.contains("add its certificate"), "{ended:?}");
}

#[test]
fn https_url_of_a_plain_http_server_is_reported() {
    let case = Case::new();
    let plain = Proxy::refusing("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
    let url = plain.url().replace("http://", "https://");
    let ended = case.asked(&["resolve", "terraform@latest"], &[("TFENV_REMOTE", &url)]);
    answered_text(
        &ended,
        6,
        &["the TLS handshake with https://127.0.0.1:", "write http:// instead of https://"],
    );
}

#[test]
fn proxy_is_used_and_named_in_its_errors() {
    let case = Case::new();
    let front = TlsFront::before(case.mirror.address());
    let (url, ca_file) = (front.url(), front.ca_file());
    let by = |proxy: &str| {
        let words =
            ["resolve", "terraform@latest", "--refresh", "--ca-file", ca_file.to_str().unwrap()];
        case.asked(&words, &[("TFENV_REMOTE", &url), ("HTTPS_PROXY", proxy)])
    };
    let refusing = Proxy::refusing("HTTP/1.1 403 Forbidden\r\n\r\n");
    answered_text(
        &by(&refusing.url()),
        6,
        &["the proxy http://127.0.0.1:", "did not connect to https://"],
    );
    let asking = Proxy::refusing("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    let ended = by(&asking.url().replace("://", "://me:hunter2@"));
    answered_text(
        &ended,
        5,
        &["the proxy http://127.0.0.1:", "requires a user and a password for https://"],
    );
    assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
    let gone = by("http://127.0.0.1:1");
    answered_text(
        &gone,
        6,
        &["cannot connect to https://127.0.0.1:", "through the proxy http://127.0.0.1:1"],
    );
    let open = Proxy::open();
    let ended = by(&open.url());
    assert_eq!(ended.stdout, "1.10.0\n", "{ended:?}");
}
