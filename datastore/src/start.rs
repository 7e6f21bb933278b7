//! Why the service cannot start, and the exit code for it: one list for `serve` and `check`.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::BoxError;
use nix::errno::Errno;
use tokio::net::{TcpListener, TcpSocket};

use crate::transport::limits::MIN_OPEN_FILES;
use crate::transport::open_files::raise_limit;

/// How many connections the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

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

/// Listens on these addresses.
///
/// Fails if one of them is not available: its clients would reach another program. An address of IPv4 or IPv6 may be missing on
/// a machine without that protocol, as long as there is another one. All addresses of IPv6 include those of IPv4. Port 0 is
/// the same free port on each address.
pub fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, StartError> {
    let mut port = 0;
    bind_each(addresses, |mut address| {
        if address.port() == 0 {
            address.set_port(port);
        }
        let listener = bind(address)?.listen(BACKLOG)?;
        port = listener.local_addr()?.port();
        Ok(listener)
    })
}

/// Checks that [`listen`] would succeed. It does not listen, so that a service that starts at the same time can.
pub(crate) fn try_listen(addresses: &[SocketAddr]) -> Result<(), StartError> {
    bind_each(addresses, bind).map(drop)
}

fn bind_each<T>(
    addresses: &[SocketAddr],
    mut bind: impl FnMut(SocketAddr) -> io::Result<T>,
) -> Result<Vec<T>, StartError> {
    let (mut bound, mut missing) = (Vec::new(), None);
    let mut binds_all = false;
    for address in addresses {
        if binds_all && address.ip() == Ipv4Addr::UNSPECIFIED {
            continue;
        }
        match bind(*address) {
            Ok(socket) => {
                binds_all |= address.ip() == Ipv6Addr::UNSPECIFIED;
                bound.push(socket);
            }
            Err(error) if is_missing(&error) => missing = Some((*address, error)),
            Err(error) => return Err(StartError::Listen(*address, error)),
        }
    }
    match missing {
        Some((address, error)) if bound.is_empty() => Err(StartError::Listen(address, error)),
        _ => Ok(bound),
    }
}

/// Whether the machine has no such address.
fn is_missing(error: &io::Error) -> bool {
    let of = |errno: Errno| error.raw_os_error() == Some(errno as i32);
    of(Errno::EADDRNOTAVAIL) || of(Errno::EAFNOSUPPORT)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // It may be bound several times as long as none of the sockets listens.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
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
