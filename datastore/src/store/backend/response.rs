//! What an error of `object_store` shows of a cloud's answer: its status, and whether a right is missing.

use std::borrow::Cow;

use crate::store::error::BoxError;

/// A denied access, and the right that it needs.
#[derive(Debug, thiserror::Error)]
#[error("it denies access; the datastore's credentials need the right {right}")]
pub(in crate::store) struct Denied {
    right: Cow<'static, str>,
    #[source]
    source: BoxError,
}

impl Denied {
    pub(in crate::store) fn new(
        right: impl Into<Cow<'static, str>>,
        source: impl Into<BoxError>,
    ) -> Self {
        Self { right: right.into(), source: source.into() }
    }
}

/// What clouds answer if they do not accept the credentials.
const CREDENTIALS: [&str; 6] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "AuthenticationFailed",
];

/// What they answer if a right is missing. With other codes the account, the key or the clock is wrong.
const RIGHT_MISSING: [&str; 5] = [
    "AccessDenied",
    "AuthorizationPermissionMismatch",
    "AuthorizationServiceMismatch",
    "AuthorizationResourceTypeMismatch",
    "InsufficientAccountPermissions",
];

/// Whether an answer means that the credentials are not accepted: S3 answers 400 to those that have expired.
pub(in crate::store) fn refuses_credentials(text: &str) -> bool {
    match status(text) {
        Some(401) => true,
        Some(400 | 403) => CREDENTIALS.iter().any(|code| text.contains(code)),
        _ => false,
    }
}

/// The same error with the name of the right, if the storage denied access for want of one. The answer may name another
/// right, such as that to use a key.
pub(in crate::store) fn name_right(
    error: object_store::Error,
    right: &'static str,
) -> object_store::Error {
    let text = datastore_api::chain(&error);
    // S3 denies the deletion of a key in an answer with 200.
    let is_denied = status(&text) == Some(403) || text.contains("(code: AccessDenied)");
    let has_other_cause = code(&text).is_some_and(|code| !RIGHT_MISSING.contains(&code));
    if !is_denied || has_other_cause || refuses_credentials(&text) {
        return error;
    }
    let right = named_action(&text).map_or(Cow::Borrowed(right), Cow::Owned);
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

/// Codes of answers with 400 to a request that would succeed at another time.
const TRANSIENT: [&str; 12] = [
    "RequestTimeout",
    "IncompleteBody",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "InternalError",
    "OperationTimedOut",
    "ProvisionedThroughputExceededException",
    "ServerBusy",
    "ServiceUnavailable",
];

/// What other such codes contain. A service that limits requests has many names for that, and a key of KMS that cannot be
/// used now says nothing about conditions.
const TRANSIENT_PARTS: [&str; 5] =
    ["KMS.", "LimitExceeded", "SlowDown", "Throttl", "TooManyRequests"];

/// Whether the same request would get this status and code again. A 400 without a code may be that of a proxy at a bad
/// moment.
pub(in crate::store) fn is_permanent(status: Option<u16>, code: Option<&str>) -> bool {
    match status {
        Some(400) => code.is_some_and(|code| !code.is_empty() && !is_transient(code)),
        status => matches!(status, Some(405 | 501)),
    }
}

/// Whether an answer with this status is permanent, or may be so by its code.
pub(in crate::store) fn may_be_permanent(status: u16) -> bool {
    matches!(status, 400 | 405 | 501)
}

fn is_transient(code: &str) -> bool {
    TRANSIENT.contains(&code) || TRANSIENT_PARTS.iter().any(|part| code.contains(part))
}

/// The action that an answer of S3 names.
fn named_action(text: &str) -> Option<String> {
    let (_, action) = text.split_once("not authorized to perform: ")?;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == ':';
    let action = action.split(|c| !is_part(c)).next()?;
    (!action.is_empty()).then(|| action.to_owned())
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
