//! TLS, with a certificate that is reloaded when its files change.
//!
//! A rotation replaces two files, one after the other. While certificate and key do not match, the previous ones stay in
//! use.

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

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and its intermediate certificates.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The certificate in use.
#[derive(Clone)]
pub(crate) struct Tls(Arc<Shared>);

struct Shared {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    certificate: Certificate,
    /// Its files, as they were when they were read.
    files: Fingerprint,
    /// Why newer files could not be loaded.
    failure: Option<String>,
}

#[derive(Clone)]
struct Certificate {
    acceptor: TlsAcceptor,
    /// Its expiry in seconds since 1970; none if that cannot be parsed.
    expires: Option<i64>,
}

/// The inode, size and modification time of both files.
type Fingerprint = [Option<(u64, u64, i64, i64)>; 2];

/// How often the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> anyhow::Result<Self> {
        let fingerprint = fingerprint(&files);
        let certificate = read(&files)?;
        let current = Mutex::new(Current { certificate, files: fingerprint, failure: None });
        Ok(Self(Arc::new(Shared { files, current })))
    }

    /// The acceptor for a new connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current().certificate.acceptor.clone()
    }

    /// When the certificate in use expires, in seconds since 1970.
    pub(crate) fn expires(&self) -> Option<i64> {
        self.current().certificate.expires
    }

    /// Reloads the files when they have changed, until `shutdown`. If the file system hangs, one thread waits, and no caller.
    pub(crate) async fn watch(self, shutdown: CancellationToken) {
        while timeout(CHECK_INTERVAL, shutdown.cancelled()).await.is_err() {
            let tls = self.clone();
            if let Err(error) = spawn_blocking(move || tls.refresh()).await {
                tracing::error!(%error, "the certificate is no longer checked for changes");
                return;
            }
        }
    }

    /// Reads files that have changed. If that fails, they are read again the next time: corrected permissions do not show in a
    /// fingerprint.
    fn refresh(&self) {
        let files = &self.0.files;
        let now = fingerprint(files);
        if now == self.current().files {
            return;
        }
        let certificate = read(files).map_err(|error| format!("{error:#}"));
        let mut current = self.current();
        match certificate {
            Ok(certificate) => {
                *current = Current { certificate, files: now, failure: None };
                tracing::info!(%files, "the certificate was reloaded");
            }
            Err(error) if current.failure.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::error!(
                    error,
                    "cannot load the new certificate; the previous one stays in use"
                );
                current.failure = Some(error);
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

fn fingerprint(TlsFiles { cert, key }: &TlsFiles) -> Fingerprint {
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
    anyhow::ensure!(!chain.is_empty(), "{}: the file has no certificate", at(cert));
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
