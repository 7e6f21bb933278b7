//! Why a request failed, as far as the HTTP client's error shows it.

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

/// Whether not even the other side's name or port could be had. A server or proxy that answers in a
/// way that is not understood does not count.
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

/// Whether the other side does not speak TLS at all: `http` on the port that was asked for `https`.
pub(in crate::release) fn is_plain(error: &reqwest::Error) -> bool {
    says(error, "InvalidContentType")
}

/// Whether both sides never came to an understanding: no TLS at all, for one. The same will happen
/// again.
pub(in crate::release) fn is_misunderstanding(error: &reqwest::Error) -> bool {
    let broken =
        [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::UnexpectedEof];
    error.is_connect() && !io_kind(error).is_some_and(|kind| broken.contains(&kind))
}
