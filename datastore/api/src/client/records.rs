//! Attempts and their claims, and records of applied plans. Burrito's own datastore has none of these, and is
//! recognized here.

use reqwest::{Method, StatusCode};

use super::call::{Call, run_query};
use super::error::ClientError;
use super::http::{Client, Condition};
use super::sender::Sender;
use super::silence::Progress;
use super::transfer::Upload;
use crate::key::{AppliedKey, Attempt, Attempts, RunKey};
use crate::name::ClaimId;

/// The maximum size of an answer, in bytes.
const LIMIT: usize = 16 << 20;
/// Burrito's answer on a route that it does not have.
const NO_ROUTE: &str = "Not Found";
/// Burrito's answer to a request for a plan without parameters.
const NO_PARAMETERS: &str = "missing query parameters";

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The attempt belongs to this claim.
    Ours,
    /// Another run has claimed it.
    Another,
    /// This datastore does not support claims: it is an older one, or Burrito's.
    Unsupported,
}

impl Client {
    /// The attempts of a run and their files; an unknown run has none.
    pub async fn attempts(&self, run: &RunKey) -> Result<Attempts, ClientError> {
        let attempts = self.attempts_unless_burritos(run).await?;
        attempts.ok_or_else(|| ClientError::Refused {
            call: self.name(&attempts_call(Method::GET, run)),
            status: StatusCode::NOT_FOUND,
            message: "this is Burrito's own datastore, and not Plancha's".to_owned(),
            retry_after: None,
            sender: Sender::Datastore,
        })
    }

    /// The attempts of a run; `None` where the datastore is Burrito's own.
    pub async fn attempts_unless_burritos(
        &self,
        run: &RunKey,
    ) -> Result<Option<Attempts>, ClientError> {
        let call = attempts_call(Method::GET, run);
        let progress = Progress::default();
        let body = self
            .retrying(async || match self.open_try(&call, &progress).await {
                Ok(Some(download)) => download.bytes(LIMIT).await.map(Some),
                Err(error) if error.is_unknown_route() && self.is_without_records().await? => {
                    Ok(None)
                }
                Ok(None) => Err(ClientError::Answer {
                    call: self.name(&call),
                    reason: "404 for a listing".to_owned(),
                }),
                Err(error) => Err(error),
            })
            .await?;
        let Some(body) = body else { return Ok(None) };
        let attempts = serde_json::from_slice(&body);
        attempts.map(Some).map_err(|error| ClientError::Answer {
            call: self.name(&call),
            reason: error.to_string(),
        })
    }

    /// Claims an attempt. The same claim succeeds again, so a lost answer does no harm.
    pub async fn claim(
        &self,
        run: &RunKey,
        attempt: Attempt,
        claim: &ClaimId,
    ) -> Result<Claimed, ClientError> {
        let mut call = attempts_call(Method::POST, run);
        call.query.push(("attempt", attempt.to_string()));
        call.query.push(("claim", claim.to_string()));
        let progress = Progress::default();
        self.retrying(async || {
            let progress = progress.another_try();
            match self.send(&call, self.request(&call)?, &progress).await {
                Ok(response) => {
                    self.check_empty(&call, response, &progress).await.map(|()| Claimed::Ours)
                }
                // Only a datastore knows of claims: another program's 409 says nothing of them.
                Err(ClientError::Refused {
                    status: StatusCode::CONFLICT,
                    sender: Sender::Plancha | Sender::Datastore,
                    ..
                }) => Ok(Claimed::Another),
                Err(error) if error.is_unknown_route() && self.is_without_records().await? => {
                    Ok(Claimed::Unsupported)
                }
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Records that a plan has been applied. An existing record is never replaced: 412, unless it has the same bytes.
    pub async fn put_applied(&self, key: &AppliedKey, record: &Upload) -> Result<(), ClientError> {
        self.put(&applied_call(Method::PUT, key), record, Condition::Create).await
    }

    /// The record that a plan has been applied. `None`: it has not been applied.
    pub async fn get_applied(&self, key: &AppliedKey) -> Result<Option<Vec<u8>>, ClientError> {
        let call = applied_call(Method::GET, key);
        let progress = Progress::default();
        self.retrying(async || match self.open_try(&call, &progress).await? {
            Some(download) => Ok(Some(download.bytes(LIMIT).await?.into())),
            None => Ok(None),
        })
        .await
    }

    /// The same result, with [`ClientError::Unsupported`] where the datastore has no such route. A proxy may answer alike:
    /// where no header names Plancha, another request shows that a datastore answers.
    pub(super) async fn or_unsupported<T>(
        &self,
        result: Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        match result {
            Err(error @ ClientError::Refused { .. }) if error.lacks_route() => {
                let is_named = matches!(
                    error,
                    ClientError::Refused { sender: Sender::Plancha, .. }
                        | ClientError::Refused { status: StatusCode::NOT_IMPLEMENTED, .. }
                );
                match error {
                    ClientError::Refused { call, .. }
                        if is_named || self.is_without_records().await? =>
                    {
                        Err(ClientError::Unsupported { call })
                    }
                    error => Err(error),
                }
            }
            result => result,
        }
    }

    /// Whether a server without one of our routes is Burrito's datastore, or an older one of Plancha's. Any other
    /// program, mostly a proxy, answers this request differently.
    async fn is_without_records(&self) -> Result<bool, ClientError> {
        let call = Call { method: Method::GET, path: "/api/plans".into(), query: Vec::new() };
        match self.send(&call, self.request(&call)?, &Progress::of_answered()).await {
            Err(ClientError::Refused {
                status: StatusCode::BAD_REQUEST, message, sender, ..
            }) => Ok(sender != Sender::Plancha && message == NO_PARAMETERS),
            Err(error) if error.is_transient() => Err(error),
            _ => Ok(false),
        }
    }
}

impl ClientError {
    /// Whether this is the answer of Burrito's framework on an unknown route.
    fn is_unknown_route(&self) -> bool {
        match self {
            Self::Refused { status: StatusCode::NOT_FOUND, sender, message, .. } => {
                *sender == Sender::Unknown && message == NO_ROUTE
            }
            _ => false,
        }
    }
}

fn attempts_call(method: Method, run: &RunKey) -> Call {
    Call { method, path: "/api/attempts".into(), query: run_query(run) }
}

fn applied_call(method: Method, key: &AppliedKey) -> Call {
    let AppliedKey { namespace, layer, plan } = key;
    let query = vec![
        ("namespace", namespace.to_string()),
        ("layer", layer.to_string()),
        ("plan", plan.to_string()),
    ];
    Call { method, path: "/api/applied".into(), query }
}
