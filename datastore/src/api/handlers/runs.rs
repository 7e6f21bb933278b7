//! `/api/runs` and `/api/attempts`: the runs of a layer, and the attempts of a run.

use std::str::FromStr;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use datastore_api::key::{Attempts, Runs};
use datastore_api::{Attempt, ClaimId, Name, RunKey};

use crate::api::error::{ApiError, Cause};
use crate::api::openapi::{DescribeResponse, Operation};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::store::Store;

pub(crate) struct Page {
    namespace: Name,
    layer: Name,
    limit: Limit,
    cursor: Option<String>,
}

/// Maximum of runs on a page.
pub(crate) struct Limit(pub(crate) usize);

pub(crate) async fn runs(
    State(store): State<Store>,
    Query(Page { namespace, layer, limit, cursor }): Query<Page>,
) -> Result<Json<Runs>, ApiError> {
    let runs = store.runs(&namespace, &layer, limit.0, cursor.as_deref()).await;
    runs.map(Json).map_err(Route::Runs.error())
}

/// The parameters that claim an attempt.
pub(crate) struct ClaimAttempt {
    run: RunKey,
    attempt: Attempt,
    claim: ClaimId,
}

pub(crate) async fn claim(
    State(store): State<Store>,
    Query(ClaimAttempt { run, attempt, claim }): Query<ClaimAttempt>,
) -> Result<Claimed, ApiError> {
    store.claim(&run, attempt, &claim).await.map_err(Route::ClaimAttempt.error())?;
    Ok(Claimed)
}

pub(crate) async fn attempts(
    State(store): State<Store>,
    Query(run): Query<RunKey>,
) -> Result<Json<Attempts>, ApiError> {
    store.attempts(&run).await.map(Json).map_err(Route::Attempts.error())
}

impl Params<'_> {
    pub(crate) fn run(&self) -> Result<RunKey, Cause> {
        Ok(RunKey {
            namespace: self.required("namespace")?,
            layer: self.required("layer")?,
            run: self.required("run")?,
        })
    }
}

/// The attempt belongs to the caller's claim.
pub(crate) struct Claimed;

impl IntoResponse for Claimed {
    fn into_response(self) -> Response {
        StatusCode::OK.into_response()
    }
}

impl DescribeResponse for Claimed {
    fn describe(operation: &mut Operation) {
        operation
            .answer("200", "The attempt belongs to this claim, perhaps since an earlier request.");
        operation.answer("409", "The attempt belongs to another claim.");
    }
}

impl FromParams for ClaimAttempt {
    const ROUTE: Route = Route::ClaimAttempt;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.required("attempt")?);
        Ok(Self { run, attempt, claim: params.required("claim")? })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.run.namespace, Kind::Artifact, Verb::Write)
    }
}

impl FromParams for RunKey {
    const ROUTE: Route = Route::Attempts;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        params.run()
    }

    fn access(&self) -> Access<'_> {
        Access::list(&self.namespace)
    }
}

impl FromParams for Page {
    const ROUTE: Route = Route::Runs;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self {
            namespace: params.required("namespace")?,
            layer: params.required("layer")?,
            limit: params.optional("limit")?.unwrap_or(Limit(50)),
            cursor: params.optional("cursor")?,
        })
    }

    fn access(&self) -> Access<'_> {
        Access::list(&self.namespace)
    }
}

impl FromStr for Limit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let limit = text.parse().ok().filter(|limit| (1..=1000).contains(limit));
        limit.map(Self).ok_or("is not a number from 1 to 1000")
    }
}
