//! Downloads: bounded in time and size, tried again where that may help.
//!
//! The client is made when the first byte is needed, since reading the system's certificates costs
//! more than all the rest of a run without downloads. Proxies are taken from the environment.

use std::error::Error as _;
use std::fs::File;
use std::io::{ErrorKind, Seek as _, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use datastore_api::Sha256;
use datastore_api::digest::Hasher;
use fs_err as fs;
use reqwest::header::{ETAG, HeaderValue, IF_NONE_MATCH};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, Response, StatusCode};

use super::error::ReleaseError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest silence in the middle of an answer.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 10;
/// Tries after the first, with waits of about 0.2, 0.4 and 0.8 s between them.
const RETRIES: usize = 3;

/// Fetches URLs.
pub(super) struct Http {
    ca_file: Option<PathBuf>,
    client: OnceLock<Client>,
}

/// A body, and its tag if it has one.
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    pub(super) etag: Option<String>,
}

impl Http {
    pub(super) fn new(ca_file: Option<PathBuf>) -> Self {
        Self { ca_file, client: OnceLock::new() }
    }

    /// The whole body.
    pub(super) async fn get(&self, url: &str, limit: u64) -> Result<Vec<u8>, ReleaseError> {
        match self.get_changed(url, limit, None).await? {
            Some(answer) => Ok(answer.body),
            None => Err(ReleaseError::Refused { url: shown(url), status: 304 }),
        }
    }

    /// The whole body, or `None` where it still has the `etag`.
    pub(super) async fn get_changed(
        &self,
        url: &str,
        limit: u64,
        etag: Option<&str>,
    ) -> Result<Option<Answer>, ReleaseError> {
        let once = async || {
            let mut response = self.ask(url, etag).await?;
            if response.status() == StatusCode::NOT_MODIFIED {
                return Ok(None);
            }
            let etag = response.headers().get(ETAG).and_then(|value| value.to_str().ok());
            let etag = etag.map(str::to_owned);
            let mut body = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(|error| failed(url, error))? {
                body.extend_from_slice(&piece);
                within(url, body.len() as u64, limit)?;
            }
            Ok(Some(Answer { body, etag }))
        };
        retried(once).await
    }

    /// The digest of the body, which is then the whole content of `file`.
    pub(super) async fn download(
        &self,
        url: &str,
        limit: u64,
        file: &File,
    ) -> Result<Sha256, ReleaseError> {
        let once = async || {
            let mut response = self.ask(url, None).await?;
            let mut out = file;
            out.set_len(0)?;
            out.rewind()?;
            let (mut hasher, mut size) = (Hasher::default(), 0);
            while let Some(piece) = response.chunk().await.map_err(|error| failed(url, error))? {
                size += piece.len() as u64;
                within(url, size, limit)?;
                hasher.update(&piece);
                out.write_all(&piece).map_err(|error| told("writing the archive", &error))?;
            }
            Ok(hasher.finish())
        };
        retried(once).await
    }

    async fn ask(&self, url: &str, etag: Option<&str>) -> Result<Response, ReleaseError> {
        let mut request = self.client()?.get(url);
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let response = request.send().await.map_err(|error| failed(url, error))?;
        let (url, status) = (shown(url), response.status());
        match status.as_u16() {
            200 | 304 => Ok(response),
            404 | 410 => Err(ReleaseError::NotFound(url)),
            408 | 429 | 500..=599 => {
                Err(ReleaseError::Busy { url, status: status.as_u16(), tries: RETRIES + 1 })
            }
            status => Err(ReleaseError::Refused { url, status }),
        }
    }

    fn client(&self) -> Result<&Client, ReleaseError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut builder = Client::builder()
            .user_agent(concat!("plancha/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(Policy::custom(redirect));
        if let Some(path) = &self.ca_file {
            let pem = fs::read(path).map_err(ReleaseError::Unreadable)?;
            let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if certificates.is_empty() {
                return Err(ReleaseError::CaFile(path.clone()));
            }
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build().map_err(ReleaseError::Client)?;
        Ok(self.client.get_or_init(|| client))
    }
}

fn redirect(attempt: Attempt) -> reqwest::redirect::Action {
    let secure = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if attempt.previous().len() > MAX_REDIRECTS {
        attempt.error("more than ten redirects")
    } else if secure && attempt.url().scheme() != "https" {
        attempt.error("from https to http")
    } else {
        attempt.follow()
    }
}

async fn retried<T>(once: impl AsyncFn() -> Result<T, ReleaseError>) -> Result<T, ReleaseError> {
    let waits = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_times(RETRIES)
        .with_jitter();
    let mut unreachable = 0;
    let is_transient = |error: &ReleaseError| match error {
        ReleaseError::Busy { .. } => true,
        ReleaseError::Transfer { source, .. } => !is_misunderstanding(source),
        // Something else may stand in, and five seconds of silence are long enough.
        ReleaseError::Unreachable { source, .. } => {
            unreachable += 1;
            unreachable < 2 && !source.is_timeout()
        }
        _ => false,
    };
    (|| once()).retry(waits).when(is_transient).await
}

fn within(url: &str, size: u64, limit: u64) -> Result<(), ReleaseError> {
    if size > limit { Err(ReleaseError::TooLarge { url: shown(url), limit }) } else { Ok(()) }
}

fn failed(url: &str, error: reqwest::Error) -> ReleaseError {
    let url = shown(url);
    // It would show the URL again, and perhaps a password in it.
    let source = error.without_url();
    if source.is_redirect() {
        ReleaseError::Redirect { url, source }
    } else if source.is_connect() && is_no_connection(&source) {
        ReleaseError::Unreachable { url, source }
    } else {
        ReleaseError::Transfer { url, source }
    }
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
fn is_no_connection(error: &reqwest::Error) -> bool {
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

/// Whether both sides never came to an understanding: an unknown certificate, no TLS at all, a proxy
/// that refuses. The same will happen again.
fn is_misunderstanding(error: &reqwest::Error) -> bool {
    let broken =
        [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::UnexpectedEof];
    error.is_connect() && !io_kind(error).is_some_and(|kind| broken.contains(&kind))
}

/// The same error with what was being done: a file without a name cannot tell.
fn told(doing: &str, error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{doing}: {error}"))
}

/// The URL without a password.
pub(super) fn shown(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut url) if url.password().is_some() => match url.set_password(Some("***")) {
            Ok(()) => url.into(),
            Err(()) => String::new(),
        },
        _ => url.to_owned(),
    }
}
