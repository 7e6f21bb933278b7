//! Why the service cannot start, and the exit code for it: one list for `serve` and `check`.

use std::io;
use std::net::SocketAddr;

use axum::BoxError;

use crate::transport::limits::MIN_OPEN_FILES;
use crate::transport::open_files::raise_limit;

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
    /// The limit of open files is too low.
    #[error(
        "the limit of open files (RLIMIT_NOFILE) is {0}, and the datastore needs at least {least}\nhint: raise \
         the hard limit to 4096 or more, by `ulimit -n`, LimitNOFILE= in systemd, or the settings of the container runtime",
        least = MIN_OPEN_FILES
    )]
    OpenFiles(u64),
    /// The operating system refuses something that every process needs.
    #[error("cannot start")]
    Process(#[source] io::Error),
}

/// Raises the limit of open files as far as it can, and returns it. Fails if it is too low for the service.
pub fn raise_open_files() -> Result<u64, StartError> {
    let limit = raise_limit().map_err(StartError::Process)?;
    if limit < MIN_OPEN_FILES { Err(StartError::OpenFiles(limit)) } else { Ok(limit) }
}

impl StartError {
    /// The exit code; `docs/datastore.md` lists them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Storage(..) => 10,
            Self::Callers(_) | Self::Certificate(_) | Self::OpenFiles(_) => 8,
            Self::Listen(..) | Self::Process(_) => 1,
        }
    }
}
