//! The only place where an error becomes a response.
//!
//! Errors on Burrito's routes have Burrito's texts, which its controllers and users know. Errors on the other routes
//! are problem documents (`application/problem+json`, RFC 9457).

use axum::Json;
use axum::http::header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use datastore_api::approval::RefusedApproval;
use datastore_api::chain;
use datastore_api::client::LOST_OBJECT;
use datastore_api::digest::InvalidSha256;
use serde_json::json;

use crate::api::route::{Route, is_like_state};
use crate::changes::UnreadablePlan;
use crate::observe::context::RequestContext;
use crate::observe::refusal::Refusal;
use crate::store::{
    AppendError, ApprovalError, ChangesError, MAX_APPEND, StateError, StoreError, reason,
};
use crate::transport::admission::Busy;
use crate::transport::upload_body::{TooLarge, TooSlow};

/// The methods of the address of a state.
const STATE_METHODS: &str = "GET, HEAD, POST, DELETE, LOCK, UNLOCK";

/// An error, and the route that decides about its text.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) route: Route,
    pub(crate) cause: Cause,
}

/// Why a request failed or was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    #[error("missing query parameter `{0}`")]
    Missing(&'static str),
    #[error("query parameter `{parameter}`: {reason}")]
    Parameter { parameter: &'static str, reason: String },
    #[error("header `Repr-Digest`: {0}")]
    ReprDigest(#[from] InvalidSha256),
    #[error("the part {part} of the address: {reason}")]
    AddressPart { part: String, reason: String },
    #[error(
        "this is no address of a state: expected /api/state/NAMESPACE/LAYER or /api/state/NAMESPACE/LAYER/WORKSPACE, without \
         another `/`"
    )]
    Address,
    #[error("the address of a state has no such method: expected one of {methods}", methods = STATE_METHODS)]
    Method,
    #[error("an upload with {0} is not supported")]
    Header(&'static str),
    #[error("header `Content-MD5`: expected the MD5 digest of the body, in Base64")]
    Md5,
    #[error("If-Match precondition failed")]
    NoMatch,
    #[error("the range begins past the end: there are {size} bytes")]
    Range { size: u64 },
    #[error("{0}")]
    Forbidden(String),
    #[error("shutting down")]
    Draining,
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error("too many connections are open; try again")]
    Crowded,
    #[error("request line and headers exceed 16 KiB")]
    Head,
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("HTTP/1.1 needs exactly one `Host` header, and this request has {0}")]
    Host(usize),
    #[error("invalid `Host` header: expected a host, or a host and a port")]
    NoHost,
    #[error("the body has a transfer coding other than `chunked`")]
    Coding,
    #[error("the storage is not ready: {0}")]
    NotReady(String),
    #[error("invalid body: {0}")]
    Body(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    State(StateError),
    #[error(transparent)]
    Approval(ApprovalError),
    #[error(transparent)]
    Append(AppendError),
    #[error(
        "the changes of this `plan.json` cannot be listed: {0}; `/api/plans` has it as it is stored"
    )]
    Plan(UnreadablePlan),
    #[error("an append may have at most {} bytes: send them in several", MAX_APPEND)]
    LargeAppend,
}

impl Route {
    /// Makes an error of this route, for `map_err`.
    pub(crate) fn error<E: Into<Cause>>(self) -> impl FnOnce(E) -> ApiError {
        move |cause| ApiError { route: self, cause: cause.into() }
    }
}

