//! The client that the runner uses, against a datastore and against a sick one.

use std::time::Duration;

use datastore_api::client::{Condition, Followed, Settings, Token, Upload};
use datastore_api::{AppliedKey, Attempt, Client, ClientError, File, PlanFormat, RunKey, Sha256};
use support::{Fault, FaultyDatastore, HEAD, TestDatastore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use url::Url;

const BIN: File = File::Plan(PlanFormat::Bin);

fn run() -> RunKey {
    let name = |text: &str| text.parse().unwrap();
    RunKey { namespace: name("n"), layer: name("l"), run: name("r#1 ~é") }
}

fn settings(url: &Url) -> Settings {
    Settings { first_pause: Duration::from_millis(1), ..Settings::new(url.clone()) }
}

fn client(url: &Url) -> Client {
    Client::new(settings(url)).unwrap()
}

async fn put(
    client: &Client,
    bytes: &'static [u8],
    condition: Condition,
) -> Result<(), ClientError> {
    client.put_file(&run(), Attempt(0), &BIN, &Upload::bytes(bytes), condition).await
}

#[tokio::test]
async fn files_uploaded_from_memory_and_disk_are_downloaded_unchanged() {
    for datastore in TestDatastore::each().await {
        let client = client(&datastore.url);
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let bytes = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect::<Vec<_>>();
        std::fs::write(&from, &bytes).unwrap();
        let upload = Upload::file(&from).await.unwrap();
        assert_eq!(upload.sha256(), Sha256::of(&bytes));
        client.put_file(&run(), Attempt(0), &BIN, &upload, Condition::Replace).await.unwrap();

        let saved = client.save_file(&run(), None, &BIN, &to).await.unwrap();
        assert_eq!(saved, Some(upload.sha256()));
        assert_eq!(std::fs::read(&to).unwrap(), bytes);
        let attempts = client.attempts(&run()).await.unwrap().attempts;
        assert_eq!((attempts.len(), attempts[0].artifacts[0].size), (1, 3_000_000));
        let runs = client.runs(&run().namespace, &run().layer, None).await.unwrap().runs;
        assert_eq!(runs[0].run, run().run.to_string());
    }
}

/// The log of a run may grow, and its private directory may be removed.
#[tokio::test]
async fn small_file_is_sent_as_it_was_read() {
    let datastore = TestDatastore::memory().await;
    let client = client(&datastore.url);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "a secret").unwrap();
    let upload = Upload::file(&file).await.unwrap();
    std::fs::write(&file, "changed").unwrap();

    client.put_file(&run(), Attempt(0), &BIN, &upload, Condition::Create).await.unwrap();

    let stored = client.get_file(&run(), None, &BIN).await.unwrap().unwrap();
    assert_eq!(stored.bytes(100).await.unwrap(), b"a secret"[..]);
    assert!(!format!("{upload:?}").contains("secret"), "{upload:?}");
}

#[tokio::test]
async fn missing_file_is_none() {
    let datastore = TestDatastore::memory().await;
    let client = client(&datastore.url);
    assert!(client.get_file(&run(), None, &BIN).await.unwrap().is_none());
    assert!(client.attempts(&run()).await.unwrap().attempts.is_empty());
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    assert_eq!(client.save_file(&run(), None, &BIN, &to).await.unwrap(), None);
    assert!(!to.exists());
}

#[tokio::test]
async fn creating_again_succeeds_with_the_same_bytes_and_conflicts_with_others() {
    let datastore = TestDatastore::memory().await;
    let client = client(&datastore.url);
    put(&client, b"one", Condition::Create).await.unwrap();
    put(&client, b"one", Condition::Create).await.unwrap();
    let refused = put(&client, b"two", Condition::Create).await.unwrap_err();
    assert_eq!(refused.status().unwrap(), 412);
    put(&client, b"two", Condition::Replace).await.unwrap();
}

