//! `OpenPGP` signatures of a release's digests.
//!
//! The `pgp` crate does the cryptography; this module decides whether a key is trusted. A key must be valid at the time of
//! the signature: releases stay valid when their key expires later. Where keys and signatures come from is not known here.

use std::time::SystemTime;

use pgp::composed::{Deserializable as _, DetachedSignature, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{PublicKey, RevocationCode, Signature, SignatureType};
use pgp::types::{Duration, KeyDetails, Tag, Timestamp};

/// `HashiCorp`'s key, with where it comes from.
pub(in crate::release) const HASHICORP: &[u8] = include_bytes!("hashicorp.asc");
pub(in crate::release) const HASHICORP_FINGERPRINT: &str =
    "c874011f0ab405110d02105534365d9472d7468f";
pub(in crate::release) const OPENTOFU_FINGERPRINT: &str =
    "e3e6e43d84cb852eadb0051d0c0af313e5fd9f80";
pub(in crate::release) const GRUNTWORK_FINGERPRINT: &str =
    "68c80f86df98e710c0f22e2e577774aca847cc49";
/// `HashiCorp`'s former key, which leaked in 2021 (HCSEC-2021-12).
const LEAKED: &str = "91a6e7f85d05c65630bef18951852d87348ffc4c";

/// How far a signer's clock may run ahead of ours.
const SKEW: u32 = 24 * 3600;
/// A limit against files that are made to take long.
const MAX_ITEMS: usize = 64;

/// Why a signature is not accepted, or a key cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignatureError {
    /// It does not parse.
    #[error("not an OpenPGP {0}")]
    Malformed(&'static str),
    /// It was made by an unknown key.
    #[error("it was made by the unknown key {0}")]
    UnknownKey(String),
    /// It was made by a revoked key.
    #[error("it was made by the key {0}, which is revoked")]
    Revoked(String),
    /// It was made by a trusted key, but over other bytes.
    #[error("the file differs from the one that the key {0} signed")]
    Forged(String),
    /// The key may not sign, or not at that time.
    #[error("the key {0} {1}")]
    NotValid(String, &'static str),
    /// Its kind or hash is too weak.
    #[error("it is {0}")]
    Weak(&'static str),
}

/// Trusted keys.
#[derive(Clone, Debug, Default)]
pub(in crate::release) struct Keys(Vec<SignedPublicKey>);

impl Keys {
    /// Parses every key in a file: binary, or any number of armored blocks with any text between them.
    pub(in crate::release) fn parse(bytes: &[u8]) -> Result<Self, SignatureError> {
        const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
        let text = str::from_utf8(bytes).unwrap_or_default();
        let blocks = text.match_indices(BEGIN).take(MAX_ITEMS);
        let mut starts: Vec<_> = blocks.map(|(start, _)| Some(start)).collect();
        if starts.is_empty() {
            starts.push(None);
        }
        let mut keys = Vec::new();
        for start in starts {
            let read = match start {
                Some(start) => SignedPublicKey::from_armor_many_buf(&bytes[start..]).map(|it| it.0),
                None => SignedPublicKey::from_bytes_many(bytes),
            };
            let block = read.and_then(|block| block.take(MAX_ITEMS).collect::<Result<Vec<_>, _>>());
            keys.extend(block.map_err(|_| SignatureError::Malformed("public key"))?);
        }
        if keys.is_empty() {
            return Err(SignatureError::Malformed("public key"));
        }
        Ok(Self(keys))
    }

    /// Whether it contains a key with this fingerprint.
    pub(in crate::release) fn has(&self, fingerprint: &str) -> bool {
        self.0.iter().any(|key| key.fingerprint().to_string() == fingerprint)
    }

    /// Keeps only the key with this fingerprint; it may occur several times.
    pub(in crate::release) fn only(mut self, fingerprint: &str) -> Self {
        self.0.retain(|key| key.fingerprint().to_string() == fingerprint);
        self
    }

    pub(in crate::release) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Verifies a signature of `data`; returns the fingerprint of the key that made it.
    pub(in crate::release) fn verify(
        &self,
        data: &[u8],
        signature: &[u8],
    ) -> Result<String, SignatureError> {
        let broken = |_| SignatureError::Malformed("signature");
        let (signatures, _) = DetachedSignature::from_reader_many_buf(signature).map_err(broken)?;
        let mut refusal = SignatureError::Malformed("signature");
        for signature in signatures.take(MAX_ITEMS) {
            match self.verify_one(data, &signature.map_err(broken)?.signature) {
                Ok(fingerprint) => return Ok(fingerprint),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }

    fn verify_one(&self, data: &[u8], signature: &Signature) -> Result<String, SignatureError> {
        if signature.typ() != Some(SignatureType::Binary) {
            return Err(SignatureError::Weak("not a signature over a file"));
        }
        if !is_strong(signature) {
            return Err(SignatureError::Weak("made with an insecure hash"));
        }
        let made = signature.created().ok_or(SignatureError::Weak("without a creation time"))?;
        let now = Timestamp::try_from(SystemTime::now()).map_or(u32::MAX, Timestamp::as_secs);
        if made.as_secs() > now.saturating_add(SKEW) {
            return Err(SignatureError::Weak("made in the future"));
        }
        let issuer = issuer(signature);
        let mut refusal = if !issuer.is_empty() && LEAKED.ends_with(&issuer) {
            SignatureError::Revoked(issuer)
        } else {
            SignatureError::UnknownKey(issuer)
        };
        for key in &self.0 {
            match check(key, signature, made, data) {
                None => {}
                Some(Ok(())) => return Ok(key.fingerprint().to_string()),
                Some(Err(error)) => refusal = error,
            }
        }
        Err(refusal)
    }
}

/// The fingerprint of the signature's issuer, or else its key id; in hex.
fn issuer(signature: &Signature) -> String {
    let fingerprint = signature.issuer_fingerprint().first().map(ToString::to_string);
    let id = signature.issuer_key_id().first().map(ToString::to_string);
    fingerprint.or(id).unwrap_or_default().to_lowercase()
}

fn is_strong(signature: &Signature) -> bool {
    let strong = [HashAlgorithm::Sha256, HashAlgorithm::Sha384, HashAlgorithm::Sha512];
    signature.hash_alg().is_some_and(|algorithm| strong.contains(&algorithm))
}

/// `None` if neither the key nor one of its subkeys is the issuer.
fn check(
    key: &SignedPublicKey,
    signature: &Signature,
    made: Timestamp,
    data: &[u8],
) -> Option<Result<(), SignatureError>> {
    let is_issuer = |component: &dyn KeyDetails| {
        let id = component.legacy_key_id();
        signature.issuer_key_id().contains(&&id)
            || signature.issuer_fingerprint().contains(&&component.fingerprint())
    };
    let primary = &key.primary_key;
    let subkey = key.public_subkeys.iter().find(|subkey| is_issuer(&subkey.key));
    if subkey.is_none() && !is_issuer(primary) {
        return None;
    }
    let name = key.fingerprint().to_string();
    if name == LEAKED {
        return Some(Err(SignatureError::Revoked(name)));
    }
    let (good, valid) = match subkey {
        Some(subkey) => {
            let good = signature.verify(&subkey.key, data).is_ok();
            let valid = primary_at(key, made, false);
            (good, valid.and_then(|()| subkey_at(primary, subkey, made)))
        }
        None => (signature.verify(primary, data).is_ok(), primary_at(key, made, true)),
    };
    Some(match valid {
        Err(reason) => Err(SignatureError::NotValid(name, reason)),
        Ok(()) if !good => Err(SignatureError::Forged(name)),
        Ok(()) => Ok(()),
    })
}

/// Whether the primary key was valid at that time and, with `signs`, may itself sign files.
fn primary_at(key: &SignedPublicKey, at: Timestamp, signs: bool) -> Result<(), &'static str> {
    let primary = &key.primary_key;
    let revoked = key
        .details
        .revocation_signatures
        .iter()
        .filter(|signature| signature.verify_key(primary).is_ok());
    if revokes(revoked, at) {
        return Err("is revoked");
    }
    let direct = key
        .details
        .direct_signatures
        .iter()
        .filter(|signature| signature.verify_key(primary).is_ok());
    let certified = key.details.users.iter().filter_map(|user| {
        let mine = |signature: &&Signature| {
            signature.verify_certification(primary, Tag::UserId, &user.id).is_ok()
        };
        let newest = newest(user.signatures.iter().filter(mine));
        newest.filter(|signature| signature.typ() != Some(SignatureType::CertRevocation))
    });
    let signature = newest(direct.chain(certified)).ok_or("has not signed itself")?;
    within_life(primary.created_at(), signature, at)?;
    if signs && !signature.key_flags().sign() {
        return Err("is not a signing key");
    }
    Ok(())
}

/// Whether the subkey belonged to the key and could sign files at that time.
fn subkey_at(
    primary: &PublicKey,
    subkey: &SignedPublicSubKey,
    at: Timestamp,
) -> Result<(), &'static str> {
    let of_kind = |kind: SignatureType| {
        subkey.signatures.iter().filter(move |signature| {
            signature.typ() == Some(kind)
                && signature.verify_subkey_binding(primary, &subkey.key).is_ok()
        })
    };
    if revokes(of_kind(SignatureType::SubkeyRevocation), at) {
        return Err("has revoked the subkey");
    }
    let binding = newest(of_kind(SignatureType::SubkeyBinding)).ok_or("does not own the subkey")?;
    within_life(subkey.key.created_at(), binding, at)?;
    if !binding.key_flags().sign() {
        return Err("has a subkey that is not a signing key");
    }
    let back = binding.embedded_signature().filter(|back| is_strong(back));
    match back.map(|back| back.verify_primary_key_binding(&subkey.key, primary)) {
        Some(Ok(())) => Ok(()),
        _ => Err("is not cross-certified by the subkey"),
    }
}

/// The newest of the verified self-signatures: it decides, also for the past.
fn newest<'a>(signatures: impl Iterator<Item = &'a Signature>) -> Option<&'a Signature> {
    signatures.filter(|signature| is_strong(signature)).max_by_key(|signature| signature.created())
}

/// Whether one of the revocations rejects a signature of that time. A key that was superseded or retired stays valid for
/// earlier signatures; one that was revoked for another reason, or without one, does not.
fn revokes<'a>(mut revocations: impl Iterator<Item = &'a Signature>, at: Timestamp) -> bool {
    let gentle = [Some(&RevocationCode::KeySuperseded), Some(&RevocationCode::KeyRetired)];
    revocations.any(|revocation| {
        !gentle.contains(&revocation.revocation_reason_code())
            || revocation.created().is_none_or(|created| created <= at)
    })
}

fn within_life(
    created: Timestamp,
    signature: &Signature,
    at: Timestamp,
) -> Result<(), &'static str> {
    if at < created {
        return Err("is younger than the signature");
    }
    let life = signature.key_expiration_time().map_or(0, Duration::as_secs);
    if life != 0 && at.as_secs() >= created.as_secs().saturating_add(life) {
        return Err("had expired when the signature was made");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
