//! Why a call failed.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::{Method, StatusCode};

use super::call::Call;
use super::sender::Sender;
use crate::digest::Sha256;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The datastore could not be reached, or the connection was lost.
    #[error("{call}: {reason}")]
    Transport {
        /// Method and URL, never the query or the token.
        call: String,
        /// Which of the two, and the cause, without the URL.
        reason: String,
    },
    /// One try made no progress.
    #[error("{call}: no progress for {}", seconds(*.idle))]
    TimedOut {
        /// Method and URL.
        call: String,
        /// How long it made none.
        idle: Duration,
    },
    /// The datastore was given up: no progress for `Settings::timeout`, over all tries.
    #[error("{call}: no response and no progress for {}", seconds(*.limit))]
    Silent {
        /// Method and URL.
        call: String,
        /// The limit.
        limit: Duration,
    },
    /// The datastore answered with an error.
    #[error("{call}: {status}{}{message}", if .message.is_empty() { "" } else { ": " })]
    Refused {
        /// Method and URL.
        call: String,
        /// Status of the response.
        status: StatusCode,
        /// The message of the datastore, at most 2 KiB of it.
        message: String,
        /// The value of `Retry-After`.
        retry_after: Option<Duration>,
        /// The program that answered.
        sender: Sender,
    },
    /// The stored bytes of the object have changed.
    #[error("{call}: the stored bytes have changed since they were stored{}", .digests.shown())]
    Damaged {
        /// Method and URL.
        call: String,
        /// The digests, as far as they are known.
        digests: Digests,
    },
    /// The object was stored, and its file is gone.
    #[error("{call}: {message}")]
    Lost {
        /// Method and URL.
        call: String,
        /// The message of the datastore, at most 2 KiB of it.
        message: String,
    },
    /// The answer is not valid.
    #[error("{call}: the answer cannot be read: {reason}")]
    Answer {
        /// Method and URL.
        call: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The datastore has no such route: it is an older one, or Burrito's.
    #[error(
        "{call}: this datastore does not support it: it is an older one of Plancha, or Burrito's own"
    )]
    Unsupported {
        /// Method and URL.
        call: String,
    },
    /// The received bytes do not match the digest.
    #[error("{call}: the received bytes have the SHA-256 {actual}, but {expected} was stored")]
    Digest {
        /// Method and URL.
        call: String,
        /// The digest that the datastore announced.
        expected: Sha256,
        /// The digest of the received bytes.
        actual: Sha256,
    },
    /// The token file cannot be read, or its content is not valid in a header.
    #[error("the token in {} cannot be used: {reason}", .path.display())]
    Token {
        /// The file, or `PLANCHA_TOKEN`.
        path: PathBuf,
        /// The reason, without the token.
        reason: String,
    },
    /// A local file could not be read or written.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The client could not be created, mostly because of a certificate file.
    #[error("{0}")]
    Setup(String),
}

impl ClientError {
    /// Whether the same call may succeed when it is retried.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::TimedOut { .. } | Self::Digest { .. } => true,
            // A proxy that has briefly lost its datastore may answer 404, too.
            Self::Refused { status: StatusCode::NOT_FOUND, sender: Sender::Unknown, .. } => true,
            Self::Refused { status, .. } => is_transient(*status),
            Self::Silent { .. }
            | Self::Unsupported { .. }
            | Self::Damaged { .. }
            | Self::Lost { .. }
            | Self::Answer { .. }
            | Self::Token { .. }
            | Self::File(_)
            | Self::Setup(_) => false,
        }
    }

    /// Whether no answer came, or only that of a server that is not well.
    pub fn is_unanswered(&self) -> bool {
        self.is_transient() || matches!(self, Self::Silent { .. })
    }

    /// Whether the datastore itself answered that the object does not exist. The answer to a HEAD has no body that could
    /// identify the datastore.
    pub(super) fn is_not_found(&self, call: &Call) -> bool {
        match self {
            Self::Refused { status: StatusCode::NOT_FOUND, sender, .. } => {
                *sender != Sender::Unknown || call.method == Method::HEAD
            }
            _ => false,
        }
    }

    /// The status of an error answer.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// The digests of an object whose stored bytes have changed, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// The digest of the bytes that were stored.
    pub expected: Option<Sha256>,
    /// The digest of the bytes that the storage has now.
    pub actual: Option<Sha256>,
}

impl Digests {
    fn shown(&self) -> String {
        let name = |sha256: Option<Sha256>| {
            sha256.map_or_else(|| "not known".to_owned(), |sha256| sha256.to_string())
        };
        match (self.expected, self.actual) {
            (None, None) => String::new(),
            (expected, actual) => {
                format!(": their SHA-256 is {}, it was {}", name(actual), name(expected))
            }
        }
    }
}

/// Whether a call with this status may succeed when it is retried.
pub(super) fn is_transient(status: StatusCode) -> bool {
    // 501: it does not support the request, and will not.
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || status == StatusCode::TOO_MANY_REQUESTS
}

/// A duration in seconds, to a tenth.
pub(super) fn seconds(duration: Duration) -> String {
    format!("{} s", (duration.as_secs_f64() * 10.0).round() / 10.0)
}

/// Texts of the layers of the HTTP client that name no cause.
const LAYERS: [&str; 8] = [
    "error sending request",
    "error decoding response body",
    "request or response body error",
    "client error (Connect)",
    "client error (SendRequest)",
    "dns error",
    "error resolving DNS",
    "tcp connect error",
];

/// The error of a call without an answer, or with an incomplete one.
pub(super) fn transport(call: String, error: reqwest::Error) -> ClientError {
    let error = error.without_url();
    let what = if error.is_connect() {
        "the datastore could not be reached"
    } else {
        "the connection to the datastore broke off"
    };
    let mut reason = what.to_owned();
    let mut cause: Option<&dyn Error> = Some(&error);
    while let Some(error) = cause {
        let text = error.to_string();
        // Some layers print their cause and also return it.
        if !LAYERS.contains(&text.as_str()) && !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        cause = error.source();
    }
    ClientError::Transport { call, reason }
}
