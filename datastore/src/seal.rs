//! How bytes lie at rest.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use datastore_api::Sha256;
use secrecy::{ExposeSecret as _, SecretString};

/// How bytes lie at rest, as it was configured.
#[derive(Clone, Debug, Default)]
pub struct AtRest {
    /// What reads whatever upstream has encrypted.
    pub key: Option<SecretString>,
    /// Whether what is put is encrypted, as upstream does it.
    pub encrypts: bool,
}

impl AtRest {
    /// Whether this is the key; none if there is no key.
    pub(crate) fn is_key(&self, given: &SecretString) -> Option<bool> {
        let digest = |key: &SecretString| Sha256::of(key.expose_secret().as_bytes()).0;
        let key = self.key.as_ref()?;
        Some(verify_slices_are_equal(&digest(key), &digest(given)).is_ok())
    }
}
