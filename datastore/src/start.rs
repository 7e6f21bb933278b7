//! Why the service cannot start, and the exit code for it: one list for `serve` and `check`.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use axum::BoxError;
use tokio::net::TcpSocket;

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
    #[error("cannot listen on {0}: {1}\nhint: {hint}", hint = listen_hint(.1))]
    Listen(SocketAddr, io::Error),
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

fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => {
            "another program listens there: end it, or choose another address with --listen"
        }
        ErrorKind::AddrNotAvailable => {
            "this machine has no such address: choose one of its own with --listen, or :PORT for all"
        }
        ErrorKind::PermissionDenied => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE: choose another one with --listen"
        }
        _ => "choose another address with --listen",
    }
}

/// Checks that the service could listen on one of these addresses. It does not listen, so that a service that starts at the
/// same time can.
pub(crate) fn try_listen(addresses: &[SocketAddr]) -> Result<(), StartError> {
    let mut failure = None;
    for address in addresses {
        match bind(*address) {
            Ok(()) => return Ok(()),
            Err(error) => failure = Some(error),
        }
    }
    match (addresses.first(), failure) {
        (Some(address), Some(error)) => Err(StartError::Listen(*address, error)),
        _ => Ok(()),
    }
}

fn bind(address: SocketAddr) -> io::Result<()> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As the service does. It may be bound several times as long as nobody listens.
    socket.set_reuseaddr(true)?;
    socket.bind(address)
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
