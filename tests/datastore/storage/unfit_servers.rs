//! Servers that do not support what the datastore needs, or answer something else than they were asked for.

use std::time::{Duration, Instant};

use datastore::store::{Ability, Key, PutConditions};
use futures::stream;
use jiff::SignedDuration;
use nix::sys::signal::Signal;
use reqwest::Method;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore};

use super::buckets::{FOR_EVER, doubles, open};
use crate::api::health::outside;
use crate::http::{RUN, get, noise, request, send};
use crate::program::process::{Running, program};

const MIB: usize = 1 << 20;
const HTML: &str = "<!DOCTYPE html><html><body>Sign in</body></html>";

/// The exit code of a command over this cloud, and what it prints.
fn output(double: &FakeCloud, words: &[&str]) -> (Option<i32>, String) {
    let mut command = program(words);
    let command = command.args(["--storage", double.url()]).envs(double.variables());
    let output = command.output().unwrap();
    let shown = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(shown).unwrap())
}

/// What `check` shows of an ability.
fn row<'a>(shown: &'a str, name: &str) -> &'a str {
    let start = format!("storage can {name} ");
    let row = shown.lines().find_map(|line| line.strip_prefix(&start));
    row.unwrap_or_else(|| panic!("no row {name}: {shown}")).trim_start()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_the_condition_of_a_creation_is_used_without_it() {
    for dialect in Dialect::ALL {
        for (status, code) in [(501, "NotImplemented"), (405, ""), (400, "NotImplemented")] {
            let double = FakeCloud::start(dialect);
            double.reject_conditions_of_creations(status, code);
            double.reject_conditions_of_completions(status, code);
            let seen = open(&double).try_all().await;
            assert_eq!((seen.can(Ability::Create), seen.error), (Some(false), None));
            let datastore = TestDatastore::over(double).await;
            for (attempt, size) in [10, 9 * MIB].into_iter().enumerate() {
                let url = format!("plans?{RUN}&attempt={attempt}");
                let create = async |seed| {
                    let put = request(&datastore, Method::PUT, &url).header("if-none-match", "*");
                    send(put.body(noise(size, seed))).await.status
                };
                assert_eq!([create(0).await, create(1).await, create(0).await], [200, 412, 200]);
                assert!(get(&datastore, &url).await.body == noise(size, 0));
            }
            let claim = async |id: &str| {
                let url = format!("attempts?{RUN}&attempt=7&claim={id}");
                send(request(&datastore, Method::POST, &url)).await.status
            };
            assert_eq!([claim("a").await, claim("b").await, claim("a").await], [200, 409, 200]);
        }
    }
}

#[tokio::test]
async fn a_condition_that_was_honoured_is_sent_although_a_later_probe_is_refused() {
    for double in doubles() {
        let store = open(&double);
        assert_eq!(store.try_all().await.can(Ability::Create), Some(true));
        double.reject_conditions_of_creations(405, "MethodNotAllowed");
        let seen = store.try_all().await;
        assert_eq!((seen.can(Ability::Create), seen.ended_at), (Some(true), Some(Ability::Create)));
        let key = Key::from_path("layers/a/b/c/0/plan.bin").unwrap();
        let create = PutConditions { create: true, ..PutConditions::default() };
        let body = stream::iter([Ok("body".into())]);
        store.put(&key, create, body).await.unwrap_err();
        assert_eq!(double.artifacts(), Vec::<String>::new());
    }
}

#[test]
fn check_succeeds_where_the_condition_of_a_creation_is_refused() {
    let double = FakeCloud::start(Dialect::S3);
    double.reject_conditions_of_creations(501, "NotImplemented");
    let (exit, shown) = output(&double, &["check"]);
    assert_eq!(exit, Some(0), "{shown}");
    assert_eq!([row(&shown, "conditional_create"), row(&shown, "read")], ["no", "yes"]);
    assert_eq!((double.keys().len(), double.open_uploads()), (0, 0));
}

