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
    /// Something about those who tell who a caller is.
    #[error("cannot tell callers apart")]
    Callers(#[source] anyhow::Error),
    /// The certificate cannot be read, or does not fit its key.
    #[error("cannot use the certificate")]
    Certificate(#[source] anyhow::Error),
    /// The address cannot be had.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The system refuses what every process needs.
    #[error("cannot start")]
    Process(#[source] io::Error),
}

impl StartError {
    /// The exit code, of the one list for all commands.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Storage(..) => 10,
            Self::Callers(_) | Self::Certificate(_) => 8,
            Self::Listen(..) | Self::Process(_) => 1,
        }
    }
}
