use std::io::Read as _;
use std::time::{Duration, Instant};

use support::{MirrorFault, ReleaseMirror};

use crate::release::download::http::*;

const PATH: &str = "/file";

/// Longer than a test takes on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// A mirror with one file, and a client that waits only shortly for the next bytes, and so long for all of them.
fn impatient(fault: MirrorFault, total: Duration) -> (ReleaseMirror, Http, String) {
    let mirror = ReleaseMirror::start();
    mirror.put(PATH, vec![b'x'; 300 << 10]);
    mirror.fault(PATH, fault);
    let silence =
        if matches!(fault, MirrorFault::Silent) { Duration::from_millis(200) } else { LONG };
    let limits = Limits { connect: Duration::from_secs(5), silence, small: total, archive: total };
    let http = Http { limits, ..Http::new(None, Vec::new(), None) };
    let url = format!("{}{PATH}", mirror.address());
    (mirror, http, url)
}

#[tokio::test]
async fn a_silent_server_times_out_and_is_retried() {
    let (mirror, http, url) = impatient(MirrorFault::Silent, LONG);
    let error = http.get(&url, 1 << 20).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("/file stopped responding (timeout)"), "{error}");
    assert_eq!(mirror.requests(PATH), 4);
}

#[tokio::test]
async fn a_transfer_that_is_too_slow_is_aborted() {
    let (mirror, http, url) =
        impatient(MirrorFault::Slow(Duration::from_millis(150)), Duration::from_millis(500));
    let file = tempfile::tempfile().unwrap();
    let error = http.download(&url, 1 << 20, &file).await.unwrap_err();
    assert!(matches!(error, ReleaseError::TooSlow { .. }), "{error}");
    assert!(error.is_outage() && !error.is_unreachable());
    assert_eq!(mirror.requests(PATH), 1, "it would not be faster the next time");
}

#[tokio::test]
async fn an_endless_response_ends_at_the_size_limit() {
    let (_mirror, http, url) = impatient(MirrorFault::Endless, LONG);
    let error = http.get(&url, 1 << 20).await.unwrap_err();
    assert!(matches!(error, ReleaseError::TooLarge { .. }), "{error}");
    let file = tempfile::tempfile().unwrap();
    let error = http.download(&url, 1 << 20, &file).await.unwrap_err();
    assert!(matches!(error, ReleaseError::TooLarge { .. }), "{error}");
    assert!(file.metadata().unwrap().len() <= 1 << 20);
}

#[tokio::test]
async fn retry_after_is_honoured() {
    const LATER: [(&str, &str); 1] = [("retry-after", "1")];
    let (mirror, http, url) = impatient(MirrorFault::Answer(503, &LATER), LONG);
    let started = Instant::now();
    let error = http.get(&url, 1 << 20).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Busy { status: 503, .. }), "{error}");
    assert!(started.elapsed() > Duration::from_secs(3), "{:?}", started.elapsed());
    assert_eq!(mirror.requests(PATH), 4);
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    let http = Http::new(None, Vec::new(), None);
    let error = http.get("http://127.0.0.1:1/x", 1).await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
}

#[tokio::test]
async fn a_file_is_read_from_the_disk() {
    let http = Http::new(None, Vec::new(), None);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a b"), "content").unwrap();
    let url = |name: &str| Url::from_file_path(dir.path().join(name)).unwrap().to_string();
    assert_eq!(http.get(&url("a b"), 7).await.unwrap(), b"content");
    let error = http.get(&url("a b"), 6).await.unwrap_err();
    assert!(matches!(error, ReleaseError::TooLarge { .. }), "{error}");
    for missing in [url("c"), url("a b/c")] {
        let error = http.get(&missing, 7).await.unwrap_err();
        assert!(matches!(error, ReleaseError::NotFound(_)), "{error}");
    }
    let mut file = tempfile::tempfile().unwrap();
    assert_eq!(http.download(&url("a b"), 7, &file).await.unwrap(), Sha256::of(b"content"));
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    let error = http.get("file://host/x", 7).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Scheme(_)), "{error}");
}
