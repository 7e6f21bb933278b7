//! The token of a caller, and its header.

use std::path::{Path, PathBuf};

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};

use super::error::ClientError;

/// The token of a caller. It is sent as the whole `Authorization` header, without a scheme, as Burrito does.
#[derive(Clone, Debug)]
pub enum Token {
    /// No token.
    None,
    /// This token.
    Text(SecretString),
    /// The token in this file, which is read for every request.
    File(PathBuf),
}

impl Token {
    pub(super) fn header(&self) -> Result<Option<HeaderValue>, ClientError> {
        let refused = |path: &Path, reason: &str| ClientError::Token {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let (path, text) = match self {
            Self::None => return Ok(None),
            Self::Text(text) => (Path::new("PLANCHA_TOKEN"), text.clone()),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => (path.as_path(), SecretString::from(text)),
                Err(error) => return Err(refused(path, &error.to_string())),
            },
        };
        let text = text.expose_secret().trim();
        if text.is_empty() {
            return Err(refused(path, "it is empty"));
        }
        let mut header = HeaderValue::from_str(text)
            .map_err(|_| refused(path, "it has characters that are not valid in a header"))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}
