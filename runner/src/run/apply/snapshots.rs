//! Snapshots of a local state: while an apply runs, each complete version of the file is stored in the datastore, and the
//! last one when the tool has ended.
//!
//! A thread of its own does it, and the tool is never waited for. The tool truncates its file and writes it in place, so a
//! version counts only if it is a whole document of the same lineage, with a serial that is not lower, and if the file has
//! not changed while it was copied.

mod watcher;

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use datastore_api::client::{StateOrigin, Upload};
use datastore_api::state::{DEFAULT_WORKSPACE, LayerTool, StateKey};
use datastore_api::{Client, ClientError, RunKey, chain};
use reqwest::StatusCode;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::run::Run;
use crate::run::apply::snapshots::watcher::Watcher;
use crate::run::prepare::Prepared;

/// Between two looks at the file.
const POLL: Duration = Duration::from_millis(250);
/// Between two uploads that fail.
const PAUSE: Duration = Duration::from_secs(5);
/// How long the datastore may be silent during an upload while the tool works.
const TIMEOUT: Duration = Duration::from_secs(20);
/// What the last upload gets after a signal, even if the tool has used up the grace period.
const LEAST: Duration = Duration::from_secs(3);
/// The directory of the copies, in the private directory.
const COPIES: &str = "snapshots";

/// Stores snapshots until it is ended.
#[derive(Debug)]
pub(super) struct Follower {
    /// Ends it when the last version is stored.
    end: Option<oneshot::Sender<()>>,
    /// Ends it at once when it is dropped.
    abort: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    outcome: oneshot::Receiver<Outcome>,
}

/// What became of the snapshots.
#[derive(Debug, Default)]
struct Outcome {
    /// Why the last version is not stored.
    lost: Option<String>,
}

/// Where snapshots are stored.
#[derive(Clone, Debug)]
struct Store {
    client: Client,
    key: StateKey,
    origin: StateOrigin,
}

/// An upload in flight.
type Sending = Pin<Box<dyn Future<Output = Sent>>>;

/// An upload that has ended.
#[derive(Debug)]
struct Sent {
    file: PathBuf,
    /// Whether the tool had ended before it.
    is_last: bool,
    result: Result<(), ClientError>,
}

impl Store {
    /// While the tool works, one try with a client of its own: the datastore is not given up for the uploads of the run.
    fn send(&self, file: PathBuf, is_last: bool) -> Sending {
        let Self { client, key, origin } = self.clone();
        let client =
            if is_last { client } else { client.once(TIMEOUT.min(client.settings().timeout)) };
        Box::pin(async move {
            let sent = async {
                let upload = Upload::file(&file).await?;
                client.put_snapshot(&key, &origin, &upload).await
            };
            let result = sent.await;
            Sent { file, is_last, result }
        })
    }
}

impl Follower {
    fn start(watcher: Watcher, store: Option<Store>) -> io::Result<Self> {
        let ((end, ended), (abort, aborted)) = (oneshot::channel(), oneshot::channel::<()>());
        let (sender, outcome) = oneshot::channel();
        let runtime = Handle::current();
        let thread = thread::Builder::new().spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = aborted => {}
                    outcome = follow(watcher, store, ended) => drop(sender.send(outcome)),
                }
            });
        })?;
        Ok(Self { end: Some(end), abort: Some(abort), thread: Some(thread), outcome })
    }

    /// Waits until the last version is stored, or could not be.
    async fn end(mut self) -> Outcome {
        drop(self.end.take());
        // After a panic of the thread nothing is known.
        let outcome = (&mut self.outcome).await;
        outcome.unwrap_or_else(|_| Outcome { lost: Some("it was not sent".to_owned()) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.abort.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once, and must do so before the runtime.
            let _panicked = thread.join();
        }
    }
}

/// Stores each version that the watcher finds, the newest one if several wait.
async fn follow(
    mut watcher: Watcher,
    mut store: Option<Store>,
    mut ended: oneshot::Receiver<()>,
) -> Outcome {
    let (mut has_ended, mut outcome) = (false, Outcome::default());
    let (mut sending, mut waiting) = (None::<Sending>, None::<PathBuf>);
    let mut not_before = Instant::now();
    loop {
        if let Some(version) = watcher.look(has_ended)
            && let Some(earlier) = waiting.replace(version)
        {
            watcher.discard(&earlier);
        }
        let is_due = sending.is_none() && (has_ended || Instant::now() >= not_before);
        if let Some(store) = store.as_ref().filter(|_| is_due) {
            sending = waiting.take().map(|version| store.send(version, has_ended));
        }
        if has_ended && sending.is_none() {
            watcher.keep_last();
            return outcome;
        }
        tokio::select! {
            biased;
            Sent { file, is_last, result } = output(&mut sending) => {
                sending = None;
                outcome.lost = None;
                watcher.discard(&file);
                if let Err(error) = result {
                    not_before = Instant::now() + PAUSE;
                    if is_final(&error, is_last) {
                        store = None;
                    } else {
                        tracing::debug!("a snapshot of the state is not stored now: {}", chain(&error));
                        // After the end the client itself has tried it often enough.
                        waiting = waiting.or_else(|| watcher.last().filter(|_| !is_last));
                        outcome.lost = Some(chain(&error));
                    }
                }
            }
            _ = &mut ended, if !has_ended => has_ended = true,
            () = tokio::time::sleep(POLL), if !has_ended => {}
        }
    }
}