#[test]
fn check_fails_where_a_part_or_the_completion_is_refused() {
    for (method, query, name, status, code) in [
        ("PUT", "partNumber", "multipart_part", 501, "NotImplemented"),
        ("PUT", "partNumber", "multipart_part", 400, "InvalidRequest"),
        ("POST", "uploadId", "multipart_complete", 501, "NotImplemented"),
        ("POST", "uploadId", "multipart_complete", 405, "MethodNotAllowed"),
    ] {
        let double = FakeCloud::start(Dialect::S3);
        let fault = CloudFault { times: FOR_EVER, status, code, ..CloudFault::default() };
        double.fault(CloudFault { method, query, ..fault });
        let (exit, shown) = output(&double, &["check"]);
        assert_eq!(exit, Some(10), "{shown}");
        assert_eq!(row(&shown, "multipart_begin"), "yes");
        let refused = row(&shown, name);
        assert!(refused.starts_with("no (") && refused.contains(code), "{shown}");
        let expected = "does not do what is needed: artifacts above 8 MiB need uploads in parts: ";
        let error = shown.split_once(expected).unwrap_or_else(|| panic!("{shown}")).1;
        assert!(error.contains(code), "{shown}");
        assert_eq!(double.open_uploads(), 0);
    }
}

#[tokio::test]
async fn a_probe_sees_that_uploads_in_parts_are_refused() {
    for (method, query) in [("POST", "uploads"), ("PUT", "partNumber"), ("POST", "uploadId")] {
        for double in doubles() {
            let (status, code) = (405, "MethodNotAllowed");
            let fault = CloudFault { times: FOR_EVER, status, code, ..CloudFault::default() };
            double.fault(CloudFault { method, query, ..fault });
            let store = open(&double);
            let seen = store.try_all().await;
            assert!(seen.refuses_uploads && seen.error.is_none(), "{method} {query}");
            assert_eq!(seen.can(Ability::CreateLarge), Some(false));
            double.heal();
            assert!(!store.try_all().await.refuses_uploads);
        }
    }
}

