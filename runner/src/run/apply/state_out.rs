//! The state of an apply in the file of `--state-out`: written when the tool has ended, also if it has failed. If that does
//! not succeed, the state is kept like one that a backend did not accept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::chain;
use datastore_api::client::Upload;

use crate::basis::plan_file::StateVersion;
use crate::report::ledger::Ledger;
use crate::run::Run;
use crate::run::artifacts::{Artifacts, put_state};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::push::UnwrittenState;
use crate::source::states::file::{self, StateIn};

/// What writing gets after a signal, even if the tool has used up the grace period.
const LEAST: Duration = Duration::from_secs(3);

/// Why a state is not written.
struct Refused {
    reason: String,
    /// Whether the state itself is whole.
    is_whole: bool,
    /// Whether another process has written the file.
    is_replaced: bool,
}

impl Refused {
    fn of_whole(reason: String) -> Self {
        Self { reason, is_whole: true, is_replaced: false }
    }
}

impl Run<'_> {
    /// Gives the tool a copy of the state that it may change.
    pub(super) fn begin_state_out(&self, prepared: &mut Prepared) -> Result<(), RunError> {
        if let Some(state) = &self.state_in {
            prepared.state_copy = Some(file::prepare_output(state, &self.scratch.join(""))?);
        }
        Ok(())
    }

    /// Writes the state when the tool has ended. Returns where it is if that fails.
    pub(super) async fn write_state_out(&mut self, prepared: &Prepared) -> Option<UnwrittenState> {
        let (state, copy) = (self.state_in.clone()?, prepared.state_copy.clone()?);
        let output = self.job.state_files.as_ref()?.output.clone()?;
        let whole = self.last_whole_state();
        let writing = {
            let (copy, output) = (copy.clone(), output.clone());
            tokio::task::spawn_blocking(move || write(&state, &copy, &output, whole.as_deref()))
        };
        let refused = match self.in_grace(LEAST, writing).await {
            Some(Ok(Ok(written))) => {
                self.say_written(&output, written.as_ref());
                return None;
            }
            Some(Ok(Err(refused))) => refused,
            Some(Err(error)) => Refused::of_whole(error.to_string()),
            None => Refused::of_whole("no time is left after the signal (--grace)".to_owned()),
        };
        Some(self.keep_unwritten(prepared, copy, output, refused).await)
    }

    fn say_written(&self, output: &Path, version: Option<&StateVersion>) {
        let output = output.display();
        let line = match version {
            Some(version) => format!("the state is written to {output}, serial {}", version.serial),
            None => format!("the tool has made no state, so {output} is not written"),
        };
        tracing::info!("{line}");
        if let Err(error) = self.log.line(&line) {
            tracing::debug!("the log: {error}");
        }
    }

    /// Keeps the state in the directory of unsent files, and in the datastore.
    async fn keep_unwritten(
        &mut self,
        prepared: &Prepared,
        copy: PathBuf,
        out: PathBuf,
        refused: Refused,
    ) -> UnwrittenState {
        let record = self.push_record(prepared.installed.tool.to_string(), &prepared.workspace);
        let record = record.of_replaced(refused.is_replaced);
        let kept = self.keeper().keep_state(&copy, &record).map_err(|error| {
            self.scratch.keep_all();
            (copy.clone(), error.to_string())
        });
        let saved = self.change_ledger(Ledger::set_state_unsaved).await;
        if let Err(error) = saved {
            tracing::warn!(
                "the ledger does not say that the state is not saved: {}",
                chain(&error)
            );
        }
        let stored = self.store_unwritten(&copy).await;
        self.has_unstored_state |= stored == Some(false);
        let Refused { reason, is_whole, is_replaced } = refused;
        let unwritten = UnwrittenState { out, reason, kept, stored, is_whole, is_replaced };
        if let Err(error) = self.log.line(&unwritten.to_string()) {
            tracing::debug!("the log: {error}");
        }
        unwritten
    }

    /// Whether the datastore has the state as an artifact of the attempt; `None`: it takes none.
    async fn store_unwritten(&self, copy: &Path) -> Option<bool> {
        let artifacts =
            self.artifacts.as_ref().filter(|store| Artifacts::takes_other_files(store))?;
        let stored = async {
            let upload = Upload::file(copy).await?;
            put_state(artifacts.client(), (&self.job.run, artifacts.attempt()), &upload).await
        };
        let reason = match self.in_grace(LEAST, stored).await {
            Some(Ok(_)) => return Some(true),
            Some(Err(error)) => chain(&error),
            None => "the datastore takes too long".to_owned(),
        };
        tracing::warn!("the state is not stored as an artifact of the attempt: {reason}");
        Some(false)
    }

    /// Adds to the error of an apply that its state could not be written.
    pub(super) fn with_unwritten(&mut self, error: RunError) -> RunError {
        match self.unwritten.take() {
            Some(state) => RunError::Unwritten { cause: Box::new(error), state },
            None => error,
        }
    }
}

/// Replaces the file, if nobody else has done so since, and the state is a later version of the one that was read. `whole` is
/// the last version that was seen whole. `None`: there is still no state.
fn write(
    before: &StateIn,
    copy: &Path,
    output: &Path,
    whole: Option<&Path>,
) -> Result<Option<StateVersion>, Refused> {
    let gzip = before.gzip_output;
    let version = match file::version_of(copy) {
        Ok(Some(version)) => version,
        Ok(None) if before.version.is_none() && whole.is_none() => return Ok(None),
        torn => {
            let why =
                torn.err().map_or_else(|| "it is empty".to_owned(), |error| error.to_string());
            let mut reason = format!("the tool has left an incomplete one: {why}");
            if let Some(whole) = whole {
                reason += match check_replaced(before, output)
                    .map(|()| file::replace(whole, output, gzip))
                {
                    Ok(Ok(())) => "; the last whole version was written instead",
                    _ => "; the last whole version could not be written instead",
                };
            }
            return Err(Refused { reason, is_whole: false, is_replaced: false });
        }
    };
    if let Some(before) = &before.version {
        let is_later = before.lineage == version.lineage && before.serial <= version.serial;
        if !is_later {
            let reason = format!(
                "it is no later version of --state-in: serial {} of lineage {}, and that was serial {} of lineage {}",
                version.serial, version.lineage, before.serial, before.lineage
            );
            return Err(Refused::of_whole(reason));
        }
    }
    check_replaced(before, output)?;
    file::replace(copy, output, gzip).map_err(|error| Refused::of_whole(error.to_string()))?;
    Ok(Some(version))
}

/// Refuses to replace a state that somebody else has written since the run began.
fn check_replaced(before: &StateIn, output: &Path) -> Result<(), Refused> {
    let now = file::version_of(output);
    let now = now.map_err(|error| Refused::of_whole(error.to_string()))?;
    if now == before.output_version {
        return Ok(());
    }
    let now = now.map_or_else(|| "nothing".to_owned(), |now| format!("serial {}", now.serial));
    let reason = format!("another process has changed the file since: it has {now} now");
    Err(Refused { is_replaced: true, ..Refused::of_whole(reason) })
}
