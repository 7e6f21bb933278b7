//! Records of applies in the datastore: one beside the attempt (`applied.json`), and those of the layer, under the digest of
//! the plan and under that of the order's key. All are created once and never replaced.

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

    /// Whether the datastore keeps records of applies by layer.
    pub(crate) fn keeps_layer_records(&self) -> bool {
        self.server == Server::Current
    }

    /// The record of an apply by any run of the layer: of the plan with this digest, or of the order whose key has it.
    pub(crate) async fn applied_record_of(
        &self,
        digest: Sha256,
    ) -> Result<Option<AppliedRecord>, ClientError> {
        if self.server != Server::Current {
            return Ok(None);
        }
        let json = self.client.get_applied(&applied_key(&self.run, digest)).await?;
        json.map(|json| AppliedRecord::parse(&json).map_err(|reason| unreadable(&reason)))
            .transpose()
    }

    /// Records an apply under the key of an order alone.
    pub(crate) async fn record_under_key(&self, record: &AppliedRecord) -> Result<(), String> {
        soon(store_under_key(&self.client, &self.run, record.clone())).await
    }

    /// Records an apply, for the attempt and for the layer. It gives up after a short time, because
    /// other steps follow.
    pub(crate) async fn record(&self, record: &AppliedRecord) -> Recorded {
        if self.server == Server::Burritos {
            return Recorded { is_known: false, lost: None };
        }
        let for_layer = async {
            if self.server != Server::Current {
                return Ok(());
            }
            store_for_layer(&self.client, &self.run, record).await
        };
        let of_attempt = store(&self.client, &self.run, self.attempt, record);
        let (attempt, layer) = tokio::join!(soon(of_attempt), soon(for_layer));
        let is_current = self.server == Server::Current;
        let by_layer = layer.is_ok() && is_current && record.digests().next().is_some();
        Recorded { is_known: attempt.is_ok() || by_layer, lost: attempt.err().or(layer.err()) }
    }
}

/// The key of a record of this layer: by the digest of a plan, or by that of an order's key.
pub(crate) fn applied_key(run: &RunKey, digest: Sha256) -> AppliedKey {
    AppliedKey { namespace: run.namespace.clone(), layer: run.layer.clone(), plan: digest }
}

/// The record that is stored already if a new one was refused with 412, and that refusal.
pub(crate) async fn stored_before(
    put: Result<(), ClientError>,
    read: impl Future<Output = Result<Option<Vec<u8>>, ClientError>>,
) -> Result<Option<(AppliedRecord, ClientError)>, ClientError> {
    let refusal = match put {
        Err(error) if error.status() == Some(StatusCode::PRECONDITION_FAILED) => error,
        put => return put.map(|()| None),
    };
    // Without one the 412 is that of something else, and nothing is recorded.
    let Some(json) = read.await? else { return Err(refusal) };
    let record = AppliedRecord::parse(&json).map_err(|reason| unreadable(&reason))?;
    Ok(Some((record, refusal)))
}

fn unreadable(reason: &str) -> ClientError {
    let call = format!("the record of an apply, {APPLIED}");
    ClientError::Answer { call, reason: reason.to_owned() }
}

/// Stores the record of an attempt. A stored one that records the same apply is as good; one of another apply says nothing
/// of this one.
async fn store(
    client: &Client,
    run: &RunKey,
    attempt: Attempt,
    record: &AppliedRecord,
) -> Result<(), ClientError> {
    let (file, json) = (other(APPLIED), Upload::bytes(record.to_json()));
    let put = client.put_file(run, attempt, &file, &json, Condition::Create).await;
    let read = async {
        match client.get_file(run, Some(attempt), &file).await? {
            Some(download) => Ok(Some(download.bytes(MAX_REPORT).await?.into())),
            None => Ok(None),
        }
    };
    match stored_before(put, Box::pin(read)).await? {
        Some((theirs, refusal)) if !theirs.is_same_apply(record) => Err(refusal),
        _ => Ok(()),
    }
}

/// Stores the record under the digest of its plan, and under that of its order's key.
async fn store_for_layer(
    client: &Client,
    run: &RunKey,
    record: &AppliedRecord,
) -> Result<(), ClientError> {
    if let Some(plan) = record.plan_sha256() {
        let key = applied_key(run, plan);
        let put = client.put_applied(&key, &Upload::bytes(record.to_json())).await;
        // That of any apply of this plan is as good, also of another run: what it says is that the plan was applied.
        match stored_before(put, Box::pin(client.get_applied(&key))).await? {
            Some((theirs, refusal)) if !theirs.is_of(plan) => return Err(refusal),
            _ => {}
        }
    }
    store_under_key(client, run, record.clone()).await
}

/// Stores the record under its order's key. A runner on another machine may have recorded another apply there since the
/// records were read: then under the next key that is free.
pub(crate) async fn store_under_key(
    client: &Client,
    run: &RunKey,
    mut record: AppliedRecord,
) -> Result<(), ClientError> {
    while let Some(order_key) = record.order_key {
        let key = applied_key(run, order_key.record_sha256());
        let put = client.put_applied(&key, &Upload::bytes(record.to_json())).await;
        match stored_before(put, Box::pin(client.get_applied(&key))).await? {
            Some((theirs, _)) if !theirs.is_same_apply(&record) => {
                record.order_key = Some(order_key.next());
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Waits a short time for an upload that other steps wait for.
async fn soon(upload: impl Future<Output = Result<(), ClientError>>) -> Result<(), String> {
    const LIMIT: Duration = Duration::from_secs(10);
    match tokio::time::timeout(LIMIT, upload).await {
        Ok(stored) => stored.map_err(|error| chain(&error)),
        Err(_) => Err(format!("the datastore takes longer than {} s", LIMIT.as_secs())),
    }
}
