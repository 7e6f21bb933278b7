//! What the datastore learns about its storage, at startup and later.

use std::time::Duration;

use datastore::config::Config;
use datastore::store::{Ability, Storage, Store};
use jiff::{SignedDuration, Timestamp};
use support::{CloudFault, Dialect, FakeCloud, Pace};
use tokio_util::sync::CancellationToken;

use crate::storage::buckets::{FOR_EVER, doubles, open, swept};

#[tokio::test]
async fn capabilities_of_the_backend_are_probed_at_startup() {
    for double in doubles() {
        let store = open(&double);
        store.start().await.unwrap();
        let seen = store.probe_results();
        assert_eq!(seen.abilities, Ability::ALL.map(|ability| (ability, true)));
        assert_eq!(seen.error, None);
        double.ignore_conditions();
        assert_eq!(store.try_all().await.can(Ability::Create), Some(false));
        assert_eq!(double.keys(), Vec::<String>::new(), "nothing is left of it");
        assert_eq!(double.open_uploads(), 0);
    }
    for double in doubles() {
        double.ignore_conditions_of_completions();
        let seen = open(&double).try_all().await;
        assert_eq!(
            (seen.can(Ability::Create), seen.can(Ability::CreateLarge)),
            (Some(true), Some(false))
        );
        assert_eq!((seen.can(Ability::MultipartEtag), seen.error), (Some(true), None));
        assert_eq!((double.keys().len(), double.open_uploads()), (0, 0));
    }
    // PUTs of the probe: a part, the object, its refused creation, its replacement with 3 retries.
    let refused =
        CloudFault { method: "PUT", after: 3, times: 4, status: 501, ..CloudFault::default() };
    for is_ignored in [true, false] {
        for double in doubles() {
            if is_ignored {
                double.ignore_conditions_of_updates();
            } else {
                double.fault(refused.clone());
            }
            let seen = open(&double).try_all().await;
            let can =
                [Ability::Create, Ability::Update, Ability::CreateLarge].map(|of| seen.can(of));
            assert_eq!((can, seen.error), ([Some(true), Some(false), Some(true)], None));
            assert_eq!((double.keys().len(), double.open_uploads()), (0, 0));
        }
    }
}

#[tokio::test]
async fn an_ability_that_a_transient_error_has_hidden_is_tried_again() {
    let fault = CloudFault { key: ".plancha/probe/", times: 4, status: 503, ..Default::default() };
    for (method, query, after, hidden) in [
        ("POST", "uploads", 0, Ability::CreateLarge),
        // The completion of the second upload.
        ("POST", "uploadId", 1, Ability::CreateLarge),
        // After a part, the object, and its refused creation.
        ("PUT", "", 3, Ability::Update),
    ] {
        for double in doubles() {
            double.fault(CloudFault { method, query, after, ..fault.clone() });
            let store = open(&double);
            let seen = store.try_all().await;
            assert_eq!((seen.can(hidden), seen.error), (None, None), "{method} {query}");
            let seen = store.try_all().await;
            assert_eq!(seen.abilities, Ability::ALL.map(|ability| (ability, true)));
            assert_eq!((double.keys().len(), double.open_uploads()), (0, 0));
        }
    }
}

#[tokio::test]
async fn a_step_that_fails_leaves_what_was_known() {
    let fault = CloudFault { times: FOR_EVER, status: 500, ..Default::default() };
    let silent = CloudFault { status: 0, delay: Duration::from_mins(1), ..fault.clone() };
    for (method, query, after, of) in [
        ("GET", "list-type", 0, Dialect::S3),
        ("PUT", "", 0, Dialect::S3),
        ("PUT", "", 1, Dialect::Gcs),
        ("GET", "", 1, Dialect::S3),
        ("DELETE", "", 0, Dialect::Gcs),
    ] {
        for fault in [&fault, &silent] {
            let double = FakeCloud::start(of);
            let store = open(&double);
            let all = Ability::ALL.map(|ability| (ability, true));
            assert_eq!(store.try_all().await.abilities, all);
            double.fault(CloudFault { method, query, after, ..fault.clone() });
            let seen = store.try_all().await;
            assert_eq!(seen.abilities, all, "{method} {query} {after}");
            assert!(seen.error.is_some() && !seen.is_unfit(), "{method} {query} {after}");
            assert!(seen.skew.is_some());
        }
    }
}

