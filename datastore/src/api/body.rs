//! Small bodies in JSON, which are read into memory.

use std::marker::PhantomData;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::api::error::{ApiError, Cause};
use crate::api::route::Route;
use crate::observe::context::RequestContext;

/// The largest body, in bytes.
const LIMIT: usize = 64 << 10;

/// A body of at most 64 KiB.
pub(crate) struct SmallBody(Bytes);

impl SmallBody {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Parses it. The error does not quote it.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Cause> {
        serde_json::from_slice(&self.0).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            Cause::Body(format!(
                "it is not the JSON that this route expects (line {line}, column {column})"
            ))
        })
    }
}

/// A small body in JSON of this form.
pub(crate) struct JsonBody<T>(SmallBody, PhantomData<fn() -> T>);

impl<T: DeserializeOwned> JsonBody<T> {
    /// Parses it, as [`SmallBody::json`].
    pub(crate) fn parse(&self) -> Result<T, Cause> {
        self.0.json()
    }
}

impl<T, S: Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Ok(Self(SmallBody::from_request(request, state).await?, PhantomData))
    }
}

impl<S: Sync> FromRequest<S> for SmallBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let context = request.extensions().get::<RequestContext>();
        let route = context.map_or(Route::Unknown, RequestContext::route);
        if let Ok(bytes) = to_bytes(request.into_body(), LIMIT).await {
            return Ok(Self(bytes));
        }
        Err(route.error()(Cause::Body("it has more than 64 KiB, or broke off".to_owned())))
    }
}
