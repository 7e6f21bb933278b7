//! A datastore in this process, on a free port, until it is dropped.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use ::datastore::config::Config;
use ::datastore::store::{Cloud, StateSettings, Storage, Variables};
use ::datastore::transport::limits::Limits;
use ::datastore::{Auth, Callers, Isolation, KubeApi, Kubernetes, NewToken, Policy, Verb};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use crate::{Dialect, FakeCloud};

/// A datastore in this process, on a free port, until it is dropped.
pub struct TestDatastore {
    /// Where it listens.
    pub url: Url,
    /// Stops the datastore when it is dropped.
    _running: DropGuard,
    directory: Option<TempDir>,
    double: Option<FakeCloud>,
}

impl TestDatastore {
    /// One over each backend, for tests of what must not depend on it; or one over the storage that
    /// `PLANCHA_TEST_STORAGE` names, in a place of its own there. `scripts/e2e` sets it.
    pub async fn each() -> Vec<Self> {
        if let Some(storage) = storage_from_environment() {
            return vec![Self::start(storage).await];
        }
        let mut each = vec![Self::temporary().await, Self::memory().await];
        each.extend(Self::doubles().await);
        each
    }

    /// One over a cloud of its own in memory.
    pub async fn double(dialect: Dialect) -> Self {
        Self::over(FakeCloud::start(dialect)).await
    }

    /// One over a double of each dialect, which waits for no byte longer than three seconds.
    pub async fn doubles() -> Vec<Self> {
        let mut doubles = Vec::new();
        for dialect in Dialect::ALL {
            doubles.push(Self::double(dialect).await);
        }
        doubles
    }

    /// One over a double that a test has prepared, which waits for no byte longer than three seconds.
    pub async fn over(double: FakeCloud) -> Self {
        let datastore = Self::start(double.impatient()).await;
        // It has tried the double by then: what a test orders is not for the trial.
        let ready = datastore.url.join("readyz").unwrap();
        while !reqwest::get(ready.clone()).await.unwrap().status().is_success() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Self { double: Some(double), ..datastore }
    }

    /// Another one over the same double.
    pub async fn beside(&self) -> Self {
        Self::start(self.cloud().storage()).await
    }

    /// One over this storage.
    pub async fn with(storage: Storage) -> Self {
        Self::start(storage).await
    }

    /// The cloud below a [`Self::double`] one.
    pub fn cloud(&self) -> &FakeCloud {
        self.double.as_ref().unwrap()
    }

    /// Two replicas over each storage that several processes may share; or over the storage that
    /// `PLANCHA_TEST_STORAGE` names.
    pub async fn replicas() -> Vec<[Self; 2]> {
        if let Some(storage) = storage_from_environment() {
            return vec![[Self::start(storage.clone()).await, Self::start(storage).await]];
        }
        let file = Self::temporary().await;
        let beside = Self::file(&file.root()).await;
        let mut pairs = vec![[file, beside]];
        for double in Self::doubles().await {
            let beside = double.beside().await;
            pairs.push([double, beside]);
        }
        pairs
    }

    /// One that keeps everything in memory.
    pub async fn memory() -> Self {
        Self::start(Storage::Memory).await
    }

    /// One that keeps everything below `directory`, and leaves it there.
    pub async fn file(directory: &Path) -> Self {
        Self::start(Storage::File(directory.to_owned())).await
    }

    /// One that keeps everything in a directory that goes away with it.
    pub async fn temporary() -> Self {
        let directory = TempDir::new().unwrap();
        let storage = storage_in(&directory);
        Self { directory: Some(directory), ..Self::start(storage).await }
    }

    /// One in memory with limits of its own.
    pub async fn limited(limits: Limits) -> Self {
        Self::of(Config { limits, ..Config::of(Storage::Memory) }).await
    }

    /// One in memory that takes no larger uploads of this kind.
    pub async fn with_max_size(kind: &str, bytes: u64) -> Self {
        let mut limits = Limits::default();
        limits.sizes.set(kind.parse().unwrap(), bytes);
        Self::limited(limits).await
    }

