//! Delivers a state that its backend has refused: to the datastore, and once more to the backend, both until they succeed or
//! are refused for a reason that will not pass. What is delivered nowhere stays in the directory that the last line names.

mod command;
mod own_lock;
mod pace;
mod push;

use std::path::PathBuf;
use std::time::Duration;

use datastore_api::chain;
use datastore_api::client::Upload;
use fs_err as fs;

use crate::report::StateLock;
use crate::run::Run;
use crate::run::apply::rescue::own_lock::OwnLock;
use crate::run::apply::rescue::pace::Pace;
use crate::run::apply::rescue::push::{Again, Refused};
use crate::run::artifacts::{Artifacts, put_state};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::push::ErroredState;
use crate::run::unsent;
use crate::source::states::{self, ERRORED};

/// What an upload gets after a signal, even if the tool has used up the grace period.
const LEAST: Duration = Duration::from_secs(3);

/// How far one of the two deliveries is.
#[derive(Debug)]
enum Progress {
    /// It may succeed later.
    Open,
    Done,
    /// It will not succeed.
    Over,
}

impl Progress {
    fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

impl ErroredState {
    /// Adds these states to the result of the apply.
    pub(in crate::run::apply) fn add_to(
        self,
        result: Result<(), RunError>,
    ) -> Result<(), RunError> {
        if let Err(cause) = result {
            let (cause, errored) = (Box::new(cause), Box::new(self));
            return Err(RunError::Errored { cause, errored });
        }
        tracing::warn!("the tool has written {ERRORED}: {}", self.hint());
        Ok(())
    }
}

impl Run<'_> {
    /// Delivers the states of an apply.
    pub(in crate::run::apply) async fn rescue(
        &mut self,
        prepared: &mut Prepared,
        errored: &mut ErroredState,
    ) {
        let is_found = errored.push.lost_in.is_none() && !errored.push.unknown;
        if is_found {
            let own_lock = OwnLock::of(self.log);
            self.deliver(prepared, errored, &own_lock).await;
            if errored.delivery.pushed {
                self.remove_pushed(errored);
            }
        }
    }

