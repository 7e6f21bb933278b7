//! The rules in effect. Their files are read again when they change: a rule or a token that is removed ends within seconds,
//! also in sessions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use datastore_api::Sha256;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::auth::policy::Policy;

/// How often the files are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// The rules in effect.
#[derive(Debug)]
pub(super) struct Rules {
    current: RwLock<Arc<Policy>>,
    files: Arc<[PathBuf]>,
    /// The configured issuers.
    issuers: Vec<String>,
}

impl Rules {
    pub(super) fn new(policy: Policy, files: Vec<PathBuf>, issuers: Vec<String>) -> Self {
        Self { current: RwLock::new(Arc::new(policy)), files: files.into(), issuers }
    }

    pub(super) fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files regularly until `shutdown`. While they are invalid, the previous rules stay in effect, and the log says
    /// so. If the file system hangs, one thread waits, and no caller.
    pub(super) async fn watch(&self, shutdown: CancellationToken) {
        if self.files.is_empty() {
            return;
        }
        // They may have changed since the start.
        let mut last = None;
        while timeout(INTERVAL, shutdown.cancelled()).await.is_err() {
            let files = Arc::clone(&self.files);
            let texts = match spawn_blocking(move || read(&files)).await {
                Ok(texts) => texts,
                Err(error) => {
                    tracing::error!(%error, "the files of rules are no longer checked for changes");
                    return;
                }
            };
            let digest = Sha256::of(format!("{texts:?}").as_bytes());
            if last == Some(digest) {
                continue;
            }
            match texts.and_then(|texts| self.parse(&texts)) {
                Ok(policy) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) =
                        Arc::new(policy);
                    if last.is_some() {
                        tracing::info!("the rules were read again");
                    }
                }
                Err(error) => {
                    tracing::error!(
                        error,
                        "cannot read the rules; the previous ones stay in effect"
                    );
                }
            }
            last = Some(digest);
        }
    }

    fn parse(&self, texts: &[String]) -> Result<Policy, String> {
        let mut policy = Policy::default();
        for (file, text) in self.files.iter().zip(texts) {
            policy.add(text).map_err(|reason| at(file, &reason))?;
        }
        policy.check_issuers(&self.issuers)?;
        Ok(policy)
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<String>, String> {
    let read = |file: &PathBuf| {
        std::fs::read_to_string(file).map_err(|error| at(file, &error.to_string()))
    };
    files.iter().map(read).collect()
}

fn at(file: &Path, reason: &str) -> String {
    format!("{}: {reason}", file.display())
}