    /// One in a directory that goes away with it, with limits of its own.
    pub async fn temporary_limited(limits: Limits) -> Self {
        let directory = TempDir::new().unwrap();
        let storage = storage_in(&directory);
        let started = Self::of(Config { limits, ..Config::of(storage) }).await;
        Self { directory: Some(directory), ..started }
    }

    /// The root of a [`Self::temporary`] one.
    pub fn root(&self) -> std::path::PathBuf {
        self.directory.as_ref().unwrap().path().join("datastore")
    }

    async fn start(storage: Storage) -> Self {
        Self::of(Config::of(storage)).await
    }

    /// One that asks callers who they are, over a directory that goes away with it.
    pub async fn guarded(auth: Auth) -> Self {
        let directory = TempDir::new().unwrap();
        let storage = storage_in(&directory);
        let started = Self::of(Config { auth, ..Config::of(storage) }).await;
        Self { directory: Some(directory), ..started }
    }

    /// One whose leases expire after this time, over a directory that goes away with it.
    pub async fn hasty(lease_ttl: Duration) -> Self {
        Self::hasty_guarded(lease_ttl, Auth::None).await
    }

    /// The same, with callers that have every permission for these kinds. Returns their tokens.
    pub async fn hasty_with_tokens<const N: usize>(
        lease_ttl: Duration,
        kinds: [&[&str]; N],
    ) -> (Self, [String; N]) {
        let (mut policy, mut index) = (Policy::default(), 0);
        let tokens = kinds.map(|kinds| {
            index += 1;
            let (token, rule) = NewToken {
                id: format!("ci-{index}"),
                namespaces: vec!["*".to_owned()],
                kinds: kinds.iter().map(|kind| kind.parse().unwrap()).collect(),
                verbs: vec![Verb::Read, Verb::Write, Verb::Append, Verb::List, Verb::Admin],
            }
            .create()
            .unwrap();
            policy.add(&rule).unwrap();
            token.expose_secret().to_owned()
        });
        let callers = Callers { tokens: true, policy, ..Callers::default() };
        let started = Self::hasty_guarded(lease_ttl, Auth::Callers(Box::new(callers))).await;
        (started, tokens)
    }

    async fn hasty_guarded(lease_ttl: Duration, auth: Auth) -> Self {
        let directory = TempDir::new().unwrap();
        let storage = storage_in(&directory);
        let states = StateSettings { lease_ttl, ..StateSettings::default() };
        let started = Self::of(Config { auth, states, ..Config::of(storage) }).await;
        Self { directory: Some(directory), ..started }
    }

    /// One that asks the cluster of this kubeconfig who its callers are.
    pub async fn in_cluster(kubeconfig: &Path) -> Self {
        let kubernetes = Kubernetes {
            api: KubeApi::Kubeconfig(vec![kubeconfig.to_owned()]),
            allowed: None,
            main_namespace: None,
            isolation: Isolation::Namespace,
        };
        let callers = Callers { kubernetes: Some(kubernetes), ..Callers::default() };
        Self::guarded(Auth::Callers(Box::new(callers))).await
    }

    /// One with this configuration.
    pub async fn of(config: Config) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(::datastore::serve(vec![listener], config, stop.clone()));
        Self { url, _running: stop.drop_guard(), directory: None, double: None }
    }
}

/// The storage of a [`TestDatastore::temporary`] one. Its directory is there before the service starts, so that a test can use
/// it at once.
fn storage_in(directory: &TempDir) -> Storage {
    let root = directory.path().join("datastore");
    std::fs::create_dir(&root).unwrap();
    Storage::File(root)
}

/// A prefix of the storage that the environment names, used by no other test.
#[expect(clippy::disallowed_methods, reason = "scripts/e2e orders it so")]
fn storage_from_environment() -> Option<Storage> {
    let url = std::env::var("PLANCHA_TEST_STORAGE").ok()?;
    let Ok(Storage::Cloud(cloud)) = url.parse() else { panic!("no bucket: {url}") };
    let variables = Variables::read(cloud.provider, &|name| std::env::var(name).ok());
    let prefix = format!("t{:016x}", rand::random::<u64>());
    Some(Storage::Cloud(Cloud { variables, prefix, ..cloud }))
}
