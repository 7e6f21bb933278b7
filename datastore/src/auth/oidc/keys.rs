//! The keys with which an issuer signs.

use datastore_api::json::Plain;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

/// How many keys of an issuer are used.
const MAX_KEYS: usize = 64;

/// A set of keys (RFC 7517), not checked yet: one that we do not understand must not hide the others.
#[derive(Deserialize)]
pub(super) struct KeySet {
    keys: Vec<Plain>,
}

/// The usable keys of an issuer.
#[derive(Debug, Default)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    public: DecodingKey,
}

impl Keys {
    /// The key of this id that signs with this algorithm. A token without an id needs an issuer with only one such key.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let mut fitting = self
            .0
            .iter()
            .filter(|key| key.algorithm == algorithm && (id.is_none() || key.id.as_deref() == id));
        let first = fitting.next()?;
        (id.is_some() || fitting.next().is_none()).then_some(&first.public)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<KeySet> for Keys {
    fn from(set: KeySet) -> Self {
        Self(set.keys.into_iter().filter_map(usable).take(MAX_KEYS).collect())
    }
}

/// A key for signatures of one of the algorithms that we accept; RS256 needs 2,048 bits, which is checked with each signature.
fn usable(Plain(jwk): Plain) -> Option<Key> {
    let jwk = serde_json::from_value::<Jwk>(jwk).ok()?;
    let (algorithm, name) = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    let common = &jwk.common;
    let is_for_it = common.key_algorithm.is_none_or(|of| of == name);
    let verifies = common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature)
        && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
    if !is_for_it || !verifies {
        return None;
    }
    let public = DecodingKey::from_jwk(&jwk).ok()?;
    Some(Key { id: common.key_id.clone(), algorithm, public })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn keys_of_other_kinds_and_uses_are_left_out() {
        let rsa = json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"});
        let with = |id: &str, more: Value| {
            let mut key = rsa.clone();
            key["kid"] = id.into();
            for (name, value) in more.as_object().unwrap() {
                key[name] = value.clone();
            }
            key
        };
        let set = json!({"keys": [
            with("plain", json!({})),
            with("signs", json!({"use": "sig", "alg": "RS256", "key_ops": ["verify"]})),
            with("encrypts", json!({"use": "enc"})),
            with("other", json!({"alg": "PS256"})),
            with("no-verify", json!({"key_ops": ["encrypt"]})),
            {"kid": "hmac", "kty": "oct", "k": "AQAB"},
            {"kid": "p384", "kty": "EC", "crv": "P-384", "x": "AQAB", "y": "AQAB"},
            {"kid": "p256", "kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"},
            {"kid": "x25519", "kty": "OKP", "crv": "X25519", "x": "AQAB"},
            {"kid": "ed", "kty": "OKP", "crv": "Ed25519", "x": "AQAB", "use": "sig"},
            {"kty": "new"}, 5, null,
        ]});
        let keys = Keys::from(serde_json::from_value::<KeySet>(set).unwrap());
        let ids = keys.0.iter().map(|key| key.id.as_deref().unwrap()).collect::<Vec<_>>();
        assert_eq!(ids, ["plain", "signs", "p256", "ed"]);
        assert!(keys.find(Some("plain"), Algorithm::RS256).is_some());
        assert!(keys.find(Some("plain"), Algorithm::ES256).is_none());
        assert!(keys.find(Some("none"), Algorithm::RS256).is_none());
        assert!(keys.find(None, Algorithm::RS256).is_none());
        assert!(keys.find(None, Algorithm::ES256).is_some());
    }
}