/// The result of an upload in flight. Without one it never comes.
async fn output(sending: &mut Option<Sending>) -> Sent {
    match sending {
        Some(sending) => sending.await,
        None => std::future::pending().await,
    }
}

/// Whether the datastore takes no snapshots at all.
fn is_final(error: &ClientError, is_last: bool) -> bool {
    match error.status() {
        // An older one, unless a proxy says so for a moment.
        Some(StatusCode::NOT_FOUND) if is_last || !error.is_transient() => {
            tracing::debug!("the datastore stores no snapshots of states: {}", chain(error));
            true
        }
        Some(StatusCode::FORBIDDEN) => {
            tracing::warn!(
                "no snapshots of the state are stored: the caller needs a rule with the kind `state` and the verb `write`: {}",
                chain(error)
            );
            true
        }
        _ => false,
    }
}

impl Run<'_> {
    /// Follows the local state of an apply that begins. `None`: the state is not local, or nothing needs its versions.
    pub(super) fn follow_state(&self, prepared: &Prepared) -> Option<Follower> {
        let file = match &prepared.state_copy {
            Some(copy) => copy.clone(),
            None if prepared.terragrunt.is_some() => return None,
            None => self.local_state_file(prepared).ok().flatten()?,
        };
        let store = self.snapshot_store();
        if store.is_none() && prepared.state_copy.is_none() {
            return None;
        }
        self.start_following(file, store)
    }

    fn start_following(&self, file: PathBuf, store: Option<Store>) -> Option<Follower> {
        let watcher = Watcher::new(file, self.scratch.join(COPIES));
        let follower = watcher.and_then(|watcher| Follower::start(watcher, store));
        follower
            .inspect_err(|error| tracing::warn!("no snapshots of the state are stored: {error}"))
            .ok()
    }

    /// Where the snapshots of this run are stored. Burrito's datastore takes none.
    fn snapshot_store(&self) -> Option<Store> {
        let artifacts = self.artifacts.as_ref().filter(|store| store.takes_other_files())?;
        let RunKey { namespace, layer, run } = self.job.run.clone();
        let workspace = self.job.place.workspace.as_deref().filter(|name| !name.is_empty());
        let workspace = workspace.unwrap_or(DEFAULT_WORKSPACE).parse();
        let workspace = workspace
            .inspect_err(|error| tracing::warn!("no snapshots of the state are stored: {error}"));
        let tool = self.report.tool.as_ref();
        let tool =
            tool.map(|tool| LayerTool { name: tool.name.clone(), version: tool.version.clone() });
        let run = Some(format!("{run}/{}", artifacts.attempt()));
        Some(Store {
            client: artifacts.client().clone(),
            key: StateKey { namespace, layer, workspace: workspace.ok()? },
            origin: StateOrigin { run, tool, ..StateOrigin::default() },
        })
    }

    /// Stores the last version when the tool has ended. That this fails is a warning.
    pub(super) async fn end_following(&mut self, follower: Option<Follower>, prepared: &Prepared) {
        let Some(follower) = follower.or_else(|| self.follow_terragrunt(prepared)) else { return };
        let ended = self.in_grace(LEAST, follower.end()).await;
        let lost = match ended {
            Some(outcome) => outcome.lost,
            None => Some("no time is left after the signal (--grace)".to_owned()),
        };
        if let Some(reason) = lost {
            let line = format!("the last snapshot of the state is not stored: {reason}");
            tracing::warn!("{line}");
            if let Err(error) = self.log.line(&line) {
                tracing::debug!("the log: {error}");
            }
        }
    }

    /// Only when terragrunt has ended it is known where the tool has worked.
    fn follow_terragrunt(&self, prepared: &Prepared) -> Option<Follower> {
        prepared.terragrunt.as_ref()?;
        let store = self.snapshot_store()?;
        let [dir] = &*self.tool_dirs(prepared) else { return None };
        let file = self.local_state_file_in(dir).ok().flatten()?;
        self.start_following(file, Some(store))
    }

    /// The last whole version of the state that was seen, if the file has none any more.
    pub(super) fn last_whole_state(&self) -> Option<PathBuf> {
        Some(watcher::last_in(&self.scratch.join(COPIES))).filter(|file| file.exists())
    }
}
