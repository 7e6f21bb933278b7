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
/// How often in a row a file must be empty before it has no rules: many programs empty a file before they write it.
const EMPTY_READS: u32 = 6;

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
        let files = Arc::clone(&self.files);
        if files.is_empty() {
            return;
        }
        if spawn_blocking(move || has_pipe(&files)).await.unwrap_or_default() {
            tracing::warn!(
                "one of the files of rules is a pipe: none of them is read again, and a change needs a restart"
            );
            return;
        }
        // They may have changed since the start.
        let (mut last, mut empty_reads) = (None, 0);
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
            empty_reads = if has_empty(&texts) { empty_reads + 1 } else { 0 };
            if last == Some(digest) || (1..EMPTY_READS).contains(&empty_reads) {
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

/// Whether one of the files may be readable only once.
fn has_pipe(files: &[PathBuf]) -> bool {
    files.iter().any(|file| std::fs::metadata(file).is_ok_and(|found| !found.is_file()))
}

fn has_empty(texts: &Result<Vec<String>, String>) -> bool {
    texts.as_ref().is_ok_and(|texts| texts.iter().any(|text| text.trim().is_empty()))
}

fn at(file: &Path, reason: &str) -> String {
    format!("{}: {reason}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "rules:\n- who: {serviceaccount: a/b}\n  namespaces: [a]\n  verbs: [read]\n";

    /// Whether there are no rules after these seconds.
    async fn after(rules: &Rules, seconds: u64) -> bool {
        let shutdown = CancellationToken::new();
        let stopped = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            shutdown.cancel();
        };
        tokio::join!(rules.watch(shutdown.clone()), stopped);
        rules.current().len() == 0
    }

    #[tokio::test(start_paused = true)]
    async fn file_that_is_empty_for_a_moment_and_a_pipe_take_no_rules_away() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules.yaml");
        let rules = |file: &Path| {
            let mut policy = Policy::default();
            policy.add(RULE).unwrap();
            Rules::new(policy, vec![file.to_owned()], Vec::new())
        };
        std::fs::write(&file, "").unwrap();
        let (emptied, removed) = (rules(&file), rules(&file));
        let pipe = rules(Path::new("/dev/null"));
        let (emptied, removed, pipe) =
            tokio::join!(after(&emptied, 3), after(&removed, 8), after(&pipe, 3));
        assert_eq!((emptied, removed, pipe), (false, true, false));
    }
}
