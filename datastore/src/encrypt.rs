//! `/api/encrypt`: upstream's order to encrypt what is stored in plain. Who may give it is checked, and
//! the rest is not built yet.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use crate::auth::Caller;
use crate::error::{ApiError, Cause, Route};
use crate::seal::AtRest;

/// Bytes of a body that has only a key in it.
const BODY: usize = 64 << 10;

pub(crate) async fn encrypt(
    State(at_rest): State<Arc<AtRest>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Result<Response, ApiError> {
    if !caller.may_administer() {
        return Err(Route::Own.error()(Cause::Forbidden));
    }
    let (status, error) = refusal(&at_rest, body).await;
    let json = [(CONTENT_TYPE, "application/json")];
    Ok((status, json, format!("{}\n", json!({ "error": error }))).into_response())
}

/// Upstream's checks in upstream's order; but that encryption is off is said before that it has no key,
/// since it needs none then.
async fn refusal(at_rest: &AtRest, body: Body) -> (StatusCode, &'static str) {
    let Ok(body) = to_bytes(body, BODY).await else {
        return (StatusCode::BAD_REQUEST, "Failed to read request body");
    };
    let order = serde_json::from_slice::<Map<String, Value>>(&body);
    let given = match order.as_ref().map(|order| order.get("encryptionKey")) {
        Ok(Some(Value::String(given))) if !given.is_empty() => SecretString::from(given.clone()),
        Ok(None | Some(Value::Null | Value::String(_))) => {
            return (StatusCode::BAD_REQUEST, "encryptionKey is required");
        }
        Ok(Some(_)) | Err(_) => return (StatusCode::BAD_REQUEST, "Invalid JSON format"),
    };
    match at_rest.is_key(&given) {
        Some(false) => (StatusCode::UNAUTHORIZED, "Invalid encryption key"),
        None => (StatusCode::BAD_REQUEST, NOT_ENABLED),
        Some(true) if !at_rest.encrypts => (StatusCode::BAD_REQUEST, NOT_ENABLED),
        Some(true) => (StatusCode::NOT_IMPLEMENTED, "Not implemented in this version"),
    }
}

const NOT_ENABLED: &str = "Encryption is not enabled in configuration";
