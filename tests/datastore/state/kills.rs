//! The program is killed while it writes states: the head always names a whole version, and nothing acknowledged is missing.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::{CloudFault, Dialect, FakeCloud, TestDatastore};
use tempfile::TempDir;

use super::documents::{STATE, document, lock, of, post, versions};
use crate::program::process::Running;

const CONTROL: &str = ".plancha/states/team-a/network/control";

/// Few of them always, and 200 where there is time.
fn writes() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "as every test that takes minutes")]
    let all = std::env::var("PLANCHA_E2E").is_ok_and(|value| value == "1");
    if all { 200 } else { 16 }
}

/// Sends a request on a connection of its own; whether it was answered with 200.
fn send(datastore: &Running, method: &str, path: &str, body: &str) -> bool {
    let Ok(mut socket) = std::net::TcpStream::connect(&datastore.address) else { return false };
    let head = format!("{method} /api/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let mut answer = Vec::new();
    let _killed =
        socket.write_all(request.as_bytes()).and_then(|()| socket.read_to_end(&mut answer));
    answer.starts_with(b"HTTP/1.1 200")
}

/// Kills the server at another moment of each of so many writes. After each, the state is the one before or the one that was
/// written, and after an answer only the latter.
fn killed(storage: &str, variables: &[(&str, String)], writes: u64) {
    let mut there = None::<String>;
    let (mut answered, mut lost) = (0, 0);
    for write in 0..writes {
        let mut datastore = Running::over(storage, variables, &[]);
        let serial = write + 1;
        // Some have more bytes than a small object.
        let size = [10, 3_000, 300_000, 9_000_000][usize::try_from(write % 4).unwrap()];
        let state = document("l", serial, &"x".repeat(size));
        let sent = state.clone();
        let pause = match write % 5 {
            0 => 0,
            // This one may end, and is not to be lost by what comes after.
            4 => u64::MAX,
            _ => write * 7919 % (2_000 + size as u64 / 50),
        };
        let is_answered = std::thread::scope(|scope| {
            let sending = scope.spawn(|| send(&datastore, "POST", STATE, &sent));
            let since = Instant::now();
            while !sending.is_finished() && since.elapsed() < Duration::from_micros(pause) {
                std::thread::sleep(Duration::from_micros(50));
            }
            nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(datastore.child.id().try_into().unwrap()),
                Signal::SIGKILL,
            )
            .unwrap();
            sending.join().unwrap()
        });
        datastore.wait();

        let datastore = Running::over(storage, variables, &[]);
        let (status, found) = datastore.get(&format!("/api/{STATE}"));
        assert!(status == 200 || status == 404, "{status}: {}", String::from_utf8_lossy(&found));
        let found = (status == 200).then(|| String::from_utf8(found).unwrap());
        if found.as_ref() == Some(&state) {
            answered += 1;
        } else {
            assert!(!is_answered, "write {write} was answered");
            assert!(found == there, "write {write} left neither the old nor the new state");
            lost += 1;
        }
        there = found;
        // Every version that is listed can be read.
        let (status, listed) =
            datastore.get("/api/states?namespace=team-a&layer=network&limit=1000");
        assert_eq!(status, 200);
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        let versions = listed["versions"].as_array().unwrap();
        assert_eq!(versions.len(), answered, "each write that arrived is one version");
        let first = versions.first().map(|version| version["version"].as_str().unwrap().to_owned());
        if let Some(first) = first {
            assert_eq!(datastore.get(&format!("/api/{STATE}?version={first}")).0, 200);
        }
    }
    assert!(answered > 0 && lost > 0, "{answered} arrived, {lost} did not: no test of anything");
}

#[test]
fn killed_during_writes_a_directory_holds_the_old_or_the_new_state() {
    let directory = TempDir::new().unwrap();
    killed(&format!("file://{}", directory.path().display()), &[], writes());
}

#[test]
fn killed_during_writes_a_bucket_holds_the_old_or_the_new_state() {
    for dialect in Dialect::ALL {
        let double = FakeCloud::start(dialect);
        killed(double.url(), &double.variables(), writes() / 2);
    }
}

