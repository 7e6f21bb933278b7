//! `/api/state/{namespace}/{layer}[/{workspace}]`: a state as terraform's and tofu's `http` backend reads, writes, locks and
//! unlocks it.

use axum::Extension;
use axum::extract::State;
use axum::http::header::HeaderMap;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use datastore_api::json::Plain;
use datastore_api::state::{DEFAULT_WORKSPACE, LayerTool, StateVersion};
use datastore_api::{Name, StateKey, VersionId};
use serde_json::Value;

use crate::api::body::SmallBody;
use crate::api::error::{ApiError, Cause};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::{ReadRequest, Upload, conditions};
use crate::auth::caller::Caller;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::observe::context::RequestContext;
use crate::store::{Announced, Claims, Key, Origin, StateError, Store, StoreError};

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// The longest ID of a lock; those of terraform and tofu are UUIDs.
const MAX_LOCK_ID: usize = 256;
/// The most bytes of the information about a lock; terraform's and tofu's has less than 2 KiB.
const MAX_LOCK_INFO: usize = 8 << 10;
/// The most levels of it; theirs has one.
const MAX_LOCK_LEVELS: usize = 16;
/// The longest text of a parameter that only describes a write.
const MAX_TEXT: usize = 1024;

pub(crate) struct Get {
    key: StateKey,
    version: Option<VersionId>,
}

/// A change of a state.
pub(crate) struct Change {
    pub(crate) key: StateKey,
    claims: Claims,
}

pub(crate) struct Post {
    change: Change,
    origin: Origin,
    force: bool,
}

pub(crate) struct Delete(Change);

pub(crate) struct Lock(Change);

pub(crate) struct Unlock(Change);

/// A short text that describes a write.
struct Text(String);

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Get { key, version }): Query<Get>,
    read: ReadRequest,
) -> Result<Response, ApiError> {
    let opened = async {
        let StateVersion { version, sha256, .. } = match version {
            Some(version) => store.find_version(&key, &version).await?,
            None => store.present_state(&key).await?,
        };
        let object = Key::State(key, version);
        // The version is known to exist: 404 would say that there is no state.
        read.of_digest(sha256).answer(&store, &object).await.map_err(|cause| match cause {
            Cause::Store(StoreError::NotFound) => {
                let path = object.to_path().unwrap_or_default();
                StateError::Damaged(format!("the version `{path}` of the state is missing")).into()
            }
            cause => cause,
        })
    };
    opened.await.map_err(Route::GetState.error())
}

pub(crate) async fn post(
    State(store): State<Store>,
    Query(Post { change: Change { key, claims }, origin, force }): Query<Post>,
    Extension(context): Extension<RequestContext>,
    upload: Upload,
) -> Result<Response, ApiError> {
    let written = async {
        let (headers, body) = upload.limited(Kind::State)?;
        let announced = announced(&headers)?;
        let origin = Origin { caller: caller(&context), ..origin };
        let claims = claims_of(&context, claims);
        let body = Box::new(body);
        store.write_state(&key, &claims, origin, force, announced, body).await?;
        Ok::<_, Cause>(StatusCode::OK.into_response())
    };
    written.await.map_err(Route::PostState.error())
}

pub(crate) async fn delete(
    State(store): State<Store>,
    Query(Delete(Change { key, claims })): Query<Delete>,
    Extension(context): Extension<RequestContext>,
) -> Result<Response, ApiError> {
    let claims = claims_of(&context, claims);
    let deleted = store.delete_state(&key, &claims).await;
    deleted.map(|()| StatusCode::OK.into_response()).map_err(Route::DeleteState.error())
}

pub(crate) async fn lock(
    State(store): State<Store>,
    Query(Lock(Change { key, claims })): Query<Lock>,
    Extension(context): Extension<RequestContext>,
    body: SmallBody,
) -> Result<Response, ApiError> {
    let claims = claims_of(&context, claims);
    let locked = async {
        let info = lock_info(&body)?;
        let id = lock_id(&info)?;
        store.lock_state(&key, id, &info, &claims).await?;
        Ok::<_, Cause>(StatusCode::OK.into_response())
    };
    locked.await.map_err(Route::LockState.error())
}

/// Removes the lock that the body names: under a lease that is valid only for its holder. `force-unlock` of terraform sends no
/// body. Then the lock must be one that was taken under the caller's lease, or the permission `admin` is needed.
pub(crate) async fn unlock(
    State(store): State<Store>,
    Query(Unlock(Change { key, claims })): Query<Unlock>,
    Extension(context): Extension<RequestContext>,
    body: SmallBody,
) -> Result<Response, ApiError> {
    let claims = claims_of(&context, claims);
    let unlocked = async {
        if body.is_empty() {
            let is_lease = context.caller().and_then(Caller::fence).is_some();
            if is_lease && store.unlock_own_state(&key, &claims).await? {
                return Ok(StatusCode::OK.into_response());
            }
            let access = Access::of(&key.namespace, Kind::State, Verb::Admin);
            let denied = context.caller().filter(|caller| !caller.may(access));
            if let Some(caller) = denied {
                return Err(Cause::Forbidden(caller.denial(access)));
            }
            store.force_unlock_state(&key).await?;
        } else {
            // Earlier versions have stored larger ones.
            let Plain(info) = body.json()?;
            store.unlock_state(&key, lock_id(&info)?, Some(&claims)).await?;
        }
        Ok(StatusCode::OK.into_response())
    };
    unlocked.await.map_err(Route::UnlockState.error())
}

