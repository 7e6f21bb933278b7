//! `/api/documents` and `/api/statuses`: the documents of layers, and the statuses of a namespace.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use datastore_api::document::{StatusOfLayer, Statuses};
use datastore_api::{ArtifactName, DocumentKey, Name};
use futures::TryStreamExt as _;

use crate::api::error::{ApiError, Cause};
use crate::api::handlers::runs::Limit;
use crate::api::openapi::{DescribeResponse, Operation};
use crate::api::params::{FromParams, Params, Query};
use crate::api::route::Route;
use crate::api::transfer::{ReadRequest, Upload};
use crate::auth::{Access, Verb};
use crate::kind::Kind;
use crate::store::{Key, ReadStatus, Store, StoreError};

pub(crate) struct Get(DocumentKey);

pub(crate) struct Put(pub(crate) DocumentKey);

pub(crate) struct Delete(DocumentKey);

pub(crate) struct Page {
    namespace: Name,
    limit: Limit,
    cursor: Option<Name>,
}

/// The document is gone.
pub(crate) struct Deleted;

pub(crate) async fn get(
    State(store): State<Store>,
    Query(Get(key)): Query<Get>,
    read: ReadRequest,
) -> Result<Response, ApiError> {
    read.answer(&store, &Key::Document(key)).await.map_err(Route::GetDocument.error())
}

pub(crate) async fn put(
    State(store): State<Store>,
    Query(Put(key)): Query<Put>,
    upload: Upload,
) -> Result<Response, ApiError> {
    upload.store(&store, &Key::Document(key)).await.map_err(Route::PutDocument.error())
}

pub(crate) async fn delete(
    State(store): State<Store>,
    Query(Delete(key)): Query<Delete>,
) -> Result<Deleted, ApiError> {
    store.delete_document(&key).await.map_err(Route::DeleteDocument.error())?;
    Ok(Deleted)
}

pub(crate) async fn statuses(
    State(store): State<Store>,
    Query(page): Query<Page>,
) -> Result<Json<Statuses>, ApiError> {
    statuses_of(&store, page).await.map(Json).map_err(Route::Statuses.error())
}

/// How many bytes of statuses a page has, but for the last of them.
const MAX_PAGE: usize = 1 << 20;

/// One page of statuses. It is shorter than asked for where they are large: it is built in memory.
async fn statuses_of(store: &Store, page: Page) -> Result<Statuses, StoreError> {
    let Page { namespace, limit, cursor } = page;
    let mut layers = store.layers_with_status(&namespace).await?;
    if let Some(cursor) = cursor {
        layers.retain(|layer| *layer > cursor);
    }
    let last = layers.last().cloned();
    let (mut page, mut size) = (Statuses::default(), 0);
    let mut statuses = std::pin::pin!(store.statuses(&namespace, layers));
    while let Some(status) = statuses.try_next().await? {
        size += status.size;
        let is_last = Some(&status.layer) == last.as_ref();
        page.statuses.push(shown(status));
        if !is_last && (page.statuses.len() == limit.0 || size >= MAX_PAGE) {
            page.next = page.statuses.last().map(|status| status.layer.clone());
            break;
        }
    }
    Ok(page)
}

fn shown(ReadStatus { layer, status, .. }: ReadStatus) -> StatusOfLayer {
    let (status, unreadable) = match status {
        Ok(status) => (Some(status), None),
        Err(reason) => (None, Some(reason)),
    };
    StatusOfLayer { layer: layer.to_string(), status, unreadable }
}

impl IntoResponse for Deleted {
    fn into_response(self) -> Response {
        StatusCode::OK.into_response()
    }
}

impl DescribeResponse for Deleted {
    fn describe(operation: &mut Operation) {
        operation.answer("200", "The document does not exist any more.");
    }
}

fn key(params: &Params) -> Result<DocumentKey, Cause> {
    let (namespace, layer): (Name, Name) =
        (params.required("namespace")?, params.required("layer")?);
    let name: ArtifactName = params.required("name")?;
    Ok(DocumentKey { namespace, layer, name })
}

/// Parameters of a document: their route, and the verb that they need.
macro_rules! document_params {
    ($($type:ident: $route:ident, $verb:ident;)*) => { $(
        impl FromParams for $type {
            const ROUTE: Route = Route::$route;

            fn from_params(params: &Params) -> Result<Self, Cause> {
                key(params).map(Self)
            }

            fn access(&self) -> Access<'_> {
                Access::of(&self.0.namespace, Kind::of_document(&self.0.name), Verb::$verb)
            }
        }
    )* };
}

document_params! {
    Get: GetDocument, Read;
    Put: PutDocument, Write;
    Delete: DeleteDocument, Write;
}

impl FromParams for Page {
    const ROUTE: Route = Route::Statuses;

    fn from_params(params: &Params) -> Result<Self, Cause> {
        Ok(Self {
            namespace: params.required("namespace")?,
            limit: params.optional("limit")?.unwrap_or(Limit(50)),
            cursor: params.optional("cursor")?,
        })
    }

    fn access(&self) -> Access<'_> {
        Access::of(&self.namespace, Kind::Status, Verb::List)
    }
}
