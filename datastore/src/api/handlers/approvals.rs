//! `/api/approvals`: offers of destructive changes, and their use.

use std::str::FromStr;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use datastore_api::approval::{ApprovalUse, Approvals, LIFETIME, MAX_LIFETIME, Offer, RunAttempt};
use datastore_api::{ClaimId, Sha256};

use crate::api::error::{ApiError, Cause};
use crate::api::handlers::runs::Limit;
use crate::api::handlers::state::caller;
use crate::api::openapi::{DescribeResponse, Operation};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::observe::context::RequestContext;
use crate::store::{Asker, LayerKey, Store};

pub(crate) struct MakeOffer {
    layer: LayerKey,
    set: Sha256,
    run: RunAttempt,
    lifetime: Lifetime,
}

pub(crate) struct UseApproval {
    pub(crate) layer: LayerKey,
    approval: Sha256,
    pub(crate) set: Sha256,
    claim: ClaimId,
    run: RunAttempt,
}

pub(crate) struct List {
    layer: LayerKey,
    limit: Limit,
}

/// How long an offer is valid, in seconds.
struct Lifetime(u64);

/// The approval belongs to the caller's claim.
pub(crate) struct Granted(ApprovalUse);

pub(crate) async fn offer(
    State(store): State<Store>,
    Query(MakeOffer { layer, set, run, lifetime }): Query<MakeOffer>,
    Extension(context): Extension<RequestContext>,
) -> Result<Json<Offer>, ApiError> {
    let asker = Asker { caller: caller(&context), run };
    let lifetime = Duration::from_secs(lifetime.0);
    let offer = store.offer_approval(&layer, set, &asker, lifetime).await;
    offer.map(Json).map_err(Route::OfferApproval.error())
}

pub(crate) async fn claim(
    State(store): State<Store>,
    Query(UseApproval { layer, approval, set, claim, run }): Query<UseApproval>,
    Extension(context): Extension<RequestContext>,
) -> Result<Granted, ApiError> {
    let asker = Asker { caller: caller(&context), run };
    let used = store.claim_approval(&layer, approval, set, &claim, &asker).await;
    used.map(Granted).map_err(Route::ClaimApproval.error())
}

pub(crate) async fn list(
    State(store): State<Store>,
    Query(List { layer, limit }): Query<List>,
) -> Result<Json<Approvals>, ApiError> {
    let approvals = store.approvals(&layer, limit.0).await;
    approvals.map(Json).map_err(Route::Approvals.error())
}

impl axum::response::IntoResponse for Granted {
    fn into_response(self) -> axum::response::Response {
        Json(self.0).into_response()
    }
}

impl DescribeResponse for Granted {
    fn describe(operation: &mut Operation) {
        Json::<ApprovalUse>::describe(operation);
        operation.answer("404", "No offer with this digest is stored.");
        operation.answer("409", "It was used, or it approves another set of changes.");
        operation.answer("410", "It has expired.");
    }
}

fn layer(params: &Params) -> Result<LayerKey, Cause> {
    Ok(LayerKey { namespace: params.required("namespace")?, layer: params.required("layer")? })
}

impl FromParams for MakeOffer {
    const ROUTE: Route = Route::OfferApproval;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self {
            layer: layer(params)?,
            set: params.required("set")?,
            run: params.required("run")?,
            lifetime: params.optional("lifetime_seconds")?.unwrap_or(Lifetime(LIFETIME)),
        })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.layer.namespace, Kind::Artifact, Verb::Write)
    }
}

impl FromParams for UseApproval {
    const ROUTE: Route = Route::ClaimApproval;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self {
            layer: layer(params)?,
            approval: params.required("approval")?,
            set: params.required("set")?,
            claim: params.required("claim")?,
            run: params.required("run")?,
        })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.layer.namespace, Kind::Artifact, Verb::Write)
    }
}

impl FromParams for List {
    const ROUTE: Route = Route::Approvals;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let layer = layer(params)?;
        Ok(Self { layer, limit: params.optional("limit")?.unwrap_or(Limit(50)) })
    }

    fn access(&self) -> Access<'_> {
        Access::list(&self.layer.namespace)
    }
}

impl FromStr for Lifetime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = text.parse().ok().filter(|seconds| (1..=MAX_LIFETIME).contains(seconds));
        seconds.map(Self).ok_or("is not a number of seconds from 1 to 2592000 (30 days)")
    }
}
