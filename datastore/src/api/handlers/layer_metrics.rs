//! `/api/metrics`: the statuses of a namespace as metrics. `GET /metrics` has those of the datastore itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use datastore_api::Name;
use datastore_api::status::LayerStatus;
use datastore_api::status::metrics::{CONTENT, MetricPrefix, page};
use futures::TryStreamExt as _;
use jiff::Timestamp;

use crate::api::error::{ApiError, Cause};
use crate::api::openapi::{DescribeResponse, Operation};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::store::{ReadStatus, Store, StoreError};

pub(crate) struct Get {
    namespace: Name,
    prefix: MetricPrefix,
}

/// How many statuses of each namespace could not be read, over all scrapes of this process. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusErrors(Arc<Mutex<BTreeMap<Name, u64>>>);

/// A page of metrics.
pub(crate) struct MetricsPage(String);

pub(crate) async fn get(
    State(store): State<Store>,
    State(errors): State<StatusErrors>,
    Query(Get { namespace, prefix }): Query<Get>,
) -> Result<MetricsPage, ApiError> {
    let (layers, unreadable) =
        layers(&store, &namespace).await.map_err(Route::LayerMetrics.error())?;
    let errors = errors.add(&namespace, unreadable);
    let statuses = layers.iter().map(|(layer, status)| (&namespace, layer, status));
    Ok(MetricsPage(page(prefix.as_ref(), statuses, errors, Timestamp::now())))
}

/// The statuses of a namespace, and how many cannot be read.
async fn layers(
    store: &Store,
    namespace: &Name,
) -> Result<(Vec<(Name, LayerStatus)>, u64), StoreError> {
    let names = store.layers_with_status(namespace).await?;
    let (mut layers, mut unreadable) = (Vec::with_capacity(names.len()), 0);
    let mut statuses = std::pin::pin!(store.statuses(namespace, names));
    while let Some(ReadStatus { layer, status, .. }) = statuses.try_next().await? {
        match status {
            // What no metric shows is not kept.
            Ok(status) => {
                layers.push((layer, LayerStatus { changes: Vec::new(), message: None, ..status }));
            }
            Err(_) => unreadable += 1,
        }
    }
    Ok((layers, unreadable))
}

impl StatusErrors {
    /// Adds the errors of one scrape, and returns all of the namespace.
    fn add(&self, namespace: &Name, errors: u64) -> u64 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if errors == 0 {
            return all.get(namespace).copied().unwrap_or_default();
        }
        let total = all.entry(namespace.clone()).or_default();
        *total += errors;
        *total
    }
}

impl IntoResponse for MetricsPage {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, CONTENT)], self.0).into_response()
    }
}

impl DescribeResponse for MetricsPage {
    fn describe(operation: &mut Operation) {
        operation.answer_with("200", "The metrics.", "text/plain");
    }
}

impl FromParams for Get {
    const ROUTE: Route = Route::LayerMetrics;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        let namespace = params.required("namespace")?;
        let prefix = params.optional("prefix")?.unwrap_or_default();
        Ok(Self { namespace, prefix })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.namespace, Kind::Status, Verb::List)
    }
}
