//! `/api/repository/revision/bundle`: a commit of a repository, as a git bundle.

use axum::extract::State;
use axum::response::Response;
use datastore_api::BundleKey;

use crate::error::{ApiError, Cause, Route};
use crate::params::{FromParams, Params, Query};
use crate::store::{Key, Store};
use crate::transfer::{Upload, Wanted};

pub(crate) struct Bundle(pub(crate) BundleKey);

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Bundle(key)): Query<Bundle>,
    wanted: Wanted,
) -> Result<Response, ApiError> {
    wanted.answer(&store, &Key::Bundle(key)).await.map_err(Route::GetBundle.error())
}

pub(crate) async fn put(
    State(store): State<Store>,
    Query(Bundle(key)): Query<Bundle>,
    upload: Upload,
) -> Result<Response, ApiError> {
    upload.keep(&store, &Key::Bundle(key)).await.map_err(Route::PutBundle.error())
}

impl FromParams for Bundle {
    const ROUTE: Route = Route::GetBundle;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self(BundleKey {
            namespace: params.required("namespace")?,
            name: params.required("name")?,
            git_ref: params.required("ref")?,
            revision: params.required("revision")?,
        }))
    }
}