#[tokio::test]
async fn a_first_probe_that_fails_shows_nothing_of_later_steps() {
    for double in doubles() {
        // After a part and the object: the creation that must be refused.
        let fault = CloudFault { method: "PUT", after: 2, times: FOR_EVER, ..Default::default() };
        double.fault(CloudFault { status: 500, ..fault });
        let store = open(&double);
        let seen = store.try_all().await;
        assert_eq!(seen.abilities, [(Ability::List, true), (Ability::Write, true)]);
        assert_eq!(seen.ended_at, Some(Ability::Create));
        double.heal();
        let seen = store.try_all().await;
        assert_eq!(seen.abilities, Ability::ALL.map(|ability| (ability, true)));
        assert_eq!((seen.ended_at, seen.unseen), (None, Vec::new()));
    }
}

#[tokio::test]
async fn a_step_without_an_answer_is_named_with_its_timeout() {
    let delay = Duration::from_mins(1);
    let silent = CloudFault { delay, times: FOR_EVER, ..CloudFault::default() };
    for (method, query, after, expected) in [
        ("GET", "list-type", 0, "list: no answer within 4s"),
        ("PUT", "", 2, "create an object that exists: no answer within 4s"),
        ("POST", "delete", 0, "delete: no answer within 4s"),
    ] {
        let double = FakeCloud::start(Dialect::S3);
        double.fault(CloudFault { method, query, after, ..silent.clone() });
        let store = Store::open(&double.storage()).unwrap();
        let error = store.try_all().await.error.unwrap();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_transient_400_hides_no_ability() {
    for code in ["RequestTimeout", "ExpiredToken", "ThrottlingException"] {
        for (method, query, after, hidden) in [
            ("POST", "uploads", 0, Ability::CreateLarge),
            ("PUT", "partNumber", 0, Ability::CreateLarge),
            ("POST", "uploadId", 0, Ability::CreateLarge),
            ("POST", "uploadId", 1, Ability::CreateLarge),
            ("PUT", "", 3, Ability::Update),
        ] {
            for double in doubles() {
                let fault = CloudFault { times: 1, status: 400, code, ..CloudFault::default() };
                double.fault(CloudFault { method, query, after, ..fault });
                let store = open(&double);
                let seen = store.try_all().await;
                assert_eq!((seen.can(hidden), seen.error), (None, None), "{method} {query}");
                let seen = store.try_all().await;
                assert_eq!(seen.abilities, Ability::ALL.map(|ability| (ability, true)));
            }
        }
    }
}

#[tokio::test]
async fn an_ability_that_any_other_400_has_hidden_is_tried_again() {
    for (method, query, after, hidden) in [
        ("POST", "uploads", 0, Ability::CreateLarge),
        ("POST", "uploadId", 1, Ability::CreateLarge),
        ("PUT", "", 3, Ability::Update),
    ] {
        for double in doubles() {
            let fault = CloudFault { times: 1, status: 400, ..CloudFault::default() };
            double.fault(CloudFault { method, query, after, ..fault });
            let store = open(&double);
            assert_eq!(store.try_all().await.can(hidden), Some(false), "{method} {query}");
            let seen = store.try_all().await;
            assert_eq!(seen.abilities, Ability::ALL.map(|ability| (ability, true)));
        }
    }
}

#[tokio::test]
async fn a_lost_answer_to_the_replacement_hides_no_ability() {
    for double in doubles() {
        // After a part, the object, and its refused creation.
        let (method, status) = ("PUT", 503);
        let lost = CloudFault { method, after: 3, times: 1, status, ..CloudFault::default() };
        double.fault(CloudFault { apply_then_fail: true, ..lost });
        let seen = open(&double).try_all().await;
        assert_eq!(seen.abilities, Ability::ALL.map(|ability| (ability, true)));
    }
}

#[tokio::test]
async fn an_object_of_an_earlier_probe_does_not_hide_an_ability() {
    for double in doubles() {
        // The first upload succeeds, and then the object cannot be written.
        let fault =
            CloudFault { method: "PUT", after: 1, times: 4, status: 503, ..Default::default() };
        double.fault(fault);
        let store = open(&double);
        assert!(store.try_all().await.error.is_some());
        let seen = store.try_all().await;
        assert_eq!(seen.abilities, Ability::ALL.map(|ability| (ability, true)));
    }
}

#[tokio::test]
async fn permanent_storage_errors_end_startup_with_the_next_step() {
    let refusal = async |storage: &Storage| {
        let refusal = Store::open(storage).unwrap().start().await.unwrap_err();
        refusal.to_string()
    };
    for double in doubles() {
        double.has_bucket(false);
        let reported = refusal(&double.impatient()).await;
        assert_eq!(reported, "there is no such bucket: make it, or name another with --storage");
        double.has_bucket(true);
        double.fault(CloudFault { status: 403, times: FOR_EVER, ..CloudFault::default() });
        let reported = refusal(&double.impatient()).await;
        assert!(
            reported.contains("it may not be listed (") && reported.contains("allow it, or set"),
            "{reported}"
        );
    }
    let anonymous = FakeCloud::start(Dialect::S3);
    let anonymous = anonymous.storage_with(&[
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1"),
    ]);
    let reported = refusal(&anonymous).await;
    assert!(
        reported.starts_with("no credentials (") && reported.contains("AWS_ACCESS_KEY_ID"),
        "{reported}"
    );
    let plain = FakeCloud::start(Dialect::S3).storage_with(&[("AWS_ALLOW_HTTP", "")]);
    let reported = refusal(&plain).await;
    assert!(
        reported.starts_with("plain HTTP is not allowed (")
            && reported.contains("set AWS_ALLOW_HTTP=true"),
        "{reported}"
    );
    let anybody = FakeCloud::start(Dialect::S3);
    let unsigned = anybody.storage_with(&[
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_SKIP_SIGNATURE", "true"),
    ]);
    Store::open(&unsigned).unwrap().start().await.unwrap();
    let half = FakeCloud::start(Dialect::S3).storage_with(&[("AWS_SECRET_ACCESS_KEY", "")]);
    let reported = Store::open(&half).unwrap_err().to_string();
    assert!(reported.contains("Missing SecretAccessKey"), "{reported}");
}

/// The URL of an agent of EKS Pod Identity, which is always read over plain HTTP.
async fn pod_identity_agent(expiration: &str) -> String {
    let agent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/credentials", agent.local_addr().unwrap());
    let credentials = format!(
        "{{\"AccessKeyId\": \"test\", \"SecretAccessKey\": \"test\", \"Token\": \"test\", \
         \"Expiration\": \"{expiration}\"}}"
    );
    let answer = axum::routing::get(move || std::future::ready(credentials.clone()));
    let router = axum::Router::new().route("/credentials", answer);
    tokio::spawn(async { axum::serve(agent, router).await });
    url
}

#[tokio::test]
async fn a_token_file_with_a_line_break_makes_it_unready_until_it_is_corrected() {
    let token = tempfile::NamedTempFile::new().unwrap();
    let write = |text: &str| std::fs::write(token.path(), text).unwrap();
    let double = FakeCloud::start(Dialect::S3);
    // Expired, so that each request reads the file again.
    let storage = double.storage_with(&[
        ("AWS_ACCESS_KEY_ID", ""),
        ("AWS_SECRET_ACCESS_KEY", ""),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &pod_identity_agent("2020-01-01T00:00:00Z").await),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path().to_str().unwrap()),
    ]);
    write("token\n");
    let refusal = Store::open(&storage).unwrap().start().await.unwrap_err().to_string();
    assert!(
        refusal.starts_with("no credentials (") && refusal.contains("a line break"),
        "{refusal}"
    );
    write("token");
    let store = Store::open(&storage).unwrap();
    store.start().await.unwrap();
    store.ready().await.unwrap();
    write("token\n");
    // The client uses credentials for 100 ms, even if they have expired.
    tokio::time::sleep(Duration::from_millis(150)).await;
    store.try_list().await;
    store.try_next(1).await;
    let reason = store.ready().await.unwrap_err();
    assert!(reason.contains("contains a line break"), "{reason}");
    assert!(swept(&store, jiff::Timestamp::now()).await.is_err());
    write("token");
    store.try_next(2).await;
    store.ready().await.unwrap();
    swept(&store, jiff::Timestamp::now()).await.unwrap();
}