/// The information about a lock, which is stored in the control object of the layer.
fn lock_info(body: &SmallBody) -> Result<Value, Cause> {
    let refused = |reason: &str| Err(Cause::Body(format!("the information of a lock {reason}")));
    if body.len() > MAX_LOCK_INFO {
        return refused("has more than 8 KiB");
    }
    let info = body.json::<Plain>()?;
    if info.levels() > MAX_LOCK_LEVELS {
        return refused("has more than 16 levels");
    }
    if info.has_raw_name() {
        return refused("has a name that is reserved for raw values");
    }
    Ok(info.0)
}

fn lock_id(info: &Value) -> Result<&str, Cause> {
    let id = info.get("ID").and_then(Value::as_str);
    let id = id.filter(|id| !id.is_empty() && id.len() <= MAX_LOCK_ID);
    id.ok_or_else(|| {
        Cause::Body("expected the information of a lock, with a text as its `ID`".to_owned())
    })
}

/// The name of an authenticated caller.
pub(crate) fn caller(context: &RequestContext) -> Option<String> {
    context.caller().and_then(Caller::known_name).map(str::to_owned)
}

/// The claims of a caller. One that is known by the credential of its lease works under that lease's number, also if its
/// address has none.
fn claims_of(context: &RequestContext, claims: Claims) -> Claims {
    let fence = context.caller().and_then(Caller::fence);
    let by_credential = fence.is_some();
    Claims { fence: fence.or(claims.fence), caller: caller(context), by_credential, ..claims }
}

/// The digests in the headers of an upload.
pub(crate) fn announced(headers: &HeaderMap) -> Result<Announced, Cause> {
    let conditions = conditions(headers)?;
    if conditions.create {
        return Err(Cause::Header("`If-None-Match`"));
    }
    let md5 = headers.get(CONTENT_MD5).map(|value| {
        let decoded = BASE64_STANDARD.decode(value.as_bytes()).ok();
        decoded.and_then(|md5| md5.try_into().ok()).ok_or(Cause::Md5)
    });
    Ok(Announced { sha256: conditions.sha256, md5: md5.transpose()? })
}

/// The state that the path or the query names.
pub(crate) fn state_key(params: &Params) -> Result<StateKey, Cause> {
    let (namespace, layer) = (params.required("namespace")?, params.required("layer")?);
    let workspace: Option<Name> = params.optional("workspace")?;
    let workspace = match workspace {
        Some(workspace) => workspace,
        None => DEFAULT_WORKSPACE.parse().map_err(|_| Cause::Missing("workspace"))?,
    };
    Ok(StateKey { namespace, layer, workspace })
}

/// Who writes, as the query describes it.
pub(crate) fn origin(params: &Params) -> Result<Origin, Cause> {
    let text = |text: Option<Text>| text.map(|Text(text)| text);
    let run = text(params.optional("run")?);
    let (name, version) = (text(params.optional("tool")?), text(params.optional("tool_version")?));
    let tool = name.zip(version).map(|(name, version)| LayerTool { name, version });
    Ok(Origin { run, tool, caller: None })
}

fn change(params: &Params) -> Result<Change, Cause> {
    let text = |text: Option<Text>| text.map(|Text(text)| text);
    let key = state_key(params)?;
    let claims = Claims {
        lock: text(params.optional("ID")?),
        fence: params.optional("fence")?,
        place: text(params.optional("place")?),
        rebind: params.flag("rebind")?,
        ..Claims::default()
    };
    Ok(Change { key, claims })
}

impl FromParams for Get {
    const ROUTE: Route = Route::GetState;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self { key: state_key(params)?, version: params.optional("version")? })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.key.namespace, Kind::State, Verb::Read)
    }
}

impl FromParams for Post {
    const ROUTE: Route = Route::PostState;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self { change: change(params)?, origin: origin(params)?, force: params.flag("force")? })
    }

    fn access(&self) -> Access<'_> {
        let verb = if self.force { Verb::Admin } else { Verb::Write };
        Access::of(&self.change.key.namespace, Kind::State, verb)
    }
}

impl FromParams for Delete {
    const ROUTE: Route = Route::DeleteState;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        change(params).map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.key.namespace, Kind::State, Verb::Admin)
    }
}

impl FromParams for Lock {
    const ROUTE: Route = Route::LockState;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        change(params).map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.key.namespace, Kind::State, Verb::Write)
    }
}

impl FromParams for Unlock {
    const ROUTE: Route = Route::UnlockState;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        change(params).map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.key.namespace, Kind::State, Verb::Write)
    }
}

impl std::str::FromStr for Text {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_TEXT || text.contains(char::is_control) {
            return Err("is longer than 1024 bytes, or has control characters");
        }
        Ok(Self(text.to_owned()))
    }
}
