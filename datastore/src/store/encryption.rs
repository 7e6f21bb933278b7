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

/// How bytes lie at rest, as it was configured.
#[derive(Clone, Debug, Default)]
pub struct AtRest {
    /// What reads whatever upstream has encrypted.
    pub key: Option<SecretString>,
    /// Whether what is put is encrypted, as upstream does it.
    pub encrypts: bool,
}

/// The settings of a store, with the key as the cipher takes it.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct EncryptionSettings {
    pub(in crate::store) key: Option<EncryptionKey>,
    pub(in crate::store) encrypts: bool,
}

/// The key, as the cipher takes it.
#[derive(Clone)]
pub(crate) struct EncryptionKey(std::sync::Arc<SecretBox<[u8; 32]>>);

/// How one object lies at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredFormat {
    /// As it was put.
    Plain,
    /// Encrypted: so many bytes were put, under the key of this id, as far as that is known.
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
    /// Tells it from another key, and nothing else of it.
    pub(crate) fn id(&self) -> u32 {
        let Sha256([a, b, c, d, ..]) = Sha256::of(self.0.expose_secret());
        u32::from_be_bytes([a, b, c, d])
    }
}

impl StoredFormat {
    /// The same, once it is known how many bytes were put.
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
    fn a_form_reads_back_as_it_is_written_down() {
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
