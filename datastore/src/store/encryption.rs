//! Encryption at rest, in the format of Burrito: its settings, its key and how an object is stored.
//!
//! `cipher` encrypts and decrypts bytes; `content` recognises what an unmarked object is; only `object` knows the store.

pub(crate) mod cipher;
pub(crate) mod content;
pub(crate) mod object;

use std::fmt;
use std::str::FromStr;

use datastore_api::Sha256;
use secrecy::{ExposeSecret as _, SecretBox, SecretString};

/// The configured encryption at rest.
#[derive(Clone, Debug, Default)]
pub struct AtRest {
    /// The key; it also decrypts what Burrito has encrypted.
    pub key: Option<SecretString>,
    /// Whether new objects are encrypted.
    pub encrypts: bool,
}

/// The settings of a store, with the derived key.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct EncryptionSettings {
    pub(in crate::store) key: Option<EncryptionKey>,
    pub(in crate::store) encrypts: bool,
}

/// The derived key.
#[derive(Clone)]
pub(crate) struct EncryptionKey(std::sync::Arc<SecretBox<[u8; 32]>>);

/// The format in which an object is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredFormat {
    /// Plain bytes.
    Plain,
    /// Encrypted: the plain size and the id of the key, as far as they are known.
    Cbc(Option<u64>, Option<u32>),
}

impl AtRest {
    pub(crate) fn key(&self) -> Option<EncryptionKey> {
        let text = self.key.as_ref()?.expose_secret();
        Some(EncryptionKey(std::sync::Arc::new(SecretBox::new(Box::new(
            Sha256::of(text.as_bytes()).0,
        )))))
    }
}

impl EncryptionKey {
    /// An id that distinguishes keys and reveals nothing else.
    pub(crate) fn id(&self) -> u32 {
        let Sha256([a, b, c, d, ..]) = Sha256::of(self.0.expose_secret());
        u32::from_be_bytes([a, b, c, d])
    }
}

impl StoredFormat {
    /// The same format with the plain size.
    pub(crate) fn with_size(self, plain: u64) -> Self {
        match self {
            Self::Plain => Self::Plain,
            Self::Cbc(_, key) => Self::Cbc(Some(plain), key),
        }
    }
}

impl fmt::Display for StoredFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            Self::Cbc(size, key) => {
                let size = size.map(|size| size.to_string()).unwrap_or_default();
                let key = key.map(|key| format!("{key:08x}")).unwrap_or_default();
                write!(f, "cbc:{size}:{key}")
            }
        }
    }
}

impl FromStr for StoredFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = |_| unknown(text);
        match text.split(':').collect::<Vec<_>>()[..] {
            ["plain"] => Ok(Self::Plain),
            ["cbc", size, key] => {
                let size = (!size.is_empty()).then(|| size.parse()).transpose().map_err(invalid)?;
                let key = (!key.is_empty()).then(|| u32::from_str_radix(key, 16)).transpose();
                Ok(Self::Cbc(size, key.map_err(invalid)?))
            }
            _ => Err(unknown(text)),
        }
    }
}

fn unknown(text: &str) -> String {
    format!("`{text}` is not a stored format that this version knows")
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_format_parses_back_from_its_text() {
        for format in [
            StoredFormat::Plain,
            StoredFormat::Cbc(None, None),
            StoredFormat::Cbc(Some(13), None),
            StoredFormat::Cbc(None, Some(7)),
            StoredFormat::Cbc(Some(13), Some(u32::MAX)),
        ] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        for text in ["", "gcm", "cbc:", "cbc:x", "plain:1"] {
            text.parse::<StoredFormat>().unwrap_err();
        }
    }
}
