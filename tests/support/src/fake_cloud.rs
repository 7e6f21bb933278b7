//! A cloud in memory: S3 or Google Cloud Storage in the dialects of `object_store`, with faults that tests inject.
//!
//! It enforces what the real ones do as far as the datastore depends on it: conditions, the least
//! size of a part, uploads that are gone once completed, pages of a listing. It checks no signature.

mod bucket;
mod respond;
mod state;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::serve::ListenerExt as _;
use datastore::store::{Cloud, Provider, Storage, Variables};
use jiff::SignedDuration;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::state::{CloudFault, Dialect, Pace};
use self::state::{InFlight, Shared};

/// A bucket named `bucket`, on a free port, until it is dropped.
pub struct FakeCloud {
    /// Where it listens.
    address: String,
    dialect: Dialect,
    shared: Arc<Shared>,
    _running: DropGuard,
}

impl FakeCloud {
    /// An empty one. Serves in a thread of its own, so that no test's runtime slows it down.
    pub fn start(dialect: Dialect) -> Self {
        let shared = Arc::new(Shared {
            dialect,
            bucket: Mutex::default(),
            faults: Mutex::default(),
            requests: Mutex::default(),
            pace: Mutex::default(),
            pattern: Mutex::default(),
            in_flight: InFlight::default(),
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(respond::respond).with_state(Arc::clone(&shared));
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

    /// This cloud as a storage of the datastore.
    pub fn storage(&self) -> Storage {
        self.storage_with(&[])
    }

    /// The same storage with a timeout of three seconds without a byte.
    pub fn impatient(&self) -> Storage {
        let name = match self.dialect {
            Dialect::S3 => "AWS_READ_TIMEOUT",
            Dialect::Gcs => "GOOGLE_READ_TIMEOUT",
        };
        self.storage_with(&[(name, "3s")])
    }

    /// The same storage with more variables.
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

    /// Injects a fault.
    pub fn fault(&self, fault: CloudFault) {
        self.shared.faults.lock().unwrap().push(fault);
    }

    /// Removes every remaining fault.
    pub fn heal(&self) {
        self.shared.faults.lock().unwrap().clear();
    }

    /// Limits the speed of each connection from now on.
    pub fn pace(&self, pace: Pace) {
        *self.shared.pace.lock().unwrap() = pace;
    }

    /// From now on, uploaded pieces that equal the start of `pattern` share its memory: gigabytes cost nothing.
    pub fn share(&self, pattern: Bytes) {
        *self.shared.pattern.lock().unwrap() = pattern;
    }

    /// From now on the condition of a PUT is ignored, as some servers do.
    pub fn ignore_conditions(&self) {
        self.shared.bucket.lock().unwrap().ignores_conditions = true;
    }

    /// From now on a condition of the completion of an upload is ignored, as many servers do.
    pub fn ignore_conditions_of_completions(&self) {
        self.shared.bucket.lock().unwrap().ignores_completions = true;
    }

    /// From now on each PUT that has the condition of a creation gets this status and code, as from servers that do not
    /// support it.
    pub fn reject_conditions_of_creations(&self, status: u16, code: &'static str) {
        self.shared.bucket.lock().unwrap().rejects_creations = Some((status, code));
    }

    /// From now on each completion that has a condition gets this status and code, as from servers that do not support it.
    pub fn reject_conditions_of_completions(&self, status: u16, code: &'static str) {
        self.shared.bucket.lock().unwrap().rejects_completions = Some((status, code));
    }

    /// From now on a PUT replaces any version of an object although it demands a certain one, as some servers do.
    pub fn ignore_conditions_of_updates(&self) {
        self.shared.bucket.lock().unwrap().ignores_updates = true;
    }

    /// From now on a completion returns another `ETag` than the object has.
    pub fn return_wrong_etags(&self) {
        self.shared.bucket.lock().unwrap().returns_wrong_etags = true;
    }

    /// From now on an error about clock skew does not contain the time.
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

    /// Flips a bit of an object silently.
    pub fn rot(&self, key: &str, at: usize) {
        let mut bucket = self.shared.bucket.lock().unwrap();
        let object = bucket.objects.get_mut(key).unwrap();
        let mut data = object.data.concat();
        data[at] ^= 1;
        object.data = vec![data.into()];
    }

    /// Starts a multipart upload and leaves it open, as a killed process does.
    pub fn begin_upload(&self, key: &str) {
        self.shared.bucket.lock().unwrap().begin(key.to_owned(), Vec::new());
    }

    /// How many multipart uploads are neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.shared.bucket.lock().unwrap().uploads.len()
    }

    /// The most requests that were in flight at once since the last call.
    pub fn most_in_flight(&self) -> usize {
        self.shared.in_flight.take_most()
    }

    /// Method, key and query of every request so far.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }
}