#[tokio::test]
async fn only_transient_errors_are_retried() {
    let datastore = TestDatastore::memory().await;
    for (status, tries) in [(500, 5), (503, 5), (400, 1), (403, 1), (408, 1), (412, 1)] {
        let fault = Fault { method: "PUT", part: "", status, times: usize::MAX };
        let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;
        let refused = put(&client(&faulty.url), b"x", Condition::Replace).await.unwrap_err();
        assert_eq!(refused.status().unwrap(), status);
        assert_eq!(faulty.seen().len(), tries, "{status}");
        let said = refused.to_string();
        assert!(said.contains("/api/plans") && !said.contains("layer"), "no query: {said}");
    }
}

#[tokio::test]
async fn refusal_with_retry_after_is_retried_after_that_time() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "", status: 429, times: 1 };
    let faulty = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    faulty.set_retry_after(3);
    let started = std::time::Instant::now();
    put(&client(&faulty.url), b"x", Condition::Replace).await.unwrap();
    assert_eq!(faulty.seen().len(), 2);
    assert!(started.elapsed() >= Duration::from_secs(3));
}

#[tokio::test]
async fn silent_datastore_times_out_for_every_call() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "GET", part: "", status: 0, times: usize::MAX };
    let hanging = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let timeout = Duration::from_secs(2);
    let settings = Settings { timeout, retries: 99, ..settings(&hanging.url) };
    let client = Client::new(settings).unwrap();
    let error = client.attempts(&run()).await.unwrap_err();
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
    // Half of the time is for each try; how far the second one comes is a matter of moments.
    assert!((2..=3).contains(&hanging.seen().len()), "{:?}", hanging.seen());
    let tried = hanging.seen().len();
    client.attempts(&run()).await.unwrap_err();
    assert_eq!(hanging.seen().len(), tried + 1, "a further call is tried once");
    // It may be well in part, but is not waited for again.
    put(&client, b"x", Condition::Replace).await.unwrap();
    client.attempts(&run()).await.unwrap_err();
    assert_eq!(hanging.seen().len(), tried + 3, "{:?}", hanging.seen());
}

/// Each try gets the head of an answer, which shows nothing of its body.
#[tokio::test]
async fn answers_whose_bodies_never_come_are_silence() {
    let datastore = TestDatastore::memory().await;
    let (run, claim) = (run(), "c".parse().unwrap());
    let RunKey { namespace, layer, .. } = run.clone();
    let applied =
        AppliedKey { namespace: namespace.clone(), layer: layer.clone(), plan: Sha256::of(b"") };
    let timeout = Duration::from_secs(1);
    let failed = async |number: usize, client: &Client| match number {
        0 => client.attempts(&run).await.map(drop),
        1 => client.get_applied(&applied).await.map(drop),
        2 => client.runs(&namespace, &layer, None).await.map(drop),
        3 => client.layer_tool(&namespace, &layer).await.map(drop),
        4 => client.claim(&run, Attempt(0), &claim).await.map(drop),
        5 => client.release_lease(&namespace, &layer, &claim).await,
        _ => put(client, b"x", Condition::Replace).await,
    };
    let each = (0..7).map(async |number| {
        let faults = ["GET", "POST", "DELETE", "PUT"].map(|method| Fault {
            method,
            part: "",
            status: HEAD,
            times: usize::MAX,
        });
        let hanging = FaultyDatastore::before(&datastore.url, faults.to_vec()).await;
        let settings = Settings { timeout, retries: 9, ..settings(&hanging.url) };
        let client = Client::new(settings).unwrap();
        let error = failed(number, &client).await.unwrap_err();
        assert!(matches!(error, ClientError::Silent { .. }), "{number}: {error}");
        assert!(hanging.seen().len() <= 3, "{number}: {:?}", hanging.seen());
    });
    futures::future::join_all(each).await;
}

#[tokio::test]
async fn shortening_the_timeout_ends_calls_that_already_wait() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "GET", part: "", status: 0, times: usize::MAX };
    let hanging = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let timeout = Duration::from_hours(1);
    let client = Client::new(Settings { timeout, ..settings(&hanging.url) }).unwrap();
    let hurried = async {
        while hanging.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.shorten_timeout(Duration::from_millis(100));
    };
    let run = run();
    let (error, ()) = tokio::join!(client.attempts(&run), hurried);
    assert!(matches!(error.unwrap_err(), ClientError::Silent { .. }));
}

