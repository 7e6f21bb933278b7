//! `/api/applied`: the record that a plan of a layer was applied. Its key is the digest of the plan, so every run of
//! the layer finds it. It is never replaced.

use axum::extract::State;
use axum::response::Response;
use datastore_api::{AppliedKey, Name, Sha256};

use crate::api::error::{ApiError, Cause};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::{ReadRequest, Upload};
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::store::{Key, Store, StoreError};

pub(crate) struct Get(AppliedKey);

pub(crate) struct Put(pub(crate) AppliedKey);

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Get(key)): Query<Get>,
    read: ReadRequest,
) -> Result<Response, ApiError> {
    let key = Key::Applied(key);
    let answered = match read.answer(&store, &key).await {
        Err(Cause::Store(StoreError::NotFound)) => {
            let absent = Err(StoreError::NotFound.into());
            store.refuse_lost(&key).await.map_err(Cause::from).and(absent)
        }
        answered => answered,
    };
    answered.map_err(Route::GetApplied.error())
}

pub(crate) async fn put(
    State(store): State<Store>,
    Query(Put(key)): Query<Put>,
    upload: Upload,
) -> Result<Response, ApiError> {
    let (key, upload) = (Key::Applied(key), upload.once());
    let stored = async {
        // A repetition of the upload that was lost, such as after a kill, says what was recorded.
        let Some(recorded) = store.digest_of_lost(&key).await? else {
            return upload.store(&store, &key).await;
        };
        match upload.store_of_digest(&store, &key, recorded).await {
            Err(Cause::Store(StoreError::Digest { .. })) => {
                Err(StoreError::Lost(key.object_path()?).into())
            }
            stored => stored,
        }
    };
    stored.await.map_err(Route::PutApplied.error())
}

fn key(params: &Params) -> Result<AppliedKey, Cause> {
    let (namespace, layer): (Name, Name) =
        (params.required("namespace")?, params.required("layer")?);
    let plan: Sha256 = params.required("plan")?;
    Ok(AppliedKey { namespace, layer, plan })
}

impl FromParams for Get {
    const ROUTE: Route = Route::GetApplied;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        key(params).map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.namespace, Kind::Artifact, Verb::Read)
    }
}

impl FromParams for Put {
    const ROUTE: Route = Route::PutApplied;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        key(params).map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.namespace, Kind::Artifact, Verb::Write)
    }
}
