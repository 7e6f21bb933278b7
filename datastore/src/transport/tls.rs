//! TLS on the port that we listen on, by a certificate that is read again when its files change.
//!
//! Whoever rotates certificates replaces files, two of them, and not at once; so files that do not fit
//! together are left alone until they do, and the last certificate serves meanwhile.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

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
    certificate: Certificate,
    /// The files that were read last, whatever came of it.
    seen: Seen,
}

#[derive(Clone)]
struct Certificate {
    acceptor: TlsAcceptor,
    /// Seconds since 1970; none if the certificate does not say it in a way that is understood.
    expires: Option<i64>,
}

/// What a file looks like from outside: its inode, its size, when it was changed.
type Seen = [Option<(u64, u64, i64, i64)>; 2];

/// The files are looked at so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> anyhow::Result<Self> {
        let seen = seen(&files);
        let certificate = read(&files)?;
        let current = Mutex::new(Current { certificate, seen });
        Ok(Self(Arc::new(Shared { files, current })))
    }

    /// What speaks TLS with whoever has just connected.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current().certificate.acceptor.clone()
    }

    /// When the certificate that serves now expires, in seconds since 1970.
    pub(crate) fn expires(&self) -> Option<i64> {
        self.current().certificate.expires
    }

    /// Reads the files again when they have changed, until `shutdown`. A file system that hangs costs one thread,
    /// and no caller waits for it.
    pub(crate) async fn watch(self, shutdown: CancellationToken) {
        while timeout(LOOK_EVERY, shutdown.cancelled()).await.is_err() {
            let tls = self.clone();
            if let Err(error) = spawn_blocking(move || tls.refresh()).await {
                tracing::error!(%error, "the certificate is not looked at any more");
                return;
            }
        }
    }

    fn refresh(&self) {
        let files = &self.0.files;
        let now = seen(files);
        if now == self.current().seen {
            return;
        }
        let certificate = read(files);
        let mut current = self.current();
        current.seen = now;
        match certificate {
            Ok(certificate) => {
                current.certificate = certificate;
                tracing::info!(%files, "the certificate has changed");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "the certificate stays the one before");
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.0.files).finish()
    }
}

fn seen(TlsFiles { cert, key }: &TlsFiles) -> Seen {
    [cert, key].map(|path| {
        let meta = std::fs::metadata(path).ok()?;
        Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
    })
}

fn read(TlsFiles { cert, key }: &TlsFiles) -> anyhow::Result<Certificate> {
    let at = |path: &Path| path.display().to_string();
    let chain =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| at(cert))?;
    anyhow::ensure!(!chain.is_empty(), "{}: there is no certificate in it", at(cert));
    let expires = chain.first().and_then(|leaf| {
        let (_, leaf) = x509_parser::parse_x509_certificate(leaf).ok()?;
        Some(leaf.validity().not_after.timestamp())
    });
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| at(key))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .with_context(|| format!("{} and {}", at(cert), at(key)))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Certificate { acceptor: TlsAcceptor::from(Arc::new(config)), expires })
}

impl fmt::Display for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.cert.display(), self.key.display())
    }
}
