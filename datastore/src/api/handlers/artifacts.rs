//! `/api/artifacts`: the files of an attempt for which Burrito has no route.

use axum::extract::State;
use axum::response::Response;
use datastore_api::{ArtifactName, Attempt, File, RunKey};

use crate::api::error::{ApiError, Cause};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::{ReadRequest, Upload};
use crate::auth::{Access, Verb};
use crate::store::{Key, Store};

pub(crate) struct Get {
    run: RunKey,
    attempt: Option<Attempt>,
    name: ArtifactName,
}

pub(crate) struct Put {
    run: RunKey,
    attempt: Attempt,
    name: ArtifactName,
}

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Get { run, attempt, name }): Query<Get>,
    read: ReadRequest,
) -> Result<Response, ApiError> {
    let key = async {
        let key = store.resolve_attempt(run, attempt, File::Other(name)).await?;
        store.key_to_read(key).await
    };
    let key = key.await.map_err(Route::GetArtifact.error())?;
    read.answer(&store, &key).await.map_err(Route::GetArtifact.error())
}

pub(crate) async fn put(
    State(store): State<Store>,
    Query(put): Query<Put>,
    upload: Upload,
) -> Result<Response, ApiError> {
    let stored = async {
        let key = store.key_to_store(put.key()).await?;
        upload.store(&store, &key).await
    };
    stored.await.map_err(Route::PutArtifact.error())
}

impl Put {
    pub(crate) fn key(&self) -> Key {
        Key::File(self.run.clone(), self.attempt, File::Other(self.name.clone()))
    }
}

impl FromParams for Get {
    const ROUTE: Route = Route::GetArtifact;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.optional("attempt")?);
        Ok(Self { run, attempt, name: params.required("name")? })
    }

    fn access(&self) -> Access<'_> {
        Access::artifact(&self.run.namespace, &self.name, Verb::Read)
    }
}

impl FromParams for Put {
    const ROUTE: Route = Route::PutArtifact;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.required("attempt")?);
        Ok(Self { run, attempt, name: params.required("name")? })
    }

    fn access(&self) -> Access<'_> {
        Access::artifact(&self.run.namespace, &self.name, Verb::Write)
    }
}
