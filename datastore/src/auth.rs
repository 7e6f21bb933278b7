//! Who may ask.
//!
//! Every request below `/api` passes here, before its query is read. So far there is one way, `none`,
//! which admits everybody, with or without an `Authorization` header; [`crate::config`] sees to it
//! that this happens on a loopback address only, or because it was asked for by its name.

use std::fmt;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

/// How callers are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// They are not: everybody may do everything.
    None,
}

pub(crate) async fn admit(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    match auth {
        Auth::None => next.run(request).await,
    }
}

impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
        }
    }
}
