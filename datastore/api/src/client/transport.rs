//! What the transport reports, on one line.

use std::error::Error;

use super::ClientError;

/// Layers of the HTTP client that name no cause.
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

/// A call that got no answer, or only a part of one.
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
        // Some layers print their cause as well as returning it.
        if !LAYERS.contains(&text.as_str()) && !reason.contains(&text) {
            reason = format!("{reason}: {text}");
        }
        cause = error.source();
    }
    ClientError::Transport { call, reason }
}
