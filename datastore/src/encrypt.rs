//! `/api/encrypt`: upstream's order to encrypt what is stored in plain. Who may give it is checked, and
//! whether anything is encrypted at all; the rest is not built yet.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};

use crate::auth::Caller;
use crate::error::{ApiError, Cause, Route};
use crate::seal::AtRest;

/// A caller who may change how everything is kept.
pub(crate) struct Administrator;

pub(crate) async fn encrypt(
    State(at_rest): State<Arc<AtRest>>,
    _: Administrator,
) -> Result<Response, ApiError> {
    let (status, error) = if at_rest.encrypts {
        (StatusCode::NOT_IMPLEMENTED, "Not implemented in this version")
    } else {
        (StatusCode::BAD_REQUEST, "Encryption is not enabled in configuration")
    };
    let json = [(CONTENT_TYPE, "application/json")];
    Ok((status, json, format!("{{\"error\":\"{error}\"}}\n")).into_response())
}

impl<S: Sync> FromRequestParts<S> for Administrator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match parts.extensions.get::<Caller>() {
            Some(caller) if caller.may_administer() => Ok(Self),
            _ => Err(Route::Own.error()(Cause::Forbidden(
                "this caller may not change how everything is kept; a rule with the verb `admin` in the \
                 datastore's policy (PLANCHA_POLICY) can allow it"
                    .to_owned(),
            ))),
        }
    }
}