#[tokio::test]
async fn options_of_the_credentials_request_do_not_apply_to_the_bucket() {
    let agent_url = pod_identity_agent("2099-01-01T00:00:00Z").await;
    let token = tempfile::NamedTempFile::new().unwrap();
    let double = FakeCloud::start(Dialect::S3);
    for (allow_http, error) in [("true", None), ("", Some("URL scheme is not allowed"))] {
        let store = Store::open(&double.storage_with(&[
            ("AWS_ACCESS_KEY_ID", ""),
            ("AWS_SECRET_ACCESS_KEY", ""),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent_url),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path().to_str().unwrap()),
            ("AWS_ALLOW_HTTP", allow_http),
        ]));
        let found = store.unwrap().try_all().await.error;
        match (&found, error) {
            (None, None) => {}
            (Some(found), Some(error)) => assert!(found.contains(error), "{found}"),
            _ => panic!("AWS_ALLOW_HTTP={allow_http}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn startup_waits_for_a_silent_backend() {
    for double in doubles() {
        double.fault(CloudFault { status: 503, times: FOR_EVER, ..CloudFault::default() });
        let store = open(&double);
        store.start().await.unwrap();
        assert!(store.ready().await.is_err());
        double.heal();
        store.try_list().await;
        assert!(store.ready().await.is_ok(), "one success is enough");
    }
}

#[tokio::test]
async fn two_failed_probes_make_it_unready_and_one_success_ready() {
    for double in doubles() {
        let store = open(&double);
        store.start().await.unwrap();
        double.has_bucket(false);
        for failures in 1..=2 {
            assert!(store.ready().await.is_ok(), "after {} failures", failures - 1);
            store.try_list().await;
            assert_eq!(store.probe_results().failures, failures);
        }
        let reported = store.ready().await.unwrap_err();
        assert_eq!(reported, "its bucket or directory is missing");
        double.has_bucket(true);
        store.try_all().await;
        assert!(store.ready().await.is_ok());
        assert_eq!(store.probe_results().failures, 0);
    }
}

#[tokio::test]
async fn storage_that_lists_but_refuses_writes_is_not_ready() {
    for double in doubles() {
        let store = open(&double);
        store.start().await.unwrap();
        let (status, code) = (403, "AccessDenied");
        let put = CloudFault { method: "PUT", status, code, times: FOR_EVER, ..Default::default() };
        double.fault(put);
        let mut is_ready = Vec::new();
        for turn in 1..=3 {
            store.try_next(turn).await;
            is_ready.push(store.ready().await.is_ok());
        }
        assert_eq!(is_ready, [true, true, false]);
        let reason = store.ready().await.unwrap_err();
        let right = match double.url() {
            "s3://bucket" => "s3:PutObject",
            _ => "storage.objects.create, and storage.objects.delete to replace an object",
        };
        let expected = "it denies access; the datastore's credentials need the right";
        assert_eq!(reason, format!("{expected} {right}"));
        let error = store.probe_results().error.unwrap();
        assert!(!error.contains('<') && error.contains("AccessDenied"), "{error}");
        double.heal();
        store.try_next(4).await;
        assert!(store.ready().await.is_ok());
    }
}

#[tokio::test]
async fn storage_without_deletion_keeps_one_probe_object() {
    for double in doubles() {
        let store = open(&double);
        let delete =
            CloudFault { method: "DELETE", status: 403, times: FOR_EVER, ..Default::default() };
        double.fault(delete.clone());
        double.fault(CloudFault { method: "POST", query: "delete", ..delete });
        store.start().await.unwrap();
        for turn in 1..5 {
            store.try_next(turn).await;
        }
        assert_eq!(store.probe_results().can(Ability::Delete), Some(false));
        assert_eq!(double.keys().len(), 1);
    }
}

#[tokio::test]
async fn clock_skew_is_reported_and_retried() {
    let double = FakeCloud::start(Dialect::S3);
    double.clock(SignedDuration::from_mins(-20));
    let store = open(&double);
    store.start().await.unwrap();
    let reported = format!("{:?}", store.ready().await.unwrap_err());
    assert!(
        reported.contains("this machine's clock and the storage's differ by 120"),
        "{reported}"
    );
    assert!(store.probe_results().skew.is_some_and(|skew| (1199..1210).contains(&skew)));
    double.clock(SignedDuration::from_mins(10));
    store.try_next(1).await;
    assert!(store.ready().await.is_ok());
    assert!(store.probe_results().skew.is_some_and(|skew| (-601..-590).contains(&skew)));
}

#[tokio::test]
async fn list_without_write_permission_is_detected() {
    for double in doubles() {
        let store = open(&double);
        double.fault(CloudFault {
            method: "PUT",
            status: 403,
            times: FOR_EVER,
            ..Default::default()
        });
        store.start().await.unwrap();
        let seen = store.probe_results();
        assert_eq!(seen.abilities, [(Ability::List, true), (Ability::Write, false)]);
        assert!(store.ready().await.is_err());
    }
}

#[tokio::test]
async fn clock_skew_without_a_server_time_is_not_reported_as_a_missing_permission() {
    let double = FakeCloud::start(Dialect::S3);
    double.hide_time();
    double.clock(SignedDuration::from_mins(-20));
    let store = open(&double);
    store.start().await.unwrap();
    store.ready().await.unwrap_err();
    let error = store.probe_results().error.unwrap();
    assert!(error.contains("this machine's clock and the storage's differ by too much"), "{error}");
    assert_eq!(store.probe_results().skew, None);
    double.clock(SignedDuration::ZERO);
    store.try_next(1).await;
    assert!(store.ready().await.is_ok());
}

#[tokio::test]
async fn stop_during_startup_leaves_no_probe_objects() {
    let double = FakeCloud::start(Dialect::S3);
    let latency = Duration::from_millis(4);
    double.pace(Pace { latency, ..Pace::default() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shutdown = CancellationToken::new();
    let served = datastore::serve(vec![listener], Config::of(double.storage()), shutdown.clone());
    let stop = async {
        while double.keys().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        shutdown.cancel();
    };
    let (served, ()) = tokio::join!(served, stop);
    served.unwrap();
    assert_eq!(double.keys(), Vec::<String>::new());
    assert_eq!(double.open_uploads(), 0);
}

#[tokio::test]
async fn probe_objects_that_a_killed_process_left_in_a_directory_are_removed_after_a_day() {
    let root = tempfile::tempdir().unwrap();
    let probes = root.path().join(".plancha/probe");
    std::fs::create_dir_all(&probes).unwrap();
    std::fs::write(probes.join("0123456789abcdef"), "first").unwrap();
    let store = Store::open(&Storage::File(root.path().to_owned())).unwrap();
    let now = Timestamp::now();
    assert_eq!(swept(&store, now + SignedDuration::from_hours(23)).await.unwrap(), 0);
    assert_eq!(swept(&store, now + SignedDuration::from_hours(25)).await.unwrap(), 1);
    assert!(!probes.join("0123456789abcdef").exists());
}
