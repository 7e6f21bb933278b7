//! Records of applies in the datastore: one beside the attempt (`applied.json`), and one under the digest of
//! the plan. Both are created once and never replaced.

use std::time::Duration;

use datastore_api::client::{Condition, Upload};
use datastore_api::{AppliedKey, Attempt, Client, ClientError, RunKey, Sha256, chain};
use reqwest::StatusCode;

use crate::report::AppliedRecord;
use crate::run::artifacts::{APPLIED, Artifacts, MAX_REPORT, REPORT, Server, other};

/// What became of the records of an apply.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Whether the datastore has at least one of them.
    pub(crate) is_known: bool,
    /// Why one of them is missing.
    pub(crate) lost: Option<String>,
}

impl Artifacts {
    /// Lists the attempts' files again, which another runner may have added to.
    pub(crate) async fn refreshed(&self) -> Result<Self, ClientError> {
        if self.server == Server::Burritos {
            return Ok(self.clone());
        }
        let stored = self.client.attempts(&self.run).await?.attempts;
        Ok(Self { stored, ..self.clone() })
    }

    /// The records of this run's applies, the latest attempt first. Records that older versions kept in
    /// `run.json` come last.
    pub(crate) async fn applied_records(&self) -> Result<Vec<AppliedRecord>, ClientError> {
        let (mut records, mut older) = (Vec::new(), Vec::new());
        for attempt in self.stored.iter().rev().map(|files| files.attempt) {
            if self.has(attempt, APPLIED) {
                let file = other(APPLIED);
                let download = self.client.get_file(&self.run, Some(attempt), &file).await?;
                if let Some(download) = download {
                    let json = download.bytes(MAX_REPORT).await?;
                    records
                        .push(AppliedRecord::parse(&json).map_err(|reason| unreadable(&reason))?);
                    continue;
                }
            }
            // A run of an older version that only found a record has written this, too.
            if self.has(attempt, REPORT) {
                let report = self.record_of(&self.run.run, attempt).await?;
                older.extend(
                    report.and_then(|old| AppliedRecord::of_report(&self.run, attempt, old)),
                );
            }
        }
        records.append(&mut older);
        Ok(records)
    }

    /// The record of an apply of this plan, by any run of the layer.
    pub(crate) async fn applied_record_of(
        &self,
        plan: Sha256,
    ) -> Result<Option<AppliedRecord>, ClientError> {
        if self.server != Server::Current {
            return Ok(None);
        }
        let json = self.client.get_applied(&applied_key(&self.run, plan)).await?;
        json.map(|json| AppliedRecord::parse(&json).map_err(|reason| unreadable(&reason)))
            .transpose()
    }

    /// Records an apply, once for the attempt and once for the plan. It gives up after a short time, because
    /// other steps follow.
    pub(crate) async fn record(&self, record: &AppliedRecord) -> Recorded {
        if self.server == Server::Burritos {
            return Recorded { is_known: false, lost: None };
        }
        let for_plan = async {
            if self.server != Server::Current {
                return Ok(());
            }
            store_for_plan(&self.client, &self.run, record).await
        };
        let of_attempt = store(&self.client, &self.run, self.attempt, record);
        let (attempt, plan) = tokio::join!(soon(of_attempt), soon(for_plan));
        let is_current = self.server == Server::Current;
        let by_plan = plan.is_ok() && is_current && record.plan_sha256().is_some();
        Recorded { is_known: attempt.is_ok() || by_plan, lost: attempt.err().or(plan.err()) }
    }
}

/// The key of the record of a plan of this layer.
pub(crate) fn applied_key(run: &RunKey, plan: Sha256) -> AppliedKey {
    AppliedKey { namespace: run.namespace.clone(), layer: run.layer.clone(), plan }
}

/// A record that exists already says the same.
fn ignore_existing(stored: Result<(), ClientError>) -> Result<(), ClientError> {
    match stored {
        Err(error) if error.status() == Some(StatusCode::PRECONDITION_FAILED) => Ok(()),
        stored => stored,
    }
}

fn unreadable(reason: &str) -> ClientError {
    let call = format!("the record of an apply, {APPLIED}");
    ClientError::Answer { call, reason: reason.to_owned() }
}

/// Stores the record of an attempt.
async fn store(
    client: &Client,
    run: &RunKey,
    attempt: Attempt,
    record: &AppliedRecord,
) -> Result<(), ClientError> {
    let (file, json) = (other(APPLIED), Upload::bytes(record.to_json()));
    ignore_existing(client.put_file(run, attempt, &file, &json, Condition::Create).await)
}

/// Stores the record under the digest of its plan, if it has one.
async fn store_for_plan(
    client: &Client,
    run: &RunKey,
    record: &AppliedRecord,
) -> Result<(), ClientError> {
    let Some(plan) = record.plan_sha256() else { return Ok(()) };
    let json = Upload::bytes(record.to_json());
    ignore_existing(client.put_applied(&applied_key(run, plan), &json).await)
}

/// Waits a short time for an upload that other steps wait for.
async fn soon(upload: impl Future<Output = Result<(), ClientError>>) -> Result<(), String> {
    const LIMIT: Duration = Duration::from_secs(10);
    match tokio::time::timeout(LIMIT, upload).await {
        Ok(stored) => stored.map_err(|error| chain(&error)),
        Err(_) => Err(format!("the datastore takes longer than {} s", LIMIT.as_secs())),
    }
}
