//! Tokens of callers, by their digests, so that a file of tokens is not a secret.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use datastore_api::Sha256;

/// The digests of tokens with their ids. One id may have several, so that a token can be replaced without a gap.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(Vec<(String, Sha256)>);

impl Tokens {
    pub(super) fn add(&mut self, id: &str, sha256: Sha256) {
        self.0.push((id.to_owned(), sha256));
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.0.iter().any(|(known, _)| known == id)
    }

    /// The id of the token with this digest. It is compared with every known one, each in constant time.
    pub(super) fn id(&self, sha256: Sha256) -> Option<&str> {
        let is_it = |known: &Sha256| verify_slices_are_equal(&known.0, &sha256.0).is_ok();
        self.0
            .iter()
            .fold(None, |found, (id, known)| if is_it(known) { Some(id) } else { found })
            .map(String::as_str)
    }
}
