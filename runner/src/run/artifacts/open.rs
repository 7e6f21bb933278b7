//! Which attempt a run stores its files under: it is claimed in the datastore, so that two runs never share one.

use std::hash::{BuildHasher as _, RandomState};

use datastore_api::client::Claimed;
use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, ClaimId, Client, ClientError, File, PlanFormat, RunKey};

use crate::run::artifacts::attempt::{OpenError, after, next_free};
use crate::run::artifacts::{APPLIED, Artifacts, REPORT, Server};

/// So many numbers are tried. Those of the listed claims are not among them, so each one is that of a run that begins now.
const TRIES: u32 = 1000;

/// Which attempt a run asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptRequest {
    /// Its number, if it was named. Without one the run takes the next free number.
    pub(crate) number: Option<Attempt>,
    /// The lowest number that it may take.
    pub(crate) lowest: Attempt,
    /// Whether Burrito's controllers decided the number. The run then uses it even if it has files already.
    pub(crate) is_fixed: bool,
    /// Whether the run's name has just been generated, so that no other run can have it.
    pub(crate) is_new_run: bool,
}

impl Artifacts {
    /// Lists the run's attempts and claims one of them. A datastore that cannot be reached, or refuses the
    /// token, is found now and not after hours of work.
    pub(crate) async fn open(
        client: Client,
        run: RunKey,
        wanted: AttemptRequest,
    ) -> Result<Self, OpenError> {
        let (stored, claimed) = tokio::try_join!(
            list_attempts(&client, &run, wanted.is_fixed),
            claim_early(&client, &run, wanted)
        )?;
        let is_burritos = stored.is_none();
        let stored = stored.unwrap_or_default();
        // The list may show the early claim already.
        let is_claimed = matches!(claimed, Some(Claimed::Ours));
        let attempt = match wanted.number {
            Some(named) => named,
            None if is_claimed => wanted.lowest,
            None => next_free(&run.run, &stored)?.max(wanted.lowest),
        };
        let mut artifacts = Self {
            client,
            run,
            attempt,
            stored,
            kept: false,
            attempt_is_fixed: wanted.is_fixed,
            server: if is_burritos { Server::Burritos } else { Server::Current },
            live: None,
        };
        if is_burritos {
            tracing::warn!(
                "the datastore is not Plancha's: without its records a retry cannot know of an \
                 earlier apply"
            );
            return Ok(artifacts);
        }
        let has_files = artifacts.files(attempt).is_some();
        if has_files && !wanted.is_fixed {
            return Err(artifacts.taken("is already stored"));
        }
        if has_files {
            artifacts.kept = artifacts.is_finished().await?;
        }
        artifacts.claim_wanted(wanted, claimed).await?;
        Ok(artifacts)
    }

    /// Claims the attempt that was named, or the next free one. `claimed` is the answer to an early claim of the
    /// lowest number.
    async fn claim_wanted(
        &mut self,
        wanted: AttemptRequest,
        claimed: Option<Claimed>,
    ) -> Result<(), OpenError> {
        if wanted.number.is_some() {
            // The controllers start one pod after the other: an earlier claim is of a pod that has ended.
            if !self.claim().await? && !wanted.is_fixed {
                return Err(self.taken("is claimed by another run, which works now or was killed"));
            }
            return Ok(());
        }
        let claimed = claimed.filter(|_| self.attempt == wanted.lowest);
        if !claimed.is_some_and(|claimed| self.is_ours(claimed)) {
            self.claim_free().await?;
        }
        Ok(())
    }

    /// The error for an attempt that another run uses.
    fn taken(&self, why: &'static str) -> OpenError {
        OpenError::Taken { run: self.run.run.clone(), attempt: self.attempt, why }
    }

    /// Claims this attempt; `false` if another run holds it.
    async fn claim(&mut self) -> Result<bool, ClientError> {
        let claimed = self.client.claim(&self.run, self.attempt, &random_id()).await?;
        Ok(self.is_ours(claimed))
    }

    fn is_ours(&mut self, claimed: Claimed) -> bool {
        if claimed == Claimed::Unsupported {
            tracing::warn!("the datastore is older than this runner, and cannot claim attempts");
            self.server = Server::Older;
        }
        claimed != Claimed::Another
    }

    /// Claims this attempt, or the next one that is free.
    pub(super) async fn claim_free(&mut self) -> Result<(), OpenError> {
        for _ in 1..TRIES {
            if self.claim().await? {
                return Ok(());
            }
            self.attempt = after(&self.run.run, self.attempt)?;
        }
        if self.claim().await? {
            return Ok(());
        }
        Err(OpenError::AllClaimed { run: self.run.run.clone(), tries: TRIES, last: self.attempt })
    }

    /// Whether this attempt holds a finished plan or an apply.
    async fn is_finished(&self) -> Result<bool, ClientError> {
        if self.has(self.attempt, APPLIED) {
            return Ok(true);
        }
        if !self.has(self.attempt, REPORT) {
            return Ok(false);
        }
        let record = self.record_of(&self.run.run, self.attempt).await?;
        let is_plan = self.has(self.attempt, File::Plan(PlanFormat::Bin).name());
        Ok(record.is_some_and(|record| record.applied.is_some() || is_plan && record.is_finished()))
    }
}

/// The attempts that have files. `None`: the datastore is Burrito's, which is accepted only in its pods.
async fn list_attempts(
    client: &Client,
    run: &RunKey,
    may_be_burritos: bool,
) -> Result<Option<Vec<AttemptFiles>>, ClientError> {
    let listed = if may_be_burritos {
        client.attempts_unless_burritos(run).await?
    } else {
        Some(client.attempts(run).await?)
    };
    Ok(listed.map(|listed| listed.attempts))
}

/// Claims the lowest attempt while the attempts are listed, where only one answer is possible: the run is new.
async fn claim_early(
    client: &Client,
    run: &RunKey,
    wanted: AttemptRequest,
) -> Result<Option<Claimed>, ClientError> {
    if !wanted.is_new_run || wanted.number.is_some() || wanted.is_fixed {
        return Ok(None);
    }
    client.claim(run, wanted.lowest, &random_id()).await.map(Some)
}

/// An id that no other run has.
pub(crate) fn random_id() -> ClaimId {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random()).parse().expect("hex digits are a valid id")
}
