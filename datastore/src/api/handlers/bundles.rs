//! `/api/repository/revision/bundle`: the git bundle of a commit.

use axum::extract::State;
use axum::response::Response;
use datastore_api::BundleKey;

use crate::api::error::{ApiError, Cause};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::{ReadRequest, Upload};
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::store::{Key, Store};

pub(crate) struct Get(pub(crate) BundleKey);

pub(crate) struct Put(BundleKey);

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Get(key)): Query<Get>,
    read: ReadRequest,
) -> Result<Response, ApiError> {
    read.answer(&store, &Key::Bundle(key)).await.map_err(Route::GetBundle.error())
}

pub(crate) async fn put(
    State(store): State<Store>,
    Query(Put(key)): Query<Put>,
    upload: Upload,
) -> Result<Response, ApiError> {
    upload.store(&store, &Key::Bundle(key)).await.map_err(Route::PutBundle.error())
}

impl FromParams for Get {
    const ROUTE: Route = Route::GetBundle;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        params.bundle().map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.namespace, Kind::Bundle, Verb::Read)
    }
}

impl FromParams for Put {
    const ROUTE: Route = Route::PutBundle;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        params.bundle().map(Self)
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.0.namespace, Kind::Bundle, Verb::Write)
    }
}

impl Params<'_> {
    fn bundle(&self) -> Result<BundleKey, Cause> {
        Ok(BundleKey {
            namespace: self.required("namespace")?,
            name: self.required("name")?,
            git_ref: self.required("ref")?,
            revision: self.required("revision")?,
        })
    }
}
