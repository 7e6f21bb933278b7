//! What an error of `object_store` shows of a cloud's answer: its status, and whether a right is missing.

use crate::store::error::BoxError;

/// A denied access, and the right that it needs.
#[derive(Debug, thiserror::Error)]
#[error("it denies access; the datastore's credentials need the right {right}")]
pub(in crate::store) struct Denied {
    right: &'static str,
    #[source]
    source: BoxError,
}

impl Denied {
    pub(in crate::store) fn new(right: &'static str, source: impl Into<BoxError>) -> Self {
        Self { right, source: source.into() }
    }
}

/// What clouds answer with 403 although no right is missing: the clock or the credentials are wrong.
const NO_RIGHT_MISSING: [&str; 6] = [
    "RequestTimeTooSkewed",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AuthenticationFailed",
];

/// The same error with the name of the right, if the storage denied access.
pub(in crate::store) fn name_right(
    error: object_store::Error,
    right: &'static str,
) -> object_store::Error {
    let text = datastore_api::chain(&error);
    // S3 denies the deletion of a key in an answer with 200.
    let is_denied = status(&text) == Some(403) || text.contains("(code: AccessDenied)");
    if !is_denied || NO_RIGHT_MISSING.iter().any(|code| text.contains(code)) {
        return error;
    }
    match error {
        object_store::Error::PermissionDenied { path, source } => {
            let source = Denied::new(right, source).into();
            object_store::Error::PermissionDenied { path, source }
        }
        object_store::Error::Generic { store, source } => {
            object_store::Error::Generic { store, source: Denied::new(right, source).into() }
        }
        error => error,
    }
}

/// The code in the XML document of a cloud's answer.
pub(in crate::store) fn code(text: &str) -> Option<&str> {
    Some(text.split_once("<Code>")?.1.split_once('<')?.0)
}

/// The HTTP status of a backend, parsed from the error's text: `object_store` does not expose it.
pub(in crate::store) fn status(text: &str) -> Option<u16> {
    if text.contains("redirect without LOCATION") {
        return Some(301);
    }
    let (_, status) = text.split_once("status code: ")?;
    status.get(..3)?.parse().ok()
}
