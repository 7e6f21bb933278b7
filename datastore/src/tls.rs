//! TLS on the port that we listen on, by a certificate that is read again when its files change.
//!
//! Whoever rotates certificates replaces files, two of them, and not at once; so files that do not fit
//! together are left alone until they do, and the last certificate serves meanwhile.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

/// Where a certificate lies, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and its authority.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The certificate that serves now.
#[derive(Clone)]
pub(crate) struct Tls(Arc<Shared>);

struct Shared {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// The files that were read last, whatever came of it.
    seen: Seen,
    looked: Instant,
}

/// What a file looks like from outside: its inode, its size, when it was changed.
type Seen = [Option<(u64, u64, i64, i64)>; 2];

/// The files are looked at so often, when somebody connects.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> anyhow::Result<Self> {
        let seen = seen(&files);
        let acceptor = read(&files)?;
        let current = Mutex::new(Current { acceptor, seen, looked: Instant::now() });
        Ok(Self(Arc::new(Shared { files, current })))
    }

    /// What speaks TLS with whoever has just connected.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let Shared { files, current } = &*self.0;
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() >= LOOK_EVERY {
            current.looked = Instant::now();
            let now = seen(files);
            if now != current.seen {
                current.seen = now;
                match read(files) {
                    Ok(acceptor) => {
                        current.acceptor = acceptor;
                        tracing::info!(%files, "the certificate has changed");
                    }
                    Err(error) => {
                        let error = format!("{error:#}");
                        tracing::error!(error, "the certificate stays the one before");
                    }
                }
            }
        }
        current.acceptor.clone()
    }
}

fn seen(TlsFiles { cert, key }: &TlsFiles) -> Seen {
    [cert, key].map(|path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    })
}

fn read(TlsFiles { cert, key }: &TlsFiles) -> anyhow::Result<TlsAcceptor> {
    let at = |path: &Path| path.display().to_string();
    let chain =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| at(cert))?;
    anyhow::ensure!(!chain.is_empty(), "{}: there is no certificate in it", at(cert));
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| at(key))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .with_context(|| format!("{} and {}", at(cert), at(key)))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl fmt::Display for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.cert.display(), self.key.display())
    }
}
