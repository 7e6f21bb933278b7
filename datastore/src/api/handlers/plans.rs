//! `/api/plans`: the four formats of the plan of a run.

use axum::extract::State;
use axum::response::Response;
use datastore_api::{Attempt, File, PlanFormat, RunKey};

use crate::api::error::{ApiError, Cause};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::{ReadRequest, Upload};
use crate::auth::{Access, Verb};
use crate::store::{Key, Store};

pub(crate) struct Get {
    run: RunKey,
    attempt: Option<Attempt>,
    format: PlanFormat,
}

pub(crate) struct Put {
    run: RunKey,
    attempt: Attempt,
    format: PlanFormat,
}

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Get { run, attempt, format }): Query<Get>,
    read: ReadRequest,
) -> Result<Response, ApiError> {
    let key = store.resolve_attempt(run, attempt, File::Plan(format)).await;
    let key = key.map_err(Route::GetPlan.error())?;
    read.answer(&store, &key).await.map_err(Route::GetPlan.error())
}

pub(crate) async fn put(
    State(store): State<Store>,
    Query(Put { run, attempt, format }): Query<Put>,
    upload: Upload,
) -> Result<Response, ApiError> {
    let key = Key::File(run, attempt, File::Plan(format));
    upload.store(&store, &key).await.map_err(Route::PutPlan.error())
}

impl FromParams for Get {
    const ROUTE: Route = Route::GetPlan;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.optional("attempt")?);
        params.single("format")?;
        // Burrito answers the JSON if the format is unknown.
        let format = params.optional("format").ok().flatten();
        Ok(Self { run, attempt, format: format.unwrap_or(PlanFormat::Json) })
    }

    fn access(&self) -> Access<'_> {
        Access::file(&self.run, &File::Plan(self.format), Verb::Read)
    }
}

impl FromParams for Put {
    const ROUTE: Route = Route::PutPlan;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.required("attempt")?);
        let format = params.optional("format")?.unwrap_or(PlanFormat::Json);
        Ok(Self { run, attempt, format })
    }

    fn access(&self) -> Access<'_> {
        Access::file(&self.run, &File::Plan(self.format), Verb::Write)
    }
}
