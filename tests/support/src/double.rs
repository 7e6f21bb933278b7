//! A cloud in memory: S3 or Google Cloud Storage as `object_store` speaks them, with faults on order.
//!
//! It enforces what the real ones do as far as the datastore depends on it: conditions, the least
//! size of a part, uploads that are gone once completed, pages of a listing. It checks no signature.

mod answer;
mod bucket;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::serve::ListenerExt as _;
use datastore::store::{Cloud, Provider, Storage, Variables};
use jiff::SignedDuration;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::bucket::Bucket;

/// Whose dialect a double speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Amazon S3's.
    S3,
    /// The XML dialect of Google Cloud Storage, with generations.
    Gcs,
}

/// What happens to some requests. The default is a request that nothing happens to.
#[derive(Clone, Debug, Default)]
pub struct CloudFault {
    /// Their method; empty for any.
    pub method: &'static str,
    /// A part of their key.
    pub key: &'static str,
    /// A part of their query.
    pub query: &'static str,
    /// So many of them pass first.
    pub after: usize,
    /// So many of them it happens to.
    pub times: usize,
    /// They are answered this; 0 for what they would be answered anyway.
    pub status: u16,
    /// They are answered so much later.
    pub delay: Duration,
    /// The connection breaks after so many bytes of the answer's body.
    pub cut_after: Option<usize>,
    /// The answer's body ends well after so many bytes, and its length is told so.
    pub ends_after: Option<usize>,
    /// Nothing more comes after so many bytes of the answer's body.
    pub stall_after: Option<usize>,
    /// What they ask for is done at once, before they wait and are answered `status`.
    pub apply_then_fail: bool,
}

/// How fast each connection is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Before the first byte of every answer.
    pub latency: Duration,
    /// Each way; 0 is unlimited.
    pub bytes_per_second: u64,
}

/// A bucket named `bucket`, on a free port, until it is dropped.
pub struct Double {
    /// Where it listens.
    address: String,
    dialect: Dialect,
    shared: Arc<Shared>,
    _running: DropGuard,
}

/// What requests and tests share.
struct Shared {
    dialect: Dialect,
    bucket: Mutex<Bucket>,
    faults: Mutex<Vec<CloudFault>>,
    requests: Mutex<Vec<String>>,
    pace: Mutex<Pace>,
    /// What is not kept a second time.
    pattern: Mutex<Bytes>,
}

