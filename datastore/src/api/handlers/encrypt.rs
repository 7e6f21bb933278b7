//! `POST /api/encrypt`: Burrito's request to encrypt every stored object that is not encrypted yet.
//!
//! It answers as Burrito does, but also encrypts bundles, states and the datastore's own documents, and skips objects
//! that are already encrypted. It works object by object: a second request continues an interrupted one. It continues
//! if its caller disconnects, and stops after the current objects when the service shuts down.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use datastore_api::json::Plain;
use datastore_api::{Sha256, chain};
use futures::{StreamExt as _, TryStreamExt as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::api::error::{ApiError, Cause};
use crate::api::openapi::{DescribeRequest, DescribeResponse, Operation};
use crate::api::route::Route;
use crate::observe::context::RequestContext;
use crate::store::encryption::AtRest;
use crate::store::{APPLIED, APPROVALS, CHANGES, DOCUMENTS, Key, LIVE, Store, StoreError};

/// Maximum bytes of a request body.
const MAX_BODY: usize = 64 << 10;
/// How often an object is encrypted that is replaced meanwhile.
const TRIES: usize = 3;
/// Objects that are encrypted at the same time; each holds some parts of an upload in memory.
const CONCURRENCY: usize = 2;
/// Objects between two log lines about the progress.
const PROGRESS_INTERVAL: usize = 100;
/// Maximum of errors that an answer lists; more are only counted.
const MAX_ERRORS: usize = 100;

/// Where everything is that may be encrypted. The summaries of layers are left out: they are made again and again, and have
/// only names and times.
const ROOTS: [&str; 8] =
    ["layers/", "repositories/", "states/", LIVE, CHANGES, DOCUMENTS, APPLIED, APPROVALS];

/// Only extracted if the caller has the permission `admin`.
pub(crate) struct Administrator;

/// The key in the body of a request, or Burrito's text for an invalid body.
pub(crate) struct EncryptBody(Result<SecretString, &'static str>);

/// Held by the request that encrypts; others wait for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncryptLock(Arc<Mutex<()>>);

/// The result for all objects.
#[derive(Debug, Default)]
pub(crate) struct EncryptReport {
    seen: usize,
    encrypted: usize,
    failed: usize,
    errors: Vec<String>,
    refusal: Option<(StatusCode, &'static str)>,
}

pub(crate) async fn encrypt(
    State(store): State<Store>,
    State(at_rest): State<Arc<AtRest>>,
    State(encrypting): State<EncryptLock>,
    State(shutdown): State<CancellationToken>,
    _: Administrator,
    body: EncryptBody,
) -> Result<EncryptReport, ApiError> {
    if let Some(refusal) = refusal(&at_rest, &body) {
        return Ok(EncryptReport { refusal: Some(refusal), ..EncryptReport::default() });
    }
    let work = async move {
        let _alone = encrypting.0.lock().await;
        encrypt_all(&store, &shutdown).await
    };
    let report = tokio::spawn(work).await;
    report
        .map_err(|error| StoreError::Backend(error.into()))
        .flatten()
        .map_err(Route::Encrypt.error())
}

/// Why the request is refused, with Burrito's texts and in Burrito's order.
fn refusal(at_rest: &AtRest, body: &EncryptBody) -> Option<(StatusCode, &'static str)> {
    let given = match &body.0 {
        Ok(given) => given,
        Err(reason) => return Some((StatusCode::BAD_REQUEST, reason)),
    };
    let Some(key) = &at_rest.key else {
        return Some((StatusCode::INTERNAL_SERVER_ERROR, "No encryption key configured on server"));
    };
    // Digests of equal length, so that the time taken shows nothing of the key.
    let [given, key] = [given, key].map(|text| Sha256::of(text.expose_secret().as_bytes()));
    if verify_slices_are_equal(&given.0, &key.0).is_err() {
        return Some((StatusCode::UNAUTHORIZED, "Invalid encryption key"));
    }
    let disabled = (StatusCode::BAD_REQUEST, "Encryption is not enabled in configuration");
    (!at_rest.encrypts).then_some(disabled)
}

async fn encrypt_all(
    store: &Store,
    shutdown: &CancellationToken,
) -> Result<EncryptReport, StoreError> {
    let mut report = EncryptReport::default();
    for root in ROOTS {
        let keys = store.list(root)?.try_filter_map(async |object| {
            Ok(Key::from_path(&object.key).map(|key| (key, object.modified)))
        });
        let encrypted = keys.map(async |listed| {
            let (key, modified) = listed?;
            let mut encrypted = Box::pin(store.encrypt(&key, modified)).await;
            for _ in 1..TRIES {
                if !matches!(encrypted, Err(StoreError::Replaced)) {
                    break;
                }
                // The version that was stored meanwhile may be plain, too.
                encrypted = Box::pin(store.encrypt(&key, modified)).await;
            }
            Ok::<_, StoreError>((key, encrypted))
        });
        let mut encrypted = std::pin::pin!(encrypted.buffer_unordered(CONCURRENCY));
        while let Some((key, encrypted)) = encrypted.try_next().await? {
            report.add(&key, encrypted);
            if shutdown.is_cancelled() {
                report.error("the datastore is shutting down: send the request again".to_owned());
                return Ok(report);
            }
        }
    }
    let EncryptReport { seen, encrypted, failed, .. } = report;
    tracing::info!(seen, encrypted, failed, "encryption of stored objects completed");
    Ok(report)
}

impl EncryptReport {
    fn add(&mut self, key: &Key, encrypted: Result<bool, StoreError>) {
        self.seen += 1;
        match encrypted {
            Ok(true) => self.encrypted += 1,
            // Deleted after it was listed.
            Ok(false) | Err(StoreError::NotFound) => {}
            Err(error) => {
                let path = key.to_path().unwrap_or_default();
                tracing::error!(path, error = chain(&error), "cannot encrypt");
                // Only the log has the causes of a backend's failure.
                self.error(format!("{path}: {error}"));
            }
        }
        if self.seen.is_multiple_of(PROGRESS_INTERVAL) {
            let Self { seen, encrypted, failed, .. } = *self;
            tracing::info!(seen, encrypted, failed, "encrypting stored objects");
        }
    }

    fn error(&mut self, error: String) {
        self.failed += 1;
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }
}

impl IntoResponse for EncryptReport {
    fn into_response(self) -> Response {
        let Self { encrypted, failed, mut errors, refusal, .. } = self;
        let (status, body) = if let Some((status, error)) = refusal {
            (status, json!({ "error": error }))
        } else {
            let message = format!("Encryption process completed. {encrypted} files encrypted.");
            let mut body = json!({ "message": message, "filesEncrypted": encrypted });
            if failed > errors.len() {
                errors.push(format!("and {} more; the log names them", failed - errors.len()));
            }
            let status =
                if errors.is_empty() { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT };
            if !errors.is_empty() {
                body["errors"] = errors.into();
            }
            (status, body)
        };
        (status, [(CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
    }
}

impl EncryptBody {
    async fn read(body: Body) -> Result<SecretString, &'static str> {
        const INVALID: &str = "Invalid JSON format";
        let bytes = to_bytes(body, MAX_BODY).await.map_err(|_| "Failed to read request body")?;
        let fields = match serde_json::from_slice::<Plain>(&bytes) {
            Ok(Plain(Value::Object(fields))) => fields,
            Ok(Plain(Value::Null)) => return Err("encryptionKey is required"),
            Ok(_) | Err(_) => return Err(INVALID),
        };
        // As Go parses it: names are case-insensitive, and null means absent.
        let found = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("encryptionKey"));
        match found.map(|(_, value)| value) {
            Some(Value::String(key)) if !key.is_empty() => Ok(key.into()),
            None | Some(Value::Null | Value::String(_)) => Err("encryptionKey is required"),
            Some(_) => Err(INVALID),
        }
    }
}

impl<S: Sync> FromRequest<S> for EncryptBody {
    type Rejection = std::convert::Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Self::read(request.into_body()).await))
    }
}

impl<S: Sync> FromRequestParts<S> for Administrator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let forbidden = |reason| Route::Encrypt.error()(Cause::Forbidden(reason));
        match parts.extensions.get().and_then(RequestContext::caller) {
            Some(caller) if caller.may_administer() => Ok(Self),
            Some(caller) => Err(forbidden(caller.admin_denial())),
            None => Err(forbidden("an unknown caller may not encrypt all objects".to_owned())),
        }
    }
}

impl DescribeRequest for Administrator {
    fn describe(operation: &mut Operation) {
        operation.of(Route::Encrypt);
        operation.answer("401", "The token is missing or unknown.");
        operation.answer("403", "The caller has no permission for this.");
    }
}

impl DescribeRequest for EncryptBody {
    fn describe(operation: &mut Operation) {
        operation.answer_in_json("400", "The body is invalid, or encryption is not enabled.");
        operation.answer_in_json("401", "The key is not the configured one.");
        operation.answer_in_json("500", "No key is configured.");
    }
}

impl DescribeResponse for EncryptReport {
    fn describe(operation: &mut Operation) {
        operation.answer_in_json("200", "All objects are encrypted.");
        operation
            .answer_in_json("206", "Some objects could not be encrypted; `errors` names them.");
    }
}
