//! The settings of a client.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::error::ClientError;
use super::silence::Notify;
use super::token::Token;

/// How a client reaches its datastore.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL of the datastore; `/api/...` is appended to its path.
    pub url: Url,
    /// The token of the caller.
    pub token: Token,
    /// Files (PEM) of certificates to trust in addition to the system's.
    pub ca_files: Vec<PathBuf>,
    /// How long a datastore may neither answer nor transfer a byte, counted over all tries of a call. Each try may take
    /// half of it. After the first call that gave up, further calls wait for a twelfth of it.
    pub timeout: Duration,
    /// How often a failed call is retried.
    pub retries: usize,
    /// The first pause between tries. Each further one is twice as long, with jitter, at most 10 s.
    pub first_pause: Duration,
    /// Called with progress for a person who waits.
    pub notify: Option<Notify>,
}

impl Settings {
    /// The defaults for the datastore at `url`: no token, 60 s, 4 retries from 250 ms on.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            token: Token::None,
            ca_files: Vec::new(),
            timeout: Duration::from_mins(1),
            retries: 4,
            first_pause: Duration::from_millis(250),
            notify: None,
        }
    }
}

/// The certificates in a PEM file; at least one.
pub(super) fn certificates(file: &Path) -> Result<Vec<reqwest::Certificate>, ClientError> {
    let pem = fs_err::read(file)?;
    match reqwest::Certificate::from_pem_bundle(&pem) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(damaged(&[file.to_owned()])),
    }
}

/// One of these files has no certificates, or a damaged one.
pub(super) fn damaged(files: &[PathBuf]) -> ClientError {
    let files = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
    let files = files.join(" or ");
    ClientError::Setup(format!(
        "{files} contains no PEM certificates, or a damaged one; next: name a whole file of PEM certificates"
    ))
}
