//! Why a caller is not authenticated. The answer has Burrito's status and text.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use crate::auth::site::Foreign;
use crate::observe::refusal::Refusal;

/// Why a caller is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AuthError {
    NoToken,
    Invalid,
    NotAllowed,
    Unavailable,
    /// A page of another site may have sent the request.
    Foreign(Foreign),
}

impl AuthError {
    /// The refusal that it counts as.
    pub(super) fn reason(self) -> Refusal {
        match self {
            Self::NoToken => Refusal::NoToken,
            Self::Invalid => Refusal::InvalidToken,
            Self::NotAllowed => Refusal::Unlisted,
            Self::Unavailable => Refusal::TokenUnverified,
            Self::Foreign(_) => Refusal::Origin,
        }
    }
}

impl IntoResponse for AuthError {
    fn into_response(self) -> Response {
        let (status, message) = match self {
            Self::NoToken => (StatusCode::UNAUTHORIZED, "missing Authorization header"),
            Self::Invalid => (StatusCode::UNAUTHORIZED, "invalid token"),
            Self::NotAllowed => (StatusCode::UNAUTHORIZED, "unauthorized user"),
            Self::Unavailable => (StatusCode::INTERNAL_SERVER_ERROR, "error validating token"),
            Self::Foreign(reason) => (StatusCode::FORBIDDEN, reason.text()),
        };
        let json = [(CONTENT_TYPE, "application/json")];
        (status, json, format!("{{\"message\":\"{message}\"}}\n")).into_response()
    }
}
