//! Why the service cannot start, and the exit code for it: one list for `serve` and `check`.

use std::io;
use std::net::SocketAddr;

use axum::BoxError;

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The storage cannot be opened.
    #[error("cannot use the storage {0}")]
    Storage(String, #[source] BoxError),
    /// The source of accounts or tokens cannot be used.
    #[error("cannot authenticate callers")]
    Callers(#[source] anyhow::Error),
    /// The certificate cannot be read, or does not match its key.
    #[error("cannot use the certificate")]
    Certificate(#[source] anyhow::Error),
    /// The address is not available.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The operating system refuses something that every process needs.
    #[error("cannot start")]
    Process(#[source] io::Error),
}

impl StartError {
    /// The exit code; `docs/datastore.md` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Storage(..) => 10,
            Self::Callers(_) | Self::Certificate(_) => 8,
            Self::Listen(..) | Self::Process(_) => 1,
        }
    }
}
