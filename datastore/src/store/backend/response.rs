//! What an error of `object_store` shows of a cloud's answer: its status, and why it refuses a request (a missing right, the
//! credentials, the clock, too many requests). It knows no request.

use std::borrow::Cow;

use axum::http::StatusCode;

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

/// A refusal for another reason than a missing right, in words.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(in crate::store) struct Refused {
    words: &'static str,
    #[source]
    source: BoxError,
}

/// What clouds answer if they do not accept the credentials.
const CREDENTIALS: [&str; 8] = [
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidSecurity",
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

/// What S3 and servers like it answer if the clocks differ. The last two are messages to a signed URL, whose code is
/// `AccessDenied`.
const CLOCK: [&str; 4] =
    ["RequestTimeTooSkewed", "RequestExpired", "Request has expired", "Request is not valid yet"];

/// Whether the storage refuses the request because of the clock.
pub(in crate::store) fn blames_clock(text: &str) -> bool {
    CLOCK.iter().any(|part| text.contains(part))
}

/// Whether the storage refuses a request because there are too many.
fn is_throttled(text: &str) -> bool {
    status(text) == Some(429)
        || code(text).is_some_and(|code| THROTTLED.iter().any(|part| code.contains(part)))
}

/// Why the storage refuses a request, in words that any caller may read, if it says so and the reason is no missing right.
pub(in crate::store) fn refusal(text: &str) -> Option<&'static str> {
    if blames_clock(text) {
        Some("it refuses the time of this machine's clock: set the clock, by NTP for example")
    } else if refuses_credentials(text) {
        Some("it does not accept the datastore's credentials")
    } else if is_throttled(text) {
        Some("it limits the rate of requests: try again later")
    } else {
        None
    }
}

/// The error of an answer to a request that `object_store` does not offer, with the reason that it names. `right` is what
/// the request needs.
pub(in crate::store) fn answer_error(
    status: StatusCode,
    body: &str,
    right: &'static str,
) -> BoxError {
    let answer = format!("the answer has the status code: {status}: {body}");
    let words = refusal(&answer);
    let source = match words {
        Some(words) => Refused { words, source: answer.into() }.into(),
        None => answer.into(),
    };
    name_right(object_store::Error::Generic { store: "storage", source }, right).into()
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
    if !is_denied || has_other_cause || refuses_credentials(&text) || blames_clock(&text) {
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
const TRANSIENT: [&str; 11] = [
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
    "ServiceUnavailable",
];

/// What the codes of a service that limits requests contain: there are many.
const THROTTLED: [&str; 5] =
    ["LimitExceeded", "ServerBusy", "SlowDown", "Throttl", "TooManyRequests"];

/// A part of codes about a key of KMS that cannot be used now, which says nothing about conditions.
const KMS: &str = "KMS.";

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
    TRANSIENT.contains(&code)
        || code.contains(KMS)
        || THROTTLED.iter().any(|part| code.contains(part))
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
