//! `/api/changes`: the changes of a plan, as a list without sensitive values.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use datastore_api::{Attempt, File, PlanFormat, RunKey};
use futures::TryStreamExt as _;
use serde_json::json;

use crate::api::error::{ApiError, Cause};
use crate::api::openapi::{DescribeResponse, Operation};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::ReadRequest;
use crate::auth::{Access, Verb};
use crate::observe::context::RequestContext;
use crate::store::{Key, Store, StoreError};

pub(crate) struct Get {
    run: RunKey,
    attempt: Option<Attempt>,
}

/// A list of changes.
pub(crate) struct Changes(Response);

pub(crate) async fn get(
    State(store): State<Store>,
    Query(get): Query<Get>,
    Extension(context): Extension<RequestContext>,
    read: ReadRequest,
) -> Result<Changes, ApiError> {
    let answer = answer(&store, get, &context, read).await;
    answer.map(Changes).map_err(Route::Changes.error())
}

async fn answer(
    store: &Store,
    Get { run, attempt }: Get,
    context: &RequestContext,
    read: ReadRequest,
) -> Result<Response, Cause> {
    let tenant = context.caller().and_then(|caller| caller.known_name());
    let tenant = tenant.unwrap_or(run.namespace.as_ref()).to_owned();
    let plan = store.resolve_attempt(run, attempt, File::Plan(PlanFormat::Json)).await?;
    let Key::File(run, attempt, _) = plan else { return Err(StoreError::NotFound.into()) };
    let key = store.changes_key(&run, attempt).await?;
    match read.clone().answer(store, &key).await {
        // A damaged list is made again.
        Err(Cause::Store(StoreError::NotFound | StoreError::Corrupt(_))) => {}
        answered => {
            let store = store.clone();
            // The beginning of a long one is sent before the damage is found.
            let checked = |body: Body| {
                let broken_off = move |_: &_| store.check_list_later(&key);
                Body::from_stream(body.into_data_stream().inspect_err(broken_off))
            };
            return answered.map(|response| response.map(checked));
        }
    }
    match store.list_changes(&key, &tenant).await? {
        // It may be the list of a newer plan, or not be stored.
        Some(list) => Ok(Response::new(Body::from(list))),
        None => read.answer(store, &key).await,
    }
}

impl IntoResponse for Changes {
    fn into_response(self) -> Response {
        let mut response = self.0;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

impl DescribeResponse for Changes {
    fn describe(operation: &mut Operation) {
        let [full, bare] = examples();
        operation.answer_like("The list.", &[&full, &bare]);
        operation.answer("404", "There is no `plan.json`.");
        operation.answer("422", "The `plan.json` is not a plan, or of an unknown version.");
    }
}

/// Two lists that together show every field, and which of them can be null.
fn examples() -> [serde_json::Value; 2] {
    let attribute = json!({
        "path": ["", 0], "before": "", "after": "", "before_length": 0, "after_length": 0,
        "sensitive": true, "unknown": true, "replaces": true,
    });
    let resource = |text: serde_json::Value, index: serde_json::Value| {
        json!({
            "address": "", "module": "", "mode": "", "type": "", "name": "", "index": index,
            "reason": text, "deposed": text, "actions": [""], "previous_address": text,
            "importing": text, "attributes": [attribute, {"path": []}],
        })
    };
    let none = serde_json::Value::Null;
    let mut by_identity = resource(none.clone(), none.clone());
    by_identity["importing"] = json!({});
    let resources = json!([
        resource("".into(), 0.into()),
        resource(none.clone(), "".into()),
        resource(none.clone(), none.clone()),
        by_identity,
    ]);
    let counts = json!({
        "create": 0, "update": 0, "delete": 0, "replace": 0, "read": 0, "forget": 0, "move": 0, "import": 0, "invoke": 0,
    });
    let list = |truncated| {
        json!({
            "version": 4, "counts": counts, "resources": resources, "drift": resources,
            "outputs": [{"name": "", "actions": [""], "before": "", "after": "", "sensitive": true, "unknown": true}, {"name": "", "actions": [""]}],
            "checks": [{"address": "", "status": "", "problems": [""]}],
            "truncated": truncated,
        })
    };
    let mut part = list(json!({"resources": 0, "attributes": 0}));
    part["errored"] = true.into();
    [part, list(none)]
}

impl FromParams for Get {
    const ROUTE: Route = Route::Changes;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let (run, attempt) = (params.run()?, params.optional("attempt")?);
        Ok(Self { run, attempt })
    }

    fn access(&self) -> Access<'_> {
        Access::file(&self.run, &File::Plan(PlanFormat::Json), Verb::Read)
    }
}
