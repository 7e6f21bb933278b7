//! Helpers: requests to a datastore, and their responses.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use datastore_api::Sha256;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use support::TestDatastore;

/// The query of one run.
pub(crate) const RUN: &str = "namespace=team-a&layer=network&run=plan-1";

/// Without a pool: a connection would outlive the runtime of the test that made it.
pub(crate) static CLIENT: LazyLock<Client> =
    LazyLock::new(|| Client::builder().pool_max_idle_per_host(0).build().unwrap());

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Status, type and text: all that a refusal is made of.
    pub(crate) fn refusal(&self) -> String {
        format!("{} {} {}", self.status, self.header("content-type").unwrap(), self.text().trim())
    }
}

/// A request to `/api/<rest>`.
pub(crate) fn request(datastore: &TestDatastore, method: Method, rest: &str) -> RequestBuilder {
    CLIENT.request(method, format!("{}api/{rest}", datastore.url))
}

pub(crate) async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Answer { status, headers, body: response.bytes().await.unwrap().into() }
}

pub(crate) async fn get(datastore: &TestDatastore, rest: &str) -> Answer {
    send(request(datastore, Method::GET, rest)).await
}

pub(crate) async fn put(datastore: &TestDatastore, rest: &str, body: impl Into<Vec<u8>>) -> Answer {
    send(request(datastore, Method::PUT, rest).body(body.into())).await
}

/// As [`put`], for where the test is about something else.
pub(crate) async fn stored(datastore: &TestDatastore, rest: &str, body: impl Into<Vec<u8>>) {
    let answer = put(datastore, rest, body).await;
    assert_eq!((answer.status, answer.text()), (200, String::new()), "PUT {rest}");
}

/// What requests are refused with, the same over every backend; `GET plans?...` or `PUT ...`.
pub(crate) async fn refusals(requests: &[&str]) -> String {
    let mut reported = Vec::new();
    for datastore in TestDatastore::each().await {
        let mut all = String::new();
        for line in requests {
            let (method, rest) = line.split_once(' ').unwrap();
            let method = method.parse().unwrap();
            let refusal = send(request(&datastore, method, rest).body("x")).await.refusal();
            all.extend([line, "\n    ", &refusal, "\n"]);
        }
        reported.push(all);
    }
    reported.dedup();
    assert_eq!(reported.len(), 1, "{reported:?}");
    reported.swap_remove(0)
}

/// Bytes in which no piece is like another.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; length];
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    bytes
}

pub(crate) fn etag(body: &[u8]) -> String {
    format!("\"sha256-{}\"", Sha256::of(body))
}

/// Removes all that is recorded of the digest of an object in a directory, as if another program had stored it.
pub(crate) fn forget_digest(root: &Path, key: &str) {
    let _without_attributes = rustix::fs::removexattr(root.join(key), "user.plancha");
    std::fs::remove_file(root.join(".plancha/sha256").join(key)).unwrap();
}

/// Every file below a directory, by its path from there, in order.
pub(crate) fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            // It has gone since it was found, or the storage is not open yet.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.unwrap(),
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}
