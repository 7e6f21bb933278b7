//! Approvals of destructive changes. Datastores of Burrito and older ones of Plancha have none.

use reqwest::{Method, StatusCode};

use super::call::Call;
use super::error::ClientError;
use super::http::Client;
use super::silence::Progress;
use crate::approval::{ApprovalUse, Approvals, Offer, RefusedApproval, RunAttempt};
use crate::digest::Sha256;
use crate::name::{ClaimId, Name};

/// The maximum size of an answer, in bytes.
const LIMIT: usize = 1 << 20;

/// The answer to a claim of an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// It is used up by this claim, perhaps since an earlier request.
    Granted {
        /// The caller, as the datastore knows it.
        by: Option<String>,
        /// When, RFC 3339 in UTC.
        at: String,
    },
    /// No offer with this digest is stored.
    Unknown,
    /// It approves another set of changes.
    OtherSet {
        /// The digest of that set.
        set: Sha256,
    },
    /// Another claim has used it up.
    Used {
        /// The run, `RUN/ATTEMPT`.
        run: String,
        /// The caller, as the datastore knows it.
        by: Option<String>,
        /// When, RFC 3339 in UTC.
        at: String,
    },
    /// It has expired.
    Expired {
        /// When, RFC 3339 in UTC.
        at: String,
    },
    /// This datastore has no approvals: it is an older one, or Burrito's.
    Unsupported,
}

impl Client {
    /// Offers a set of destructive changes for an approval, and returns the open offer for it. Repeating it returns the same
    /// one, with its first lifetime; without a lifetime, that is 24 hours. [`ClientError::Unsupported`]: this datastore has no approvals.
    pub async fn offer_approval(
        &self,
        namespace: &Name,
        layer: &Name,
        set: Sha256,
        run: &RunAttempt,
        lifetime_seconds: Option<u64>,
    ) -> Result<Offer, ClientError> {
        let mut query = layer_query(namespace, layer);
        query.extend([("set", set.to_string()), ("run", run.to_string())]);
        query.extend(lifetime_seconds.map(|seconds| ("lifetime_seconds", seconds.to_string())));
        let call = Call { method: Method::POST, path: "/api/approvals".into(), query };
        self.json(&call).await
    }

    /// Uses an approval up, for this set of changes and this run. The same claim succeeds again, so a lost answer does no
    /// harm.
    pub async fn claim_approval(
        &self,
        namespace: &Name,
        layer: &Name,
        approval: Sha256,
        set: Sha256,
        claim: &ClaimId,
        run: &RunAttempt,
    ) -> Result<ApprovalAnswer, ClientError> {
        let mut query = layer_query(namespace, layer);
        query.extend([("approval", approval.to_string()), ("set", set.to_string())]);
        query.extend([("claim", claim.to_string()), ("run", run.to_string())]);
        let call = Call { method: Method::POST, path: "/api/approvals/claim".into(), query };
        let progress = Progress::default();
        let answer = self
            .retrying(async || {
                let answer = self.try_claim(&call, progress.another_try()).await;
                self.or_unsupported(answer).await
            })
            .await;
        match answer {
            Err(ClientError::Unsupported { .. }) => Ok(ApprovalAnswer::Unsupported),
            answer => answer,
        }
    }

    async fn try_claim(
        &self,
        call: &Call,
        progress: Progress,
    ) -> Result<ApprovalAnswer, ClientError> {
        let response = self.exchange(call, self.request(call)?, &progress).await?;
        let status = response.status();
        let may_be_refusal =
            matches!(status, StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::GONE);
        if !status.is_success() && !may_be_refusal {
            return Err(self.refused(call, response, &progress).await);
        }
        if may_be_refusal && !is_problem(&response) {
            return Err(self.refused(call, response, &progress).await);
        }
        let body = self.download(self.name(call), response, progress)?.bytes(LIMIT).await?;
        let invalid = |reason: String| ClientError::Answer { call: self.name(call), reason };
        if status.is_success() {
            let ApprovalUse { approved_by, at, .. } =
                serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
            return Ok(ApprovalAnswer::Granted { by: approved_by, at });
        }
        let refusal = serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
        answer_of(status, refusal)
            .ok_or_else(|| invalid(format!("{status} without the reason of a refused approval")))
    }

    /// The offers of a layer, newest first.
    pub async fn approvals(
        &self,
        namespace: &Name,
        layer: &Name,
    ) -> Result<Approvals, ClientError> {
        let query = layer_query(namespace, layer);
        let call = Call { method: Method::GET, path: "/api/approvals".into(), query };
        self.json(&call).await
    }
}

/// What a refusal says; `None` if it does not say what its status does.
fn answer_of(status: StatusCode, refusal: RefusedApproval) -> Option<ApprovalAnswer> {
    match (status, refusal) {
        (StatusCode::NOT_FOUND, RefusedApproval { unknown: true, .. }) => {
            Some(ApprovalAnswer::Unknown)
        }
        (StatusCode::CONFLICT, RefusedApproval { used: Some(used), .. }) => {
            let ApprovalUse { approved_by, at, run } = used;
            Some(ApprovalAnswer::Used { run, by: approved_by, at })
        }
        (StatusCode::CONFLICT, RefusedApproval { set: Some(set), .. }) => {
            Some(ApprovalAnswer::OtherSet { set })
        }
        (StatusCode::GONE, RefusedApproval { expired: Some(at), .. }) => {
            Some(ApprovalAnswer::Expired { at })
        }
        _ => None,
    }
}

fn is_problem(response: &reqwest::Response) -> bool {
    let header = response.headers().get(reqwest::header::CONTENT_TYPE);
    header.is_some_and(|value| value.as_bytes() == b"application/problem+json")
}

fn layer_query(namespace: &Name, layer: &Name) -> Vec<(&'static str, String)> {
    vec![("namespace", namespace.to_string()), ("layer", layer.to_string())]
}