/// A datastore that accepts may take the first bytes of each try, too.
#[tokio::test]
async fn restarted_uploads_do_not_count_as_progress() {
    let datastore = TestDatastore::memory().await;
    let fault = Fault { method: "PUT", part: "", status: 0, times: usize::MAX };
    let hanging = FaultyDatastore::before(&datastore.url, vec![fault]).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, vec![1; 1 << 20]).unwrap();
    let upload = Upload::file(&file).await.unwrap();
    let timeout = Duration::from_secs(2);
    let settings = Settings { timeout, retries: 99, ..settings(&hanging.url) };
    let client = Client::new(settings).unwrap();
    let (run, condition) = (run(), Condition::Replace);
    let put = |attempt| client.put_file(&run, Attempt(attempt), &BIN, &upload, condition);
    let results = tokio::join!(put(0), put(1), put(2));
    for result in [results.0, results.1, results.2] {
        let error = result.unwrap_err();
        assert!(matches!(error, ClientError::Silent { .. }), "{error}");
    }
    assert!(hanging.seen().len() <= 12, "{} requests", hanging.seen().len());
}

#[tokio::test]
async fn bytes_that_differ_from_the_digest_are_never_returned() {
    let datastore = TestDatastore::memory().await;
    let client = client(&datastore.url);
    put(&client, b"what was stored", Condition::Replace).await.unwrap();
    let garbling = FaultyDatastore::garbling(&datastore.url).await;
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let garbled = Client::new(settings(&garbling.url)).unwrap();
    let error = garbled.save_file(&run(), None, &BIN, &to).await.unwrap_err();
    assert!(matches!(error, ClientError::Digest { .. }), "{error}");
    assert!(!to.exists(), "nothing of it stays");
}

#[tokio::test]
async fn token_is_reread_for_every_request_and_never_shown() {
    let datastore = TestDatastore::memory().await;
    let listening = FaultyDatastore::before(&datastore.url, vec![]).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    let settings = Settings { token: Token::File(file.clone()), ..settings(&listening.url) };
    let client = Client::new(settings).unwrap();

    let missing = client.attempts(&run()).await.unwrap_err();
    assert!(matches!(missing, ClientError::Token { .. }), "{missing}");
    for token in ["first-token", "rotated-token"] {
        std::fs::write(&file, format!("{token}\n")).unwrap();
        client.attempts(&run()).await.unwrap();
        assert_eq!(listening.authorizations().last().unwrap(), token);
    }
    std::fs::write(&file, "se\u{0}cret").unwrap();
    let broken = client.attempts(&run()).await.unwrap_err();
    assert!(!format!("{broken} {broken:?} {client:?}").contains("cret\""), "{broken:?}");
    assert!(!broken.to_string().contains("secret"));
}

/// A proxy may drop the trailer that says why the log ends.
#[tokio::test]
async fn followed_log_without_its_announced_end_is_broken_off() {
    let announced = "trailer: upload-offset, log-end\r\n";
    for (head, end, expected) in [
        ("", "", Followed::Complete),
        (announced, "", Followed::BrokenOff),
        (announced, "log-end: complete\r\n", Followed::Complete),
        (announced, "log-end: shutdown\r\n", Followed::BrokenOff),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n{head}transfer-encoding: chunked\r\n\r\n4\r\nline\r\n0\r\n{end}\r\n"
        );
        let served = async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(socket.read(&mut request).await.unwrap() > 0);
            socket.write_all(answer.as_bytes()).await.unwrap();
            socket
        };
        let client = client(&url);
        let run = run();
        let (log, _socket) = tokio::join!(client.follow_log(&run, Attempt(0), 0), served);
        let mut log = log.unwrap().unwrap();
        assert_eq!(log.next().await.unwrap(), Followed::Bytes("line".into()), "{head}");
        assert_eq!(log.next().await.unwrap(), expected, "{head}{end}");
    }
}