    async fn deliver(
        &mut self,
        prepared: &mut Prepared,
        errored: &mut ErroredState,
        own_lock: &OwnLock,
    ) {
        let mut pace = Pace::new(self.job.grace);
        // An empty file records a state that only the output has.
        let is_empty = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.len() == 0);
        let takes_states = self.takes_states() && !errored.files.iter().all(is_empty);
        let mut stored = if takes_states { Progress::Open } else { Progress::Over };
        let mut pushed = match &*errored.files {
            // The backend would refuse it for ever.
            [_] if self.state_here.is_some() && self.lost_lease().is_some() => {
                self.not_pushed(errored, "the lease is lost".to_owned())
            }
            [_] if self.time_left().is_some_and(|left| left.is_zero()) => {
                self.not_pushed(errored, "no time is left after the signal (--grace)".to_owned())
            }
            [only] if states::is_whole(only) => Progress::Open,
            [_] => self.not_pushed(errored, "it is empty or incomplete".to_owned()),
            _ => self.not_pushed(errored, "there are several".to_owned()),
        };
        let first = self.report.step_count();
        let mut may_pass = true;
        loop {
            if stored.is_open() {
                stored = self.store_errored(errored).await;
            }
            if pushed.is_open() {
                let tried = self.try_push(prepared, errored, own_lock).await;
                // What is stored nowhere is tried on: credentials may be renewed, and a lock be freed.
                let is_lost = !stored.is_done() && (takes_states || self.job.pod);
                pushed = match tried {
                    Ok(()) => Progress::Done,
                    Err(Refused { reason, again, .. })
                        if again == Again::No || again == Again::IfLost && !is_lost =>
                    {
                        self.not_pushed(errored, reason)
                    }
                    Err(Refused { reason, wait, again, .. }) => {
                        pace.failed(wait);
                        errored.delivery.unpushed = Some(reason);
                        may_pass = again == Again::Yes;
                        Progress::Open
                    }
                };
            }
            // A state that its backend has is not waited for.
            if pushed.is_done() || !pushed.is_open() && !stored.is_open() {
                break;
            }
            let unpushed = errored.delivery.unpushed.as_deref().filter(|_| pushed.is_open());
            let has_budget = pushed.is_open() && may_pass;
            if has_budget && self.next_delivery(&mut pace, true, unpushed).await {
                continue;
            }
            if stored.is_done() || !self.next_delivery(&mut pace, false, unpushed).await {
                break;
            }
        }
        if stored.is_open() && !pushed.is_done() {
            // The last push may have taken minutes, and the datastore may be back.
            stored = self.store_errored(errored).await;
        }
        self.report.join_tries_since(first);
        errored.delivery.pushed = pushed.is_done();
        if takes_states || self.job.pod {
            errored.delivery.stored = Some(stored.is_done());
        }
        self.has_unstored_state = takes_states && !stored.is_done() && !pushed.is_done();
    }

    /// Whether there is a datastore that takes states.
    fn takes_states(&self) -> bool {
        self.artifacts.as_ref().is_some_and(Artifacts::takes_other_files)
    }

    fn not_pushed(&self, errored: &mut ErroredState, reason: String) -> Progress {
        self.say(&format!("the state is not pushed to its backend: {reason}"));
        errored.delivery.unpushed = Some(reason);
        Progress::Over
    }

    /// Waits until the next try, which the budget of pushes allows, or the grace period. `false`: there is none.
    async fn next_delivery(
        &mut self,
        pace: &mut Pace,
        by_budget: bool,
        unpushed: Option<&str>,
    ) -> bool {
        let Some(pause) = pace.pause(&self.retries, self.signals, by_budget) else { return false };
        if let Some(reason) = unpushed {
            self.say(&format!(
                "the state is not pushed: {reason}; the next try follows in {pause:.1?}"
            ));
        }
        let (began, left) = (tokio::time::Instant::now(), self.retries.left);
        let pause = tokio::time::sleep(pause);
        if self.signals.stopped().is_some() {
            pause.await;
        } else {
            // A signal shortens the time that is left, and this pause.
            let _stop = self.signals.or(pause).await;
        }
        self.retries.spend(left, began.elapsed());
        true
    }

    /// Stores the files as artifacts of the attempt, which are as secret as a plan.
    async fn store_errored(&self, errored: &ErroredState) -> Progress {
        let Some(artifacts) = &self.artifacts else { return Progress::Over };
        for file in &errored.files {
            let stored = async {
                let upload = Upload::file(file).await?;
                put_state(artifacts.client(), (&self.job.run, artifacts.attempt()), &upload).await
            };
            let (reason, progress) = match self.in_grace(LEAST, stored).await {
                Some(Ok(name)) => {
                    tracing::debug!("{} is stored as {name}", file.display());
                    continue;
                }
                Some(Err(error)) => {
                    // A token may be renewed.
                    (chain(&error), Progress::Open)
                }
                None => ("the datastore takes too long".to_owned(), Progress::Over),
            };
            tracing::warn!("{ERRORED} is not stored: {reason}");
            return progress;
        }
        Progress::Done
    }

    /// Removes the files of a state that the backend has by now: a later apply would be refused because of them.
    fn remove_pushed(&mut self, errored: &mut ErroredState) {
        self.report.state_lock = StateLock::Free;
        let kept = errored.copies.iter().chain(&errored.files);
        for file in kept.chain(&errored.own) {
            if let Err(error) = unsent::remove_copy(file) {
                tracing::warn!("{} is not needed any more, and stays: {error}", file.display());
            }
        }
        let stored = match errored.delivery.stored {
            Some(true) => format!(" {ERRORED} of the attempt stays in the datastore."),
            _ => String::new(),
        };
        self.say(&format!(
            "the runner has pushed the state that the backend did not accept at first: the backend has it now.{stored}"
        ));
    }

    /// A line for people and for the log.
    pub(super) fn say(&self, line: &str) {
        tracing::warn!("{line}");
        if let Err(error) = self.log.line(line) {
            tracing::debug!("the log: {error}");
        }
    }
}
