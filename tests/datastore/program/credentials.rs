//! Commands over a bucket whose credentials lack a right, or cannot be sent.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{CloudFault, Dialect, FakeCloud};

use crate::program::process::{Running, program};

/// Runs a command over a fake cloud that denies such requests: all that it prints.
fn denied(fault: &CloudFault, words: &[&str]) -> String {
    let double = FakeCloud::start(Dialect::S3);
    double.put("layers/a/b/c/0/plan.json", "content");
    let (status, code) = (403, "AccessDenied");
    double.fault(CloudFault { times: usize::MAX, status, code, ..fault.clone() });
    let mut command = program(words);
    let output =
        command.args(["--storage", double.url()]).envs(double.variables()).output().unwrap();
    assert_eq!(output.status.code(), Some(10), "{words:?}");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn a_command_names_the_right_that_is_missing() {
    let gc: &[&str] = &["gc", "--max-age", "json=0s", "--min-age", "0s"];
    let list = CloudFault { method: "GET", query: "list-type", ..CloudFault::default() };
    let read = CloudFault { method: "GET", key: "plan.json", ..CloudFault::default() };
    let write = CloudFault { method: "PUT", ..CloudFault::default() };
    let delete = CloudFault { method: "POST", query: "delete", ..CloudFault::default() };
    for (fault, right, words) in [
        (&list, "s3:ListBucket", &["ls"][..]),
        (&read, "s3:GetObject", &["cat", "layers/a/b/c/0/plan.json"]),
        (&list, "s3:ListBucket", &["verify"]),
        (&read, "s3:GetObject", &["verify"]),
        (&list, "s3:ListBucket", gc),
        (&delete, "s3:DeleteObject", gc),
        (&write, "s3:PutObject", gc),
    ] {
        let shown = denied(fault, words);
        let expected =
            format!("it denies access; the datastore's credentials need the right {right}:");
        assert!(shown.contains(&expected), "{words:?}: {shown}");
        assert!(!shown.contains('<'), "{shown}");
    }
}

#[test]
fn check_reports_an_ability_that_an_error_has_hidden() {
    let begin = CloudFault { method: "POST", query: "uploads", ..CloudFault::default() };
    let shown = denied(&begin, &["check"]);
    let row = |name: &str| shown.lines().find(|line| line.contains(&format!("can {name} ")));
    let unknown = row("conditional_multipart");
    assert!(unknown.is_some_and(|line| line.contains(" unknown (")), "{shown}");
    assert!(row("multipart_begin").is_some_and(|line| line.contains(" no (")), "{shown}");
    let expected = " not tried (no upload in parts could be started)";
    assert!(row("multipart_list").is_some_and(|line| line.ends_with(expected)), "{shown}");
    let (_, error) = shown.split_once("error: the storage does not do what is needed: ").unwrap();
    assert!(error.contains("s3:PutObject"), "{shown}");
}

#[test]
fn check_names_the_rights_that_the_cleanup_of_uploads_lacks() {
    let list = CloudFault { method: "GET", query: "uploads", ..CloudFault::default() };
    // The probe's own uploads are completed; the one that is refused as a creation is aborted first.
    let abort = CloudFault { method: "DELETE", query: "uploadId", ..CloudFault::default() };
    for (fault, name, right) in [
        (list, "multipart_list", "s3:ListBucketMultipartUploads"),
        (abort, "multipart_abort", "s3:AbortMultipartUpload"),
    ] {
        let shown = denied(&fault, &["check"]);
        for line in shown.lines().filter(|line| line.contains("storage can multipart_")) {
            assert_eq!(line.contains(" no ("), line.contains(name), "{shown}");
        }
        assert!(shown.contains(&format!("storage can {name}")), "{shown}");
        let expected = format!("credentials need the right {right}");
        let errors = shown.split("error: the storage does not do what is needed: ").nth(1);
        assert!(errors.is_some_and(|error| error.contains(&expected)), "{shown}");
    }
}

/// What `check` prints and its exit code, over a fake cloud with this fault.
fn checked(fault: &CloudFault) -> (Option<i32>, String) {
    let double = FakeCloud::start(Dialect::S3);
    double.fault(CloudFault { times: usize::MAX, ..fault.clone() });
    let mut command = program(&["check", "--storage", double.url()]);
    let output = command.envs(double.variables()).output().unwrap();
    let shown = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(shown).unwrap())
}

#[test]
fn check_fails_where_no_upload_in_parts_can_be_begun() {
    let (status, code) = (501, "NotImplemented");
    let begin = CloudFault { method: "POST", query: "uploads", status, code, ..Default::default() };
    let (exit, shown) = checked(&begin);
    assert_eq!(exit, Some(10), "{shown}");
    assert!(shown.contains("storage can multipart_begin        no ("), "{shown}");
    assert!(shown.contains("storage can multipart_abort        not tried ("), "{shown}");
    let expected = "does not do what is needed: artifacts above 8 MiB need uploads in parts: ";
    assert!(shown.contains(expected) && shown.contains("NotImplemented"), "{shown}");
}

