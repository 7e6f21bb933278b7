//! The causes inside an error of the HTTP client.

use std::error::Error as _;
use std::io::ErrorKind;

pub(in crate::release) fn says(error: &reqwest::Error, word: &str) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.to_string().contains(word) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn io_kind(error: &reqwest::Error) -> Option<ErrorKind> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

/// Whether no connection was made: name resolution, route, port or timeout. A server or proxy with an unexpected response
/// does not count.
pub(in crate::release) fn is_no_connection(error: &reqwest::Error) -> bool {
    let unreachable = |kind| {
        matches!(
            kind,
            ErrorKind::ConnectionRefused
                | ErrorKind::NetworkUnreachable
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkDown
                | ErrorKind::AddrNotAvailable
                | ErrorKind::TimedOut
        )
    };
    error.is_dns() || error.is_timeout() || io_kind(error).is_some_and(unreachable)
}

/// Whether the server does not use TLS: `https://` with the port of `http://`.
pub(in crate::release) fn is_plain(error: &reqwest::Error) -> bool {
    says(error, "InvalidContentType")
}

/// Whether the connection failed in its handshake, so that a retry fails the same way.
pub(in crate::release) fn is_misunderstanding(error: &reqwest::Error) -> bool {
    let broken =
        [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::UnexpectedEof];
    error.is_connect() && !io_kind(error).is_some_and(|kind| broken.contains(&kind))
}
