//! `/api/states`: the versions of a state, snapshots, and what an operator does with them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use datastore_api::state::{StateKind, States};
use datastore_api::{StateKey, VersionId};

use crate::api::error::{ApiError, Cause};
use crate::api::handlers::runs::Limit;
use crate::api::handlers::state::{announced, caller, origin, state_key};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::Upload;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::observe::context::RequestContext;
use crate::store::{Origin, Store};

pub(crate) struct List {
    key: StateKey,
    kind: Option<KindOfState>,
    limit: Limit,
    cursor: Option<VersionId>,
}

/// Which versions are listed.
struct KindOfState(StateKind);

pub(crate) struct Snapshot {
    key: StateKey,
    origin: Origin,
}

pub(crate) struct Restore {
    key: StateKey,
    version: VersionId,
}

pub(crate) struct RemoveLock {
    key: StateKey,
    id: String,
}

pub(crate) struct Undelete(StateKey);

pub(crate) async fn list(
    State(store): State<Store>,
    Query(List { key, kind, limit, cursor }): Query<List>,
) -> Result<Json<States>, ApiError> {
    let kind = kind.map(|KindOfState(kind)| kind);
    let states = store.state_versions(&key, kind, limit.0, cursor.as_ref()).await;
    states.map(Json).map_err(Route::States.error())
}

pub(crate) async fn snapshot(
    State(store): State<Store>,
    Query(Snapshot { key, origin }): Query<Snapshot>,
    Extension(context): Extension<RequestContext>,
    upload: Upload,
) -> Result<Response, ApiError> {
    let stored = async {
        let (headers, body) = upload.limited(Kind::State)?;
        let announced = announced(&headers)?;
        let origin = Origin { caller: caller(&context), ..origin };
        store.put_snapshot(&key, origin, announced, Box::new(body)).await?;
        Ok::<_, Cause>(StatusCode::OK.into_response())
    };
    stored.await.map_err(Route::PutSnapshot.error())
}

pub(crate) async fn restore(
    State(store): State<Store>,
    Query(Restore { key, version }): Query<Restore>,
    Extension(context): Extension<RequestContext>,
) -> Result<Response, ApiError> {
    let origin = Origin { caller: caller(&context), ..Origin::default() };
    let restored = store.restore_state(&key, version, origin).await;
    restored.map(|()| StatusCode::OK.into_response()).map_err(Route::RestoreState.error())
}

pub(crate) async fn remove_lock(
    State(store): State<Store>,
    Query(RemoveLock { key, id }): Query<RemoveLock>,
) -> Result<Response, ApiError> {
    let removed = store.unlock_state(&key, &id, None).await;
    removed.map(|()| StatusCode::OK.into_response()).map_err(Route::RemoveLock.error())
}

pub(crate) async fn undelete(
    State(store): State<Store>,
    Query(Undelete(key)): Query<Undelete>,
) -> Result<Response, ApiError> {
    let undeleted = store.undelete_state(&key).await;
    undeleted.map(|()| StatusCode::OK.into_response()).map_err(Route::UndeleteState.error())
}

impl FromParams for List {
    const ROUTE: Route = Route::States;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self {
            key: state_key(params)?,
            kind: params.optional("kind")?,
            limit: params.optional("limit")?.unwrap_or(Limit(50)),
            cursor: params.optional("cursor")?,
        })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.key.namespace, Kind::State, Verb::Read)
    }
}

impl FromParams for Snapshot {
    const ROUTE: Route = Route::PutSnapshot;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self { key: state_key(params)?, origin: origin(params)? })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.key.namespace, Kind::State, Verb::Write)
    }
}

impl FromParams for Restore {
    const ROUTE: Route = Route::RestoreState;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self { key: state_key(params)?, version: params.required("version")? })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.key.namespace, Kind::State, Verb::Admin)
    }
}

impl FromParams for RemoveLock {
    const ROUTE: Route = Route::RemoveLock;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self { key: state_key(params)?, id: params.required("id")? })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.key.namespace, Kind::State, Verb::Admin)
    }
}

impl FromParams for Undelete {
    const ROUTE: Route = Route::UndeleteState;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        state_key(params).map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.namespace, Kind::State, Verb::Admin)
    }
}

impl std::str::FromStr for KindOfState {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let kinds = [StateKind::Head, StateKind::Snapshot, StateKind::Rejected];
        let known = kinds.into_iter().find(|kind| kind.as_str() == text);
        known.map(Self).ok_or("is not head, snapshot or rejected")
    }
}