impl Double {
    /// An empty one. Serves in a thread of its own, so that no test's runtime slows it down.
    pub fn start(dialect: Dialect) -> Self {
        let shared = Arc::new(Shared {
            dialect,
            bucket: Mutex::default(),
            faults: Mutex::default(),
            requests: Mutex::default(),
            pace: Mutex::default(),
            pattern: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer::answer).with_state(Arc::clone(&shared));
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
                tokio::select! {
                    () = stopped => {}
                    served = async { axum::serve(listener, router).await } => served.unwrap(),
                }
            });
        });
        Self { address, dialect, shared, _running: stop.drop_guard() }
    }

    /// The storage that it is.
    pub fn storage(&self) -> Storage {
        self.storage_with(&[])
    }

    /// The storage that it is, for which a second without a byte is too long.
    pub fn impatient(&self) -> Storage {
        let name = match self.dialect {
            Dialect::S3 => "AWS_READ_TIMEOUT",
            Dialect::Gcs => "GOOGLE_READ_TIMEOUT",
        };
        self.storage_with(&[(name, "1s")])
    }

    /// The storage that it is, with more variables.
    pub fn storage_with(&self, more: &[(&str, &str)]) -> Storage {
        let variables = self.variables();
        let mut variables = variables.iter().map(|(k, v)| (*k, &**v)).collect::<HashMap<_, _>>();
        variables.extend(more.iter().copied());
        let provider = match self.dialect {
            Dialect::S3 => Provider::S3,
            Dialect::Gcs => Provider::Gcs,
        };
        let cloud = Cloud::parse(provider, "bucket").unwrap();
        let variables = Variables::read(provider, &|name| Some((*variables.get(name)?).to_owned()));
        Storage::Cloud(Cloud { variables, ..cloud })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The URL of its bucket, for a program that has its [`Self::variables`].
    pub fn url(&self) -> &'static str {
        match self.dialect {
            Dialect::S3 => "s3://bucket",
            Dialect::Gcs => "gs://bucket",
        }
    }

    /// The variables that lead a program to it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        match self.dialect {
            Dialect::S3 => vec![
                ("AWS_ENDPOINT_URL_S3", self.address.clone()),
                ("AWS_ALLOW_HTTP", "true".to_owned()),
                ("AWS_ACCESS_KEY_ID", "test".to_owned()),
                ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ],
            Dialect::Gcs => vec![("STORAGE_EMULATOR_HOST", self.address.clone())],
        }
    }

    /// Orders a fault.
    pub fn fault(&self, fault: CloudFault) {
        self.shared.faults.lock().unwrap().push(fault);
    }

    /// Takes back what is left of every fault.
    pub fn heal(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// How fast each connection is from now on.
    pub fn pace(&self, pace: Pace) {
        *self.shared.pace.lock().unwrap() = pace;
    }

    /// From now on what comes in and is the beginning of `pattern` is kept as that: gigabytes of it in no
    /// memory at all.
    pub fn share(&self, pattern: Bytes) {
        *self.shared.pattern.lock().unwrap() = pattern;
    }

    /// From now on a condition of a PUT is passed over, as some servers do.
    pub fn ignore_conditions(&self) {
        self.shared.bucket.lock().unwrap().ignores_conditions = true;
    }

    /// From now on a condition of the completion of an upload is ignored, as many servers do.
    pub fn ignore_conditions_of_completions(&self) {
        self.shared.bucket.lock().unwrap().ignores_completions = true;
    }

    /// From now on a completion is answered another `ETag` than the object has.
    pub fn mistell_tags(&self) {
        self.shared.bucket.lock().unwrap().mistells_tags = true;
    }

    /// From now on a refusal of a clock does not say what time it is.
    pub fn hide_time(&self) {
        self.shared.bucket.lock().unwrap().hides_time = true;
    }

    /// Its clock is ahead by so much from now on. S3 refuses requests of more than 15 minutes ago.
    pub fn clock(&self, ahead: SignedDuration) {
        self.shared.bucket.lock().unwrap().ahead = ahead;
    }

    /// Whether there is such a bucket, from now on.
    pub fn has_bucket(&self, there: bool) {
        self.shared.bucket.lock().unwrap().is_missing = !there;
    }

    /// At most so many keys are on a page of a listing.
    pub fn page_size(&self, keys: usize) {
        self.shared.bucket.lock().unwrap().page_size = keys;
    }

    /// Every key of an artifact, in order.
    pub fn artifacts(&self) -> Vec<String> {
        self.keys().into_iter().filter(|key| !key.starts_with('.')).collect()
    }

    /// Every key, in order.
    pub fn keys(&self) -> Vec<String> {
        self.shared.bucket.lock().unwrap().objects.keys().cloned().collect()
    }

    /// The bytes of an object.
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        Some(self.shared.bucket.lock().unwrap().objects.get(key)?.data.concat())
    }

    /// Puts an object, as another program would.
    pub fn put(&self, key: &str, data: impl Into<Bytes>) {
        self.shared.bucket.lock().unwrap().put(key.to_owned(), vec![data.into()], Vec::new());
    }

    /// Turns a bit of an object over, which nobody is told of.
    pub fn rot(&self, key: &str, at: usize) {
        let mut bucket = self.shared.bucket.lock().unwrap();
        let object = bucket.objects.get_mut(key).unwrap();
        let mut data = object.data.concat();
        data[at] ^= 1;
        object.data = vec![data.into()];
    }

    /// Begins a multipart upload, as a process that is then killed.
    pub fn begin_upload(&self, key: &str) {
        self.shared.bucket.lock().unwrap().begin(key.to_owned(), Vec::new());
    }

    /// How many multipart uploads are neither complete nor given up.
    pub fn open_uploads(&self) -> usize {
        self.shared.bucket.lock().unwrap().uploads.len()
    }

    /// Method, key and query of every request so far.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}

impl Shared {
    /// The fault that this request meets.
    fn meet(&self, method: &str, key: &str, query: &str) -> Option<CloudFault> {
        let mut faults = self.faults.lock().unwrap();
        let fault = faults.iter_mut().find(|fault| {
            fault.times > 0
                && (fault.method.is_empty() || fault.method == method)
                && key.contains(fault.key)
                && query.contains(fault.query)
        })?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times = fault.times.saturating_sub(1);
        Some(fault.clone())
    }
}
