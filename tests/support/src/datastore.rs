//! A datastore in this process, on a free port, until it is dropped.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use ::datastore::Auth;
use ::datastore::config::{Config, Drain};
use ::datastore::limits::Limits;
use ::datastore::store::Storage;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

/// A datastore in this process, on a free port, until it is dropped.
pub struct TestDatastore {
    /// Where it listens.
    pub url: Url,
    /// Told to stop when this is dropped.
    _running: DropGuard,
    directory: Option<TempDir>,
}

impl TestDatastore {
    /// One over each backend, for tests of what must not depend on it.
    pub async fn each() -> [Self; 2] {
        [Self::temporary().await, Self::memory().await]
    }

    /// One that keeps everything in memory.
    pub async fn memory() -> Self {
        Self::start(Storage::Memory, None).await
    }

    /// One that keeps everything below `directory`, and leaves it there.
    pub async fn file(directory: &Path) -> Self {
        Self::start(Storage::File(directory.to_owned()), None).await
    }

    /// One that keeps everything in a directory that goes away with it.
    pub async fn temporary() -> Self {
        let directory = TempDir::new().unwrap();
        let storage = Storage::File(directory.path().join("datastore"));
        Self::start(storage, Some(directory)).await
    }

    /// The root of a [`Self::temporary`] one.
    pub fn root(&self) -> std::path::PathBuf {
        self.directory.as_ref().unwrap().path().join("datastore")
    }

    async fn start(storage: Storage, directory: Option<TempDir>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let stop = CancellationToken::new();
        let drain = Drain { delay: Duration::ZERO, timeout: Duration::from_secs(5) };
        let limits = Limits::default();
        let config = Config { storage, auth: Auth::None, drain, limits };
        tokio::spawn(::datastore::serve(listener, config, stop.clone()));
        Self { url, _running: stop.drop_guard(), directory }
    }
}