impl ApiError {
    /// The status of each error. There is no wildcard, so that the compiler asks for the status of a new one.
    fn status(&self) -> StatusCode {
        match &self.cause {
            Cause::Missing(_) => StatusCode::BAD_REQUEST,
            Cause::Parameter { .. } => StatusCode::BAD_REQUEST,
            Cause::AddressPart { .. } | Cause::Address => StatusCode::BAD_REQUEST,
            Cause::Method => StatusCode::METHOD_NOT_ALLOWED,
            Cause::Md5 => StatusCode::BAD_REQUEST,
            Cause::ReprDigest(_) | Cause::Header(_) => StatusCode::BAD_REQUEST,
            Cause::NoMatch => StatusCode::PRECONDITION_FAILED,
            Cause::Range { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Cause::Forbidden(_) => StatusCode::FORBIDDEN,
            Cause::Draining | Cause::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
            Cause::Crowded => StatusCode::SERVICE_UNAVAILABLE,
            Cause::Host(_) | Cause::NoHost => StatusCode::BAD_REQUEST,
            Cause::Coding => StatusCode::NOT_IMPLEMENTED,
            Cause::Head => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Cause::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Cause::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
            Cause::Body(_) => StatusCode::BAD_REQUEST,
            Cause::State(error) => state_status(error, self.route),
            Cause::Append(AppendError::Offset { .. }) => StatusCode::CONFLICT,
            Cause::Append(AppendError::TooLarge(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Cause::Append(AppendError::Store(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::LargeAppend => StatusCode::PAYLOAD_TOO_LARGE,
            Cause::Plan(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Cause::Approval(ApprovalError::Unknown) => StatusCode::NOT_FOUND,
            Cause::Approval(ApprovalError::OtherSet(_) | ApprovalError::Used(_)) => {
                StatusCode::CONFLICT
            }
            Cause::Approval(ApprovalError::Expired(_)) => StatusCode::GONE,
            Cause::Approval(ApprovalError::Store(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::NotFound) => StatusCode::NOT_FOUND,
            Cause::Store(StoreError::KeyTooLong { .. }) => StatusCode::BAD_REQUEST,
            Cause::Store(StoreError::Exists) => StatusCode::PRECONDITION_FAILED,
            Cause::Store(StoreError::Undecided) => StatusCode::SERVICE_UNAVAILABLE,
            Cause::Store(StoreError::Claimed) => StatusCode::CONFLICT,
            Cause::Store(StoreError::Replaced) => StatusCode::SERVICE_UNAVAILABLE,
            Cause::Store(StoreError::Upload(error)) if error.is::<TooLarge>() => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Cause::Store(StoreError::Upload(error)) if error.is::<TooSlow>() => {
                StatusCode::REQUEST_TIMEOUT
            }
            Cause::Store(StoreError::Upload(_)) => StatusCode::BAD_REQUEST,
            Cause::Store(StoreError::Digest { .. }) => StatusCode::BAD_REQUEST,
            Cause::Store(StoreError::Corrupt(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::Lost(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::NoKey(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::WrongKey(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::Unrecognised(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::Ambiguous(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::Unreadable(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::Cursor) => StatusCode::BAD_REQUEST,
            Cause::Store(StoreError::Clash(_) | StoreError::TooManyFiles(_)) => {
                StatusCode::CONFLICT
            }
            Cause::Store(StoreError::Full(_)) => StatusCode::INSUFFICIENT_STORAGE,
            Cause::Store(StoreError::Hung(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Cause::Store(StoreError::RecordLeft(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Cause::Store(StoreError::Backend(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Burrito's text, or the error's own where Burrito has none.
    fn text(&self) -> String {
        let burrito = match (&self.cause, self.route) {
            (_, route) if !route.has_burrito_texts() => None,
            (Cause::Missing("revision"), _) => Some("missing revision parameter"),
            (Cause::Missing(_), _) => Some("missing query parameters"),
            (Cause::Store(StoreError::NotFound), route) => route.not_found_text(),
            (_, route) if self.is_backend() => route.storage_failure_text(),
            _ => None,
        };
        match (&self.cause, burrito) {
            (Cause::Store(error), Some(text)) if self.gives_reason(error) => {
                format!("{text}: {}", reason(error))
            }
            (_, Some(text)) => text.to_owned(),
            (
                Cause::Store(
                    error @ (StoreError::Backend(_) | StoreError::Full(_) | StoreError::Hung(_)),
                ),
                None,
            ) => {
                format!("{error}: {}", reason(error))
            }
            (Cause::Store(StoreError::Upload(error)), None) if error.is::<TooLarge>() => {
                error.to_string()
            }
            (Cause::Store(StoreError::Upload(_)), None) => {
                format!("could not read request body: {}", chain(&self.cause))
            }
            (_, None) => self.cause.to_string(),
        }
    }

    /// Whether the text ends with the reason. Burrito adds the storage's error text when a plan is stored. That text
    /// can contain a path or URL of the server, so we add the reason only. On every route, we add that the storage is
    /// full or hangs.
    fn gives_reason(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::Full(_) | StoreError::Hung(_))
            || self.route == Route::PutPlan && self.is_backend()
    }

    fn is_backend(&self) -> bool {
        let is_in_doubt = matches!(
            self.cause,
            Cause::Store(
                StoreError::Ambiguous(_)
                    | StoreError::Unreadable(_)
                    | StoreError::Undecided
                    | StoreError::Replaced
            )
        );
        self.status().is_server_error() && matches!(self.cause, Cause::Store(_)) && !is_in_doubt
    }
}

/// How many bytes of a live log are stored.
pub(crate) const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");

/// Marks an answer whose object has changed in the storage, or is gone: a retry cannot succeed.
const DAMAGED: HeaderName = HeaderName::from_static("plancha-damaged");

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, text) = (self.status(), self.text());
        if status.is_server_error() {
            tracing::error!(error = chain(&self.cause), "request failed");
        }
        let mut response = if let Cause::State(
            StateError::Locked(info) | StateError::Leased(info),
        ) = &self.cause
        {
            locked(info, &text)
        } else if self.route.has_burrito_texts() {
            plain(status, text)
        } else if let Cause::Approval(error) = &self.cause {
            problem(status, &text, &json!(refused_approval(error)))
        } else {
            problem(status, &text, &json!({}))
        };
        self.record();
        let headers = response.headers_mut();
        let damage = match self.cause {
            Cause::Store(StoreError::Corrupt(_)) => Some("1"),
            Cause::Store(StoreError::Lost(_)) => Some(LOST_OBJECT),
            _ => None,
        };
        if let Some(damage) = damage {
            headers.insert(DAMAGED, HeaderValue::from_static(damage));
        }
        if let Cause::Range { size } = self.cause {
            headers.insert(CONTENT_RANGE, value(&format!("bytes */{size}")));
        }
        if let Cause::Append(AppendError::Offset { end, .. }) = self.cause {
            headers.insert(UPLOAD_OFFSET, end.into());
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static(STATE_METHODS));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}

impl ApiError {
    /// Adds the error to the record of the request, for the metrics.
    fn record(&self) {
        RequestContext::with_current(|context| {
            if let Cause::Store(StoreError::Corrupt(_) | StoreError::Lost(_)) = self.cause {
                context.set_broken();
            }
            if let Some(reason) = self.cause.refusal() {
                context.set_refusal(reason);
            }
        });
    }
}

impl Cause {
    /// Which refusal it is: a limit or a missing permission. Invalid requests and other errors of the storage have none.
    fn refusal(&self) -> Option<Refusal> {
        Some(match self {
            Self::Forbidden(_) => Refusal::Forbidden,
            Self::Draining => Refusal::Draining,
            Self::Busy(_) => Refusal::Memory,
            Self::Crowded => Refusal::Connections,
            Self::Host(_) => Refusal::Host,
            Self::Head => Refusal::HeadSize,
            Self::NotReady(_) => Refusal::StorageNotReady,
            Self::TooLarge(_) | Self::LargeAppend | Self::Append(AppendError::TooLarge(_)) => {
                Refusal::Size
            }
            Self::Store(StoreError::Upload(error)) if error.is::<TooLarge>() => Refusal::Size,
            Self::Store(StoreError::Upload(error)) if error.is::<TooSlow>() => Refusal::TooSlow,
            Self::Store(StoreError::Full(_)) => Refusal::StorageFull,
            Self::Store(StoreError::Hung(_)) => Refusal::StorageHangs,
            _ => return None,
        })
    }
}

/// The status of an error about a state. 404 only where there is certainly no state: terraform takes it for an empty one.
fn state_status(error: &StateError, route: Route) -> StatusCode {
    match error {
        // terraform and tofu would show a lock without a holder.
        StateError::Place { .. } | StateError::TooManyWorkspaces(_)
            if route == Route::LockState =>
        {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        StateError::Locked(_) | StateError::Leased(_) => StatusCode::LOCKED,
        StateError::LeaseLost(_)
        | StateError::LockLost(_)
        | StateError::OtherLock { .. }
        | StateError::HolderAlive { .. }
        | StateError::Deleted
        | StateError::Lineage { .. }
        | StateError::Serial { .. }
        | StateError::LastSerial(_)
        | StateError::Place { .. }
        | StateError::NotDeleted
        | StateError::TooManyWorkspaces(_) => StatusCode::CONFLICT,
        StateError::NoState(_) => StatusCode::NOT_FOUND,
        StateError::Document(_) | StateError::UnreadableControl(_) => StatusCode::BAD_REQUEST,
        StateError::LargeControl(_) => StatusCode::PAYLOAD_TOO_LARGE,
        StateError::NotConditional => StatusCode::NOT_IMPLEMENTED,
        StateError::Elsewhere(_)
        | StateError::LockFileLost
        | StateError::Contention
        | StateError::Busy
        | StateError::NoMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
        StateError::Damaged(_) | StateError::DamagedDescription(_) | StateError::Store(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

impl From<AppendError> for Cause {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Store(error) => Self::Store(error),
            error => Self::Append(error),
        }
    }
}

impl From<ChangesError> for Cause {
    fn from(error: ChangesError) -> Self {
        match error {
            ChangesError::Store(error) => Self::Store(error),
            ChangesError::Plan(error) => Self::Plan(error),
            ChangesError::Busy => Self::Busy(Busy),
        }
    }
}

impl From<ApprovalError> for Cause {
    fn from(error: ApprovalError) -> Self {
        match error {
            ApprovalError::Store(error) => Self::Store(error),
            error => Self::Approval(error),
        }
    }
}

impl From<StateError> for Cause {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Store(StoreError::NotFound) => Self::State(StateError::Damaged(
                "something that belongs to the state is missing".to_owned(),
            )),
            StateError::Store(error) => Self::Store(error),
            StateError::Busy => Self::Busy(Busy),
            error => Self::State(error),
        }
    }
}

/// What terraform and tofu expect of a lock that another holds: its information, in JSON.
fn locked(info: &serde_json::Value, text: &str) -> Response {
    let mut body = info.clone();
    if let Some(body) = body.as_object_mut() {
        body.insert("detail".to_owned(), text.into());
    }
    (StatusCode::LOCKED, Json(body)).into_response()
}

/// The answer for an unknown path or method, with the text of Burrito's framework.
pub(crate) async fn not_found() -> Response {
    let json = [(CONTENT_TYPE, "application/json")];
    (StatusCode::NOT_FOUND, json, "{\"message\":\"Not Found\"}\n").into_response()
}

/// The answer for an unknown path. Terraform takes 404 for an empty state, so a wrong address of a state is an error.
pub(crate) async fn unknown_path(uri: Uri) -> Response {
    if is_like_state(uri.path()) {
        return Route::GetState.error()(Cause::Address).into_response();
    }
    not_found().await
}

/// The answer for a method that the address of a state does not have.
pub(crate) fn wrong_state_method() -> Response {
    Route::GetState.error()(Cause::Method).into_response()
}

/// A plain text answer as Burrito sends it.
pub(crate) fn plain(status: StatusCode, text: impl Into<String>) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=UTF-8")], text.into()).into_response()
}

/// What the problem document of a refused approval says beside its text.
fn refused_approval(error: &ApprovalError) -> RefusedApproval {
    let mut refused = RefusedApproval::default();
    match error {
        ApprovalError::Unknown => refused.unknown = true,
        ApprovalError::OtherSet(set) => refused.set = Some(*set),
        ApprovalError::Used(used) => refused.used = Some(used.clone()),
        ApprovalError::Expired(at) => refused.expired = Some(at.clone()),
        ApprovalError::Store(_) => {}
    }
    refused
}

/// A problem document with further members.
fn problem(status: StatusCode, detail: &str, members: &serde_json::Value) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let mut body = json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
    });
    for (name, member) in members.as_object().into_iter().flatten() {
        body[name] = member.clone();
    }
    (status, [(CONTENT_TYPE, "application/problem+json")], Json(body)).into_response()
}

/// A header value from text that contains only valid characters.
pub(crate) fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}
