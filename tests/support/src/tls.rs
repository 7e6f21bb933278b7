//! TLS in front of a plain server on loopback, by a certificate of the tests' own authority (in
//! `tests/fixtures/tls`, whose key was thrown away); and proxies.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A server that speaks TLS and forwards what it gets to another, until it is dropped.
pub struct TlsFront {
    address: SocketAddr,
    _shutdown: DropGuard,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/tls").join(name)
}

impl TlsFront {
    /// One in front of `behind`, an `http://` address.
    pub fn before(behind: &str) -> Self {
        Self::with("server", behind)
    }

    /// One whose certificate is self-signed, and an authority's.
    pub fn self_signed(behind: &str) -> Self {
        Self::with("self-signed", behind)
    }

    fn with(name: &str, behind: &str) -> Self {
        let pem = |end: &str| fixture(&format!("{name}.{end}"));
        let certificate = CertificateDer::from_pem_file(pem("pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(pem("key")).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let behind: SocketAddr = behind.strip_prefix("http://").unwrap().parse().unwrap();
        let (address, shutdown) = listen(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                // A client that does not trust us goes away.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut plain = TcpStream::connect(behind).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut stream, &mut plain).await);
            }
        });
        Self { address, _shutdown: shutdown }
    }

    /// The certificate of its authority.
    pub fn ca_file(&self) -> PathBuf {
        fixture("ca.pem")
    }

    /// The certificate of [`Self::self_signed`].
    pub fn own_certificate() -> PathBuf {
        fixture("self-signed.pem")
    }

    /// Its `https://` address.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// A proxy for `CONNECT`, until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    _shutdown: DropGuard,
}

impl Proxy {
    /// One that lets everybody through.
    pub fn open() -> Self {
        Self::answering("HTTP/1.1 200 OK\r\n\r\n", true)
    }

    /// One that gives this answer to every request and forwards none.
    pub fn refusing(answer: &'static str) -> Self {
        Self::answering(answer, false)
    }

    fn answering(answer: &'static str, through: bool) -> Self {
        let (address, shutdown) = listen(move |mut stream| async move {
            // The request comes in one piece and is read whole: closing before that would be a reset.
            let mut request = vec![0; 16 << 10];
            let Ok(length) = stream.read(&mut request).await else { return };
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let target = request.split_whitespace().nth(1).unwrap_or_default().to_owned();
            stream.write_all(answer.as_bytes()).await.unwrap();
            if through {
                let mut other = TcpStream::connect(target).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut stream, &mut other).await);
            }
        });
        Self { address, _shutdown: shutdown }
    }

    /// Its `http://` address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A server that resets every connection as soon as there is one, until it is dropped.
pub struct Resetting {
    address: SocketAddr,
    _shutdown: DropGuard,
}

impl Resetting {
    /// Begins to do so.
    pub fn start() -> Self {
        let (address, shutdown) = listen(|mut stream| async move {
            // A connection that is closed with something unread is reset.
            drop(stream.read_u8().await);
        });
        Self { address, _shutdown: shutdown }
    }

    /// Its `http://` address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Serves in a thread of its own.
fn listen<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, DropGuard) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let stopped = shutdown.clone().cancelled_owned();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            let accept = async {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream));
                }
            };
            tokio::select! {
                () = stopped => {}
                () = accept => {}
            }
        });
    });
    (address, shutdown.drop_guard())
}
