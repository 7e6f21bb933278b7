//! The token of a caller, and its header.

use std::io::{self, Read as _};
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
    /// The token as it is now.
    pub fn secret(&self) -> Result<Option<SecretString>, ClientError> {
        let text = match self {
            Self::None => return Ok(None),
            Self::Text(text) => text.clone(),
            Self::File(path) => match read(path) {
                Ok(text) => SecretString::from(text),
                Err(error) => return Err(self.refused(&error.to_string())),
            },
        };
        let text = text.expose_secret().trim();
        if text.is_empty() { Err(self.refused("it is empty")) } else { Ok(Some(text.into())) }
    }

    pub(super) fn header(&self) -> Result<Option<HeaderValue>, ClientError> {
        let Some(secret) = self.secret()? else { return Ok(None) };
        let mut header = HeaderValue::from_str(secret.expose_secret())
            .map_err(|_| self.refused("it has characters that are not valid in a header"))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }

    fn refused(&self, reason: &str) -> ClientError {
        let path = match self {
            Self::File(path) => path,
            Self::None | Self::Text(_) => Path::new("PLANCHA_TOKEN"),
        };
        ClientError::Token { path: path.to_owned(), reason: reason.to_owned() }
    }
}

/// Reads a regular file of at most 1 MiB. Anything else, such as a named pipe, could block.
fn read(path: &Path) -> io::Result<String> {
    const LIMIT: u64 = 1 << 20;
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > LIMIT {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_could_block_is_not_read() {
        let error = Token::File("/dev/zero".into()).header().unwrap_err();
        assert!(error.to_string().contains("it is not a regular file"), "{error}");
    }
}