#[test]
fn check_says_why_uploads_could_not_be_listed() {
    for (status, code, expected) in [
        (403, "InvalidAccessKeyId", "it does not accept the datastore's credentials"),
        (403, "SignatureDoesNotMatch", "it does not accept the datastore's credentials"),
        (400, "ExpiredToken", "it does not accept the datastore's credentials"),
        (403, "RequestTimeTooSkewed", "this machine's clock and the storage's differ by too much"),
        (503, "SlowDown", "it limits the rate of requests"),
        (429, "", "it limits the rate of requests"),
        (500, "", "the answer has the status code: 500"),
    ] {
        let list = CloudFault { method: "GET", query: "uploads", ..CloudFault::default() };
        let (exit, shown) = checked(&CloudFault { status, code, ..list });
        assert_eq!(exit, Some(10), "{shown}");
        assert!(shown.contains("storage can multipart_list         unknown ("), "{shown}");
        assert!(shown.contains("storage can multipart_abort        yes\n"), "{shown}");
        let (_, error) =
            shown.split_once("error: cannot see whether the storage can multipart_list: ").unwrap();
        assert!(error.contains(expected) && !error.contains("the right"), "{shown}");
    }
}

#[test]
fn check_names_the_step_after_which_nothing_was_tried() {
    let (exit, shown) = checked(&CloudFault { method: "PUT", status: 500, ..Default::default() });
    assert_eq!(exit, Some(10), "{shown}");
    assert!(shown.contains("storage can write                  unknown ("), "{shown}");
    for name in ["conditional_create ", "delete ", "multipart_list "] {
        let row = shown.lines().find(|line| line.contains(name)).unwrap();
        assert!(row.ends_with(" not tried (the check ended at `write`)"), "{shown}");
    }
    assert!(shown.contains("error: cannot see whether the storage can write: "), "{shown}");
}

#[test]
fn serve_does_not_warn_of_an_ability_that_no_check_has_seen_to_lack() {
    let double = FakeCloud::start(Dialect::S3);
    // After a part and the object: the creation that must be refused.
    let fault = CloudFault { method: "PUT", after: 2, times: usize::MAX, ..Default::default() };
    double.fault(CloudFault { status: 500, ..fault });
    let mut command = program(&["serve", "--listen", "127.0.0.1:0", "--storage", double.url()]);
    let mut datastore = Running::of(command.envs(double.variables()));
    let logged = |text: &str| {
        let since = Instant::now();
        while !datastore.log.lock().unwrap().contains(text) {
            let log = datastore.log.lock().unwrap();
            assert!(since.elapsed() < Duration::from_mins(1), "no `{text}`: {log}");
            drop(log);
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    logged("it is not known whether the storage can do this");
    assert!(!datastore.log.lock().unwrap().contains("this storage ignores or refuses"));
    double.heal();
    double.ignore_conditions();
    logged("this storage ignores or refuses the condition that no object exists");
    datastore.signal(Signal::SIGTERM);
    assert!(datastore.wait().success());
}

#[test]
fn check_warns_where_uploads_cannot_be_listed() {
    let double = FakeCloud::start(Dialect::S3);
    let (status, code) = (501, "NotImplemented");
    let fault = CloudFault { method: "GET", query: "uploads", ..CloudFault::default() };
    double.fault(CloudFault { times: usize::MAX, status, code, ..fault });
    let mut command = program(&["check", "--storage", double.url()]);
    let output = command.envs(double.variables()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("warning: multipart_list: parts of uploads"), "{shown}");
    assert_eq!(double.open_uploads(), 0);
}

#[test]
fn a_token_with_a_line_break_is_an_error_and_prints_no_panic() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "hush\n").unwrap();
    let double = FakeCloud::start(Dialect::S3);
    let file = token.path().to_str().unwrap().to_owned();
    let run = |words: &[&str]| {
        let mut command = program(words);
        command.args(["--storage", double.url()]).envs(double.variables());
        command.envs([("AWS_ACCESS_KEY_ID", ""), ("AWS_SECRET_ACCESS_KEY", "")]);
        command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/credentials");
        let output = command.env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file).output().unwrap();
        assert_eq!(output.status.code(), Some(10));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!text.contains("hush") && text.contains("contains a line break"), "{text}");
        text
    };
    let text = run(&["ls"]);
    assert!(text.starts_with("error: cannot list") && text.lines().count() == 1, "{text}");
    let text =
        run(&["serve", "--listen", "127.0.0.1:0", "--insecure-no-auth", "--log-format", "json"]);
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let warning = lines.into_iter().find(|line| line["location"].is_string());
    let warning = warning.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(
        (&*warning["level"].to_string(), &*warning["message"].to_string()),
        ("\"WARN\"", "\"a library panicked: its call failed\"")
    );
    let location = warning["location"].as_str().unwrap();
    assert!(!location.starts_with('/') && location.contains("/src/"), "{location}");
    let text = warning["text"].as_str().unwrap();
    assert!(text.contains("InvalidHeaderValue") && !text.contains("hush"), "{text}");
}
