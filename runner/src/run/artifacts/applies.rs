//! Whether a layer was applied, and not destroyed since, by the records of its runs.

use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, ClientError, File, Name, PlanFormat, RunKey};
use futures::future::try_join_all;
use reqwest::StatusCode;
use serde::Deserialize;

use crate::run::artifacts::{APPLIED, Artifacts, LEDGER, MAX_REPORT, REPORT, Server, other};

/// No more runs are examined, the newest first: a layer with so many newer plans is not a new one that was set up again.
const MAX_RUNS: usize = 200;
/// So many runs at the same time.
const AT_ONCE: usize = 10;

/// What the records of a layer show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastApply {
    /// It was never applied, or destroyed completely since.
    None,
    /// This attempt has applied it.
    Applied(String),
    /// It is not known, for this reason.
    Unknown(String),
}

/// The part of `run.json` that is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ended {
    action: String,
    outcome: String,
    state: Option<StateLeft>,
    place: Option<EndedIn>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StateLeft {
    empty: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndedIn {
    workspace: Option<String>,
}

impl Ended {
    fn has_destroyed_all(&self) -> bool {
        let is_done = matches!(self.outcome.as_str(), "applied" | "no_changes");
        self.action == "destroy" && is_done && self.state.as_ref().is_some_and(|state| state.empty)
    }

    /// Whether it was of another workspace, whose state is another one.
    fn is_elsewhere(&self, workspace: Option<&str>) -> bool {
        let theirs = self.place.as_ref().and_then(|place| place.workspace.as_deref());
        matches!((theirs, workspace), (Some(theirs), Some(ours)) if theirs != ours)
    }
}

/// What one attempt has done to the objects of the layer.
enum Done {
    Nothing,
    Applied,
    DestroyedAll,
}

impl Artifacts {
    /// Whether an attempt of the layer has applied this workspace, and none has destroyed everything since, in the order in
    /// which the datastore got the runs.
    pub(crate) async fn last_apply(
        &self,
        workspace: Option<&str>,
    ) -> Result<LastApply, ClientError> {
        if self.server == Server::Burritos {
            return Ok(LastApply::Unknown("the datastore is Burrito's".to_owned()));
        }
        match self.find_last_apply(workspace).await {
            Err(error) if error.status() == Some(StatusCode::FORBIDDEN) => {
                Ok(LastApply::Unknown(datastore_api::chain(&error)))
            }
            found => found,
        }
    }

    async fn find_last_apply(&self, workspace: Option<&str>) -> Result<LastApply, ClientError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let (mut cursor, mut examined) = (None, 0);
        loop {
            let page = self.client.runs(namespace, layer, cursor.as_deref()).await?;
            let names = page.runs.iter().filter_map(|run| run.run.parse::<Name>().ok());
            let names = names.collect::<Vec<_>>();
            for runs in names.chunks(AT_ONCE) {
                let done = runs.iter().map(|run| self.done_by(run, workspace));
                for (run, done) in runs.iter().zip(try_join_all(done).await?) {
                    match done {
                        Some((_, Done::DestroyedAll)) => return Ok(LastApply::None),
                        Some((attempt, _)) => {
                            return Ok(LastApply::Applied(format!("{run}/{attempt}")));
                        }
                        None => {}
                    }
                }
                examined += runs.len();
                if examined >= MAX_RUNS {
                    return Ok(LastApply::Unknown(format!(
                        "the {examined} newest runs have applied nothing"
                    )));
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(LastApply::None);
            }
        }
    }

    /// What the latest attempt of a run that has changed objects has done.
    async fn done_by(
        &self,
        run: &Name,
        workspace: Option<&str>,
    ) -> Result<Option<(Attempt, Done)>, ClientError> {
        let attempts = self.client.attempts(&self.sibling(run)).await?.attempts;
        for files in attempts.iter().rev() {
            match self.done_in(run, files, workspace).await? {
                Done::Nothing => {}
                done => return Ok(Some((files.attempt, done))),
            }
        }
        Ok(None)
    }

    async fn has_changed(&self, run: &Name, attempt: Attempt) -> Result<bool, ClientError> {
        let ledger = self.ledger_of(run, attempt).await?;
        Ok(ledger.is_some_and(|ledger| ledger.has_resources()))
    }

    async fn done_in(
        &self,
        run: &Name,
        files: &AttemptFiles,
        workspace: Option<&str>,
    ) -> Result<Done, ClientError> {
        let has = |name: &str| files.artifacts.iter().any(|file| file.name == name);
        // A failed apply has a ledger of what it has changed.
        let is_applied =
            has(APPLIED) || has(LEDGER) && self.has_changed(run, files.attempt).await?;
        // An attempt that only planned has done nothing. One that found nothing to destroy has no plan.
        if !is_applied && (has(File::Plan(PlanFormat::Bin).name()) || !has(REPORT)) {
            return Ok(Done::Nothing);
        }
        let run = self.sibling(run);
        let ended = match self.client.get_file(&run, Some(files.attempt), &other(REPORT)).await? {
            Some(download) => {
                let json = download.bytes(MAX_REPORT).await?;
                serde_json::from_slice::<Ended>(&json).unwrap_or_default()
            }
            None => Ended::default(),
        };
        Ok(match () {
            () if ended.is_elsewhere(workspace) => Done::Nothing,
            () if ended.has_destroyed_all() => Done::DestroyedAll,
            () if is_applied => Done::Applied,
            () => Done::Nothing,
        })
    }
}
