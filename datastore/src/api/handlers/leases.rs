//! `/api/leases` and `/api/tools`: who works on a layer, and with which tool.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use datastore_api::state::{GrantedLease, Lease, LeaseRequest, Migration, ToolRecord};
use datastore_api::{ClaimId, Name};

use crate::api::body::JsonBody;
use crate::api::error::{ApiError, Cause};
use crate::api::handlers::state::caller;
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::observe::context::RequestContext;
use crate::store::{LayerKey, StateError, Store};

/// The longest text about a holder or a tool, in bytes.
const MAX_TEXT: usize = 512;

pub(crate) struct Get(LayerKey);

pub(crate) struct Take {
    layer: LayerKey,
    id: ClaimId,
    workspace: Option<Name>,
}

pub(crate) struct Renew {
    layer: LayerKey,
    id: ClaimId,
}

pub(crate) struct Release {
    layer: LayerKey,
    id: ClaimId,
}

pub(crate) struct GetTool(LayerKey);

pub(crate) struct PutTool(LayerKey);

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Get(layer)): Query<Get>,
) -> Result<Json<Lease>, ApiError> {
    let lease = async {
        let lease = store.layer_lease(&layer).await?;
        lease.map(Json).ok_or(StateError::NoState("lease of this layer"))
    };
    lease.await.map_err(Route::GetLease.error())
}

pub(crate) async fn take(
    State(store): State<Store>,
    Query(Take { layer, id, workspace }): Query<Take>,
    Extension(context): Extension<RequestContext>,
    body: JsonBody<LeaseRequest>,
) -> Result<Json<GrantedLease>, ApiError> {
    let taken = async {
        let request = body.parse()?;
        let LeaseRequest { holder, host, run } = &request;
        check_texts(&[holder, host, run.as_deref().unwrap_or_default()])?;
        // The credential gives no more than what the caller may do itself.
        let may = |verb| {
            let access = Access::of(&layer.namespace, Kind::State, verb);
            context.caller().is_some_and(|caller| caller.may(access))
        };
        let workspace = workspace.filter(|_| may(Verb::Read) && may(Verb::Write));
        let caller = caller(&context);
        let lease = store.take_lease(&layer, workspace.as_ref(), &id, &request, caller).await?;
        Ok::<_, Cause>(Json(lease))
    };
    taken.await.map_err(Route::TakeLease.error())
}

pub(crate) async fn renew(
    State(store): State<Store>,
    Query(Renew { layer, id }): Query<Renew>,
) -> Result<Json<GrantedLease>, ApiError> {
    store.renew_lease(&layer, &id).await.map(Json).map_err(Route::RenewLease.error())
}

pub(crate) async fn release(
    State(store): State<Store>,
    Query(Release { layer, id }): Query<Release>,
) -> Result<Response, ApiError> {
    let released = store.release_lease(&layer, &id).await;
    released.map(|()| StatusCode::OK.into_response()).map_err(Route::ReleaseLease.error())
}

pub(crate) async fn get_tool(
    State(store): State<Store>,
    Query(GetTool(layer)): Query<GetTool>,
) -> Result<Json<ToolRecord>, ApiError> {
    let tool = async {
        let tool = store.layer_tool(&layer).await?;
        tool.map(Json).ok_or(StateError::NoState("tool recorded for this layer"))
    };
    tool.await.map_err(Route::GetTool.error())
}

pub(crate) async fn put_tool(
    State(store): State<Store>,
    Query(PutTool(layer)): Query<PutTool>,
    body: JsonBody<ToolRecord>,
) -> Result<Response, ApiError> {
    let stored = async {
        let tool = body.parse()?;
        check_tools(&tool)?;
        store.put_layer_tool(&layer, tool).await?;
        Ok::<_, Cause>(StatusCode::OK.into_response())
    };
    stored.await.map_err(Route::PutTool.error())
}

fn check_tools(ToolRecord { tool, migrations }: &ToolRecord) -> Result<(), Cause> {
    check_texts(&[&tool.name, &tool.version])?;
    for (workspace, Migration { from, to, backup, started, .. }) in migrations {
        let lineage = backup.as_ref().map_or("", |backup| &backup.lineage);
        check_texts(&[workspace, &from.name, &from.version])?;
        check_texts(&[&to.name, &to.version, started, lineage])?;
    }
    Ok(())
}

fn check_texts(texts: &[&str]) -> Result<(), Cause> {
    if texts.iter().any(|text| text.len() > MAX_TEXT || text.contains(char::is_control)) {
        let reason = "a text is longer than 512 bytes, or has control characters";
        return Err(Cause::Body(reason.to_owned()));
    }
    Ok(())
}

fn layer(params: &Params) -> Result<LayerKey, Cause> {
    Ok(LayerKey { namespace: params.required("namespace")?, layer: params.required("layer")? })
}

/// Parameters of a layer: their route, how they are parsed, and what they need.
macro_rules! layer_params {
    ($($type:ident: $route:ident, $verb:ident, $params:ident => $parse:expr, $layer:tt;)*) => { $(
        impl FromParams for $type {
            const ROUTE: Route = Route::$route;

            fn from_params($params: &Params) -> Result<Self, Cause> {
                Ok($parse)
            }

            fn access(&self) -> Access<'_> {
                Access::of(&self.$layer.namespace, Kind::Lease, Verb::$verb)
            }
        }
    )* };
}

layer_params! {
    Get: GetLease, Read, params => Self(layer(params)?), 0;
    Take: TakeLease, Write, params => Self {
        layer: layer(params)?,
        id: params.required("id")?,
        workspace: params.optional("workspace")?,
    }, layer;
    Renew: RenewLease, Write, params => Self { layer: layer(params)?, id: params.required("id")? }, layer;
    Release: ReleaseLease, Write, params => Self { layer: layer(params)?, id: params.required("id")? }, layer;
    GetTool: GetTool, Read, params => Self(layer(params)?), 0;
    PutTool: PutTool, Write, params => Self(layer(params)?), 0;
}
