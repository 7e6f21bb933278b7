//! Who calls: the token, and the header that carries it.

use std::path::{Path, PathBuf};

use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};

use super::ClientError;

/// Who calls. Sent as the whole `Authorization` header, without a scheme, as Burrito does.
#[derive(Clone, Debug)]
pub enum Token {
    /// Nobody in particular.
    None,
    /// The bearer of this token.
    Text(SecretString),
    /// The bearer of the token in this file, read for every request.
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
            .map_err(|_| refused(path, "it holds characters that no header may have"))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}