#[test]
fn check_sees_that_a_list_of_uploads_lacks_the_upload_that_was_begun() {
    let another = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><Upload><Key>x</Key>\
                   <UploadId>1</UploadId><Initiated>2026-11-20T20:48:33Z</Initiated></Upload></ListMultipartUploadsResult>";
    for (document, exit_code, expected) in [
        ("<ListBucketResult/>", 0, "no (it answers a document `ListBucketResult` instead of"),
        ("<ListMultipartUploadsResult/>", 0, "no (the list of uploads does not show"),
        (another, 0, "no (the list of uploads does not show"),
        (HTML, 10, "unknown (it answers a document `html` instead of ListMultipartUploadsResult"),
        ("", 10, "unknown (it answers nothing instead of ListMultipartUploadsResult"),
    ] {
        let double = FakeCloud::start(Dialect::S3);
        let list = CloudFault { method: "GET", query: "uploads", ..CloudFault::default() };
        double.fault(CloudFault { times: FOR_EVER, document: Some(document), ..list });
        let (exit, shown) = output(&double, &["check"]);
        assert_eq!(exit, Some(exit_code), "{shown}");
        assert!(row(&shown, "multipart_list").starts_with(expected), "{shown}");
        assert_eq!(row(&shown, "multipart_abort"), "yes");
        assert_eq!(shown.contains("warning: multipart_list: parts of uploads"), exit_code == 0);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_listing_is_an_error_and_no_empty_bucket() {
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        double.put("layers/a/b/c/0/plan.json", "content");
        let store = open(&double);
        store.start().await.unwrap();
        let list = CloudFault { method: "GET", query: "list-type", ..CloudFault::default() };
        let list = CloudFault { times: FOR_EVER, ..list };
        let expected = |what: &str| format!("it answers {what} instead of ListBucketResult");
        for (document, what) in [
            (HTML, "a document `html`"),
            ("<ListAllMyBucketsResult/>", "a document `ListAllMyBucketsResult`"),
            ("Hello", "no XML"),
            ("", "nothing"),
        ] {
            double.heal();
            double.fault(CloudFault { document: Some(document), ..list.clone() });
            for words in [&["ls"][..], &["verify"], &["gc", "--keep-runs", "1"], &["reindex"]] {
                let (exit, shown) = output(&double, words);
                assert_eq!(exit, Some(10), "{words:?}: {shown}");
                assert!(shown.contains(&expected(what)), "{words:?}: {shown}");
            }
            let (exit, shown) = output(&double, &["check"]);
            assert_eq!(exit, Some(10), "{shown}");
            assert!(row(&shown, "list").starts_with("unknown ("), "{shown}");
            assert!(shown.contains(&expected(what)), "{shown}");
            store.try_list().await;
            store.try_list().await;
            let reason = store.ready().await.unwrap_err();
            assert!(reason.starts_with(&expected(what)), "{reason}");
        }
        assert_eq!(double.artifacts().len(), 1);
    }
}

#[test]
fn gc_does_not_take_a_page_of_a_proxy_for_a_deletion() {
    let double = FakeCloud::start(Dialect::S3);
    double.clock(SignedDuration::from_mins(-10));
    double.put("layers/a/b/c/0/plan.json", "content");
    double.clock(SignedDuration::ZERO);
    let delete = CloudFault { method: "POST", query: "delete", ..CloudFault::default() };
    double.fault(CloudFault { times: FOR_EVER, document: Some(HTML), ..delete });
    let (exit, shown) = output(&double, &["gc", "--max-age", "json=0s", "--min-age", "0s"]);
    assert_eq!(exit, Some(10), "{shown}");
    assert!(shown.contains("it answers a document `html` instead of DeleteResult"), "{shown}");
    assert_eq!(double.artifacts().len(), 1);
}

#[test]
fn check_shows_a_listing_that_was_refused_as_such() {
    for (status, code, expected) in [
        (403, "AccessDenied", "no"),
        (401, "", "unknown ("),
        (403, "SignatureDoesNotMatch", "unknown ("),
    ] {
        let double = FakeCloud::start(Dialect::S3);
        double.fault(CloudFault { status, code, times: FOR_EVER, ..CloudFault::default() });
        let (exit, shown) = output(&double, &["check"]);
        assert_eq!(exit, Some(10), "{shown}");
        assert!(row(&shown, "list").starts_with(expected), "{shown}");
        assert_eq!(row(&shown, "write"), "not tried (the check ended at `list`)");
        assert_eq!(row(&shown, "multipart_list"), "not tried (the check ended at `list`)");
    }
    let double = FakeCloud::start(Dialect::S3);
    double.has_bucket(false);
    let (exit, shown) = output(&double, &["check"]);
    assert_eq!((exit, row(&shown, "list")), (Some(10), "no"), "{shown}");
}

#[tokio::test]
async fn the_page_of_a_proxy_is_neither_an_object_nor_a_missing_one() {
    for dialect in Dialect::ALL {
        for status in [200, 404] {
            let datastore = TestDatastore::double(dialect).await;
            let url = format!("artifacts?{RUN}&attempt=0&name=a");
            let page = CloudFault { key: "layers/", document: Some(HTML), ..CloudFault::default() };
            datastore.cloud().fault(CloudFault { status, times: FOR_EVER, ..page });
            let answer = get(&datastore, &url).await;
            let expected = format!("its answer {status} is not that of ");
            assert!(answer.status == 500 && answer.text().contains(&expected), "{}", answer.text());
            let head = send(request(&datastore, Method::HEAD, &url)).await;
            assert_eq!(head.status, 500, "{dialect:?} {status}");
            datastore.cloud().heal();
            assert_eq!(get(&datastore, &url).await.status, 404);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_proxy_is_no_answer_to_a_write() {
    let plan = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let (object, applied) =
        (format!("artifacts?{RUN}&attempt=0&name=a"), format!("applied?{RUN}&plan={plan}"));
    for dialect in Dialect::ALL {
        // The second one answers every request, the first one only uploads.
        for method in ["PUT", ""] {
            let datastore = TestDatastore::double(dialect).await;
            let page = CloudFault { method, document: Some(HTML), ..CloudFault::default() };
            datastore.cloud().fault(CloudFault { times: FOR_EVER, ..page });
            let put = |url: &str, size| request(&datastore, Method::PUT, url).body(vec![1; size]);
            let create = put(&object, 5).header("if-none-match", "*");
            let claim = format!("attempts?{RUN}&attempt=0&claim=one");
            let claim = request(&datastore, Method::POST, &claim);
            for (n, write) in
                [put(&object, 5), create, put(&object, 9 << 20), put(&applied, 5), claim]
                    .into_iter()
                    .enumerate()
            {
                let answer = send(write).await;
                assert_eq!(answer.status, 500, "{dialect:?} {method} {n}: {}", answer.text());
            }
            datastore.cloud().heal();
            for url in [&object, &applied] {
                assert_eq!(get(&datastore, url).await.status, 404, "{dialect:?} {method}");
            }
        }
    }
}

#[tokio::test]
async fn in_a_missing_bucket_no_object_is_missing() {
    for dialect in Dialect::ALL {
        let datastore = TestDatastore::double(dialect).await;
        let url = format!("artifacts?{RUN}&attempt=0&name=a");
        datastore.cloud().has_bucket(false);
        let answer = get(&datastore, &url).await;
        let expected = "its bucket or directory is missing";
        assert!(answer.status == 500 && answer.text().contains(expected), "{}", answer.text());
        let since = Instant::now();
        while outside(&datastore, "readyz").await.status == 200 {
            assert!(since.elapsed() < Duration::from_secs(30), "still ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let ready = outside(&datastore, "readyz").await;
        assert!(ready.text().contains(expected), "{}", ready.text());
        // Its answer has no document, which would name the bucket.
        let head = send(request(&datastore, Method::HEAD, &url)).await;
        assert_eq!(head.status, 500);
    }
}

#[test]
fn check_names_a_wrong_clock_whichever_step_it_refuses() {
    let code = "RequestTimeTooSkewed";
    for (method, query, name) in [
        ("GET", "list-type", "list"),
        ("POST", "uploads", "conditional_multipart"),
        ("POST", "uploads", "multipart_begin"),
        ("PUT", "partNumber", "multipart_part"),
        ("GET", "uploads", "multipart_list"),
        ("DELETE", "uploadId", "multipart_abort"),
    ] {
        let double = FakeCloud::start(Dialect::S3);
        let fault = CloudFault { method, query, status: 403, code, ..CloudFault::default() };
        double.fault(CloudFault { times: FOR_EVER, ..fault });
        let (exit, shown) = output(&double, &["check"]);
        assert_eq!(exit, Some(10), "{shown}");
        let expected = "unknown (this machine's clock and the storage's differ by too much, ";
        assert!(row(&shown, name).starts_with(expected), "{name}: {shown}");
        assert!(!shown.contains(code), "{name}: {shown}");
    }
}

/// Waits until the log of a running datastore has a line with all of these, and returns it.
fn logged(datastore: &Running, parts: &[&str]) -> String {
    let since = Instant::now();
    loop {
        let log = datastore.log.lock().unwrap().clone();
        let line = log.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        if let Some(line) = line {
            return line.to_owned();
        }
        assert!(since.elapsed() < Duration::from_mins(1), "no {parts:?}: {log}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_log_names_each_ability_that_is_not_known_and_what_holds_until_it_is() {
    // The object is written, and then its creation, or its replacement, gets no conclusive answer.
    for (after, times, ability, holds) in [
        (0, 50, "write", "creations are sent on the condition"),
        (2, 50, "conditional_create", "creations are sent on the condition"),
        // With the client's retries it is refused once.
        (3, 4, "conditional_update", "leases that killed replicas have left are not taken over"),
    ] {
        let double = FakeCloud::start(Dialect::S3);
        let fault = CloudFault { method: "PUT", after, times, ..Default::default() };
        double.fault(CloudFault { status: 500, key: ".plancha/probe/", ..fault });
        let mut command = program(&["serve", "--listen", "127.0.0.1:0", "--storage", double.url()]);
        let mut datastore = Running::of(command.envs(double.variables()));
        logged(&datastore, &["cannot see whether the storage can do this", ability]);
        let line = logged(&datastore, &["it is not known whether", ability]);
        assert!(line.contains(holds), "{line}");
        assert_eq!(line.contains("creations are sent"), ability != "conditional_update", "{line}");
        datastore.signal(Signal::SIGTERM);
        assert!(datastore.wait().success());
    }
}