#[tokio::test]
async fn a_storage_that_fails_never_says_that_there_is_no_state() {
    for datastore in TestDatastore::doubles().await {
        for has_state in [false, true] {
            if has_state {
                assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 200);
            }
            for status in [403, 500] {
                let fault =
                    CloudFault { method: "GET", times: 100, status, ..CloudFault::default() };
                datastore.cloud().fault(fault);
                let answer = of(&datastore, "GET", STATE, "").await;
                datastore.cloud().heal();
                assert!(answer.status >= 500, "{status}: {answer:?}");
            }
            datastore.cloud().has_bucket(false);
            let answer = of(&datastore, "GET", STATE, "").await;
            datastore.cloud().has_bucket(true);
            assert!(answer.status >= 500, "without a bucket: {answer:?}");
        }
        assert_eq!(of(&datastore, "GET", STATE, "").await.text(), document("l", 1, "a"));
    }
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_settled_by_reading() {
    for datastore in TestDatastore::doubles().await {
        for serial in 1..=3 {
            for key in ["control", "tfstate"] {
                let apply_then_fail = CloudFault {
                    method: "PUT",
                    key,
                    times: 1,
                    status: 500,
                    apply_then_fail: true,
                    ..CloudFault::default()
                };
                datastore.cloud().fault(apply_then_fail);
                let state = document("l", serial, "a");
                assert_eq!(post(&datastore, STATE, &state).await, 200, "{key}");
                datastore.cloud().heal();
                assert_eq!(of(&datastore, "GET", STATE, "").await.text(), state);
            }
        }
        let lost = CloudFault {
            method: "PUT",
            key: "control",
            times: 1,
            status: 500,
            apply_then_fail: true,
            ..CloudFault::default()
        };
        datastore.cloud().fault(lost);
        assert_eq!(super::documents::lock(&datastore, STATE, "x").await.status, 200);
        datastore.cloud().heal();
        assert_eq!(super::documents::unlock(&datastore, STATE, "x").await.status, 200);
    }
}

/// Sends a change of the state. The answer to its replacement of the control object is lost, and before it is tried again,
/// `next` changes the layer by another replica.
async fn overtaken(
    datastore: &TestDatastore,
    (path, body): (&str, &str),
    next: impl Future<Output = u16>,
) -> (u16, u16) {
    let control = || datastore.cloud().object(CONTROL);
    let before = control();
    datastore.cloud().fault(CloudFault {
        method: "PUT",
        key: "control",
        times: 1,
        status: 500,
        apply_then_fail: true,
        delay: Duration::from_secs(1),
        ..CloudFault::default()
    });
    let next = async {
        while control() == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        next.await
    };
    let answers = tokio::join!(post(datastore, path, body), next);
    datastore.cloud().heal();
    answers
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_stays_although_another_replica_changes_the_layer() {
    let layer = "namespace=team-a&layer=network";
    for datastore in TestDatastore::doubles().await {
        let other = datastore.beside().await;
        let lock = async |workspace: &str| {
            lock(&other, &format!("{STATE}?workspace={workspace}"), "x").await.status
        };
        assert_eq!(post(&datastore, STATE, &document("l", 1, "a")).await, 200);
        let first = versions(&datastore, "").await["head"]["version"]["version"].clone();
        let restore = format!("states/restore?{layer}&version={}", first.as_str().unwrap());

        let written = document("l", 2, "b");
        let answers = overtaken(&datastore, (STATE, &written), lock("one")).await;
        assert_eq!(answers, (200, 200));
        assert_eq!(of(&other, "GET", STATE, "").await.text(), written);
        assert_eq!(overtaken(&datastore, (&restore, ""), lock("two")).await, (200, 200));
        assert_eq!(of(&other, "GET", STATE, "").await.text(), document("l", 3, "a"));

        // The next version is on top of it already.
        for (change, serial) in [((STATE, &*document("l", 4, "c")), 5), ((&*restore, ""), 7)] {
            let next = document("l", serial, "d");
            let answers = overtaken(&datastore, change, post(&other, STATE, &next)).await;
            assert_eq!(answers, (200, 200));
            assert_eq!(of(&other, "GET", STATE, "").await.text(), next);
        }
        let all = versions(&datastore, "").await["versions"].as_array().unwrap().len();
        let rejected = versions(&datastore, "&kind=rejected").await;
        assert_eq!((all, &rejected["versions"]), (7, &serde_json::json!([])));
    }
}

#[tokio::test]
async fn a_storage_without_conditional_replacement_keeps_states_only_for_a_single_replica() {
    use datastore::config::Config;
    use datastore::store::StateSettings;

    for single_replica in [false, true] {
        let double = FakeCloud::start(Dialect::S3);
        double.ignore_conditions_of_updates();
        let states = StateSettings { single_replica, ..StateSettings::default() };
        let datastore = TestDatastore::of(Config { states, ..Config::of(double.storage()) }).await;
        crate::api::health::becomes_ready(&datastore).await;
        let answer = of(&datastore, "POST", STATE, &document("l", 1, "a")).await;
        if single_replica {
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(post(&datastore, STATE, &document("l", 1, "b")).await, 409);
        } else {
            assert!(
                answer.status == 501 && answer.text().contains("--single-replica"),
                "{answer:?}"
            );
        }
    }
}
