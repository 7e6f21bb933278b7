use std::time::SystemTime;

use pgp::composed::{
    ArmorOptions, DetachedSignature, KeyType, SecretKeyParamsBuilder, SignedSecretKey,
    SubkeyParamsBuilder,
};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{SignatureConfig, Subpacket, SubpacketData};
use pgp::ser::Serialize as _;
use pgp::types::Password;

use crate::release::verify::signature::*;

const DATA: &[u8] = b"the sums of a release\n";

/// A key with a signing subkey, as HashiCorp has one.
fn key(primary_signs: bool) -> SignedSecretKey {
    let subkey = SubkeyParamsBuilder::default()
        .key_type(KeyType::Ed25519Legacy)
        .can_sign(true)
        .build()
        .unwrap();
    let params = SecretKeyParamsBuilder::default()
        .key_type(KeyType::Ed25519Legacy)
        .can_certify(true)
        .can_sign(primary_signs)
        .primary_user_id("a test".into())
        .subkey(subkey)
        .build()
        .unwrap();
    params.generate(rand::thread_rng()).unwrap()
}

fn public(key: &SignedSecretKey) -> SignedPublicKey {
    SignedPublicKey::from(key.clone())
}

fn by_primary(key: &SignedSecretKey, data: &[u8]) -> Vec<u8> {
    let password = Password::empty();
    let signature = DetachedSignature::sign_binary_data(
        rand::thread_rng(),
        &key.primary_key,
        &password,
        HashAlgorithm::Sha256,
        data,
    );
    signature.unwrap().to_bytes().unwrap()
}

fn by_subkey(key: &SignedSecretKey, data: &[u8]) -> Vec<u8> {
    let subkey = &key.secret_subkeys[0].key;
    let password = Password::empty();
    let signature = DetachedSignature::sign_binary_data(
        rand::thread_rng(),
        subkey,
        &password,
        HashAlgorithm::Sha256,
        data,
    );
    signature.unwrap().to_bytes().unwrap()
}

fn keys(public: SignedPublicKey) -> Keys {
    Keys(vec![public])
}

fn reason(outcome: Result<String, SignatureError>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn the_embedded_key_is_the_one_that_is_pinned() {
    let keys = Keys::parse(HASHICORP).unwrap();
    assert!(keys.has(HASHICORP_FINGERPRINT));
    assert_eq!(keys.only(HASHICORP_FINGERPRINT).0.len(), 1);
}

#[test]
fn a_valid_signature_is_accepted_armored_or_not() {
    let key = key(true);
    let keys = keys(public(&key));
    for signature in [by_primary(&key, DATA), by_subkey(&key, DATA)] {
        assert_eq!(keys.verify(DATA, &signature).unwrap(), key.fingerprint().to_string());
    }
    let armored = DetachedSignature::from_bytes(by_subkey(&key, DATA).as_slice()).unwrap();
    let armored = armored.to_armored_bytes(ArmorOptions::default()).unwrap();
    keys.verify(DATA, &armored).unwrap();
}

#[test]
fn every_flipped_bit_is_detected() {
    let key = key(true);
    let keys = keys(public(&key));
    let signature = by_primary(&key, DATA);
    for index in 0..DATA.len() {
        let mut data = DATA.to_vec();
        data[index] ^= 1;
        assert!(
            matches!(keys.verify(&data, &signature), Err(SignatureError::Forged(_))),
            "byte {index}"
        );
    }
    for index in 0..signature.len() {
        let mut broken = signature.clone();
        broken[index] ^= 1;
        // Only what is neither signed nor part of the proof may change: the hint at the issuer.
        if let Ok(fingerprint) = keys.verify(DATA, &broken) {
            assert_eq!(fingerprint, key.fingerprint().to_string());
            let parsed = DetachedSignature::from_bytes(broken.as_slice()).unwrap().signature;
            let original = DetachedSignature::from_bytes(signature.as_slice()).unwrap().signature;
            assert_eq!(parsed.signature(), original.signature(), "byte {index}");
            assert_eq!(parsed.created(), original.created(), "byte {index}");
        }
    }
    for length in 0..signature.len() {
        keys.verify(DATA, &signature[..length]).unwrap_err();
    }
}

#[test]
fn an_unknown_key_and_a_forgery_are_different_errors() {
    let (mine, other) = (key(true), key(true));
    let error = keys(public(&mine)).verify(DATA, &by_primary(&other, DATA)).unwrap_err();
    assert!(matches!(error, SignatureError::UnknownKey(_)), "{error}");
    let error = keys(public(&mine)).verify(DATA, &by_primary(&mine, b"else")).unwrap_err();
    assert!(matches!(error, SignatureError::Forged(_)), "{error}");
}

#[test]
fn a_key_that_is_not_for_signing_is_rejected() {
    let key = key(false);
    let keys = keys(public(&key));
    keys.verify(DATA, &by_subkey(&key, DATA)).unwrap();
    assert!(reason(keys.verify(DATA, &by_primary(&key, DATA))).ends_with("is not a signing key"));
}

#[test]
fn a_subkey_that_the_key_does_not_own_is_rejected() {
    let (mine, thief) = (key(true), key(true));
    let mut stolen = public(&mine);
    stolen.public_subkeys = public(&thief).public_subkeys;
    let outcome = keys(stolen).verify(DATA, &by_subkey(&thief, DATA));
    assert!(reason(outcome).ends_with("does not own the subkey"));
}

#[test]
fn a_subkey_that_does_not_acknowledge_the_key_is_rejected() {
    let (mine, victim) = (key(true), key(true));
    // The victim's subkey, bound by me without its consent.
    let subkey = public(&victim).public_subkeys[0].key.clone();
    let mut config = SignatureConfig::v4(
        SignatureType::SubkeyBinding,
        mine.primary_key.algorithm(),
        HashAlgorithm::Sha256,
    );
    let mut flags = pgp::packet::KeyFlags::default();
    flags.set_sign(true);
    config.hashed_subpackets = vec![
        Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::now())).unwrap(),
        Subpacket::regular(SubpacketData::KeyFlags(flags)).unwrap(),
    ];
    let password = Password::empty();
    let binding = config
        .sign_subkey_binding(&mine.primary_key, mine.primary_key.public_key(), &password, &subkey)
        .unwrap();
    let mut stolen = public(&mine);
    stolen.public_subkeys = vec![SignedPublicSubKey::new(subkey, vec![binding])];
    let outcome = keys(stolen).verify(DATA, &by_subkey(&victim, DATA));
    assert!(reason(outcome).ends_with("is not cross-certified by the subkey"));
}

/// A revocation of the key by itself, made now.
fn revoked(key: &SignedSecretKey, code: RevocationCode) -> SignedPublicKey {
    let algorithm = key.primary_key.algorithm();
    let mut config =
        SignatureConfig::v4(SignatureType::KeyRevocation, algorithm, HashAlgorithm::Sha256);
    config.hashed_subpackets = vec![
        Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::now())).unwrap(),
        Subpacket::regular(SubpacketData::RevocationReason(code, "".into())).unwrap(),
    ];
    let password = Password::empty();
    let public_key = key.primary_key.public_key();
    let revocation = config.sign_key(&key.primary_key, &password, public_key).unwrap();
    let mut public = public(key);
    public.details.revocation_signatures.push(revocation);
    public
}

#[test]
fn a_revoked_key_is_rejected() {
    let key = key(true);
    for code in [RevocationCode::KeyCompromised, RevocationCode::NoReason] {
        for signature in [by_primary(&key, DATA), by_subkey(&key, DATA)] {
            let outcome = keys(revoked(&key, code)).verify(DATA, &signature);
            assert!(reason(outcome).ends_with("is revoked"));
        }
    }
}

#[test]
fn a_key_must_be_valid_at_the_time_of_the_signature() {
    let signature = |created: u32, life: u32| {
        let algorithm = pgp::crypto::public_key::PublicKeyAlgorithm::RSA;
        let mut config =
            SignatureConfig::v4(SignatureType::CertPositive, algorithm, HashAlgorithm::Sha256);
        config.hashed_subpackets = vec![
            Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::from_secs(created)))
                .unwrap(),
            Subpacket::regular(SubpacketData::KeyExpirationTime(Duration::from_secs(life)))
                .unwrap(),
        ];
        Signature::from_config(
            config,
            [0, 0],
            pgp::types::SignatureBytes::Native(bytes::Bytes::new()),
        )
        .unwrap()
    };
    let at = |seconds| Timestamp::from_secs(seconds);
    let certification = signature(100, 50);
    within_life(at(100), &certification, at(149)).unwrap();
    within_life(at(100), &certification, at(150)).unwrap_err();
    within_life(at(100), &certification, at(99)).unwrap_err();
    within_life(at(100), &signature(100, 0), at(u32::MAX)).unwrap();
    // The newest says what holds: a life that was made longer counts for the past, too.
    let both = [signature(300, 500), signature(200, 10)];
    let newest = newest(both.iter()).unwrap();
    within_life(at(100), newest, at(599)).unwrap();
}

#[test]
fn a_retired_key_stays_valid_for_earlier_signatures() {
    let revocation = |code, created| {
        let algorithm = pgp::crypto::public_key::PublicKeyAlgorithm::RSA;
        let mut config =
            SignatureConfig::v4(SignatureType::KeyRevocation, algorithm, HashAlgorithm::Sha256);
        config.hashed_subpackets = vec![
            Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::from_secs(created)))
                .unwrap(),
            Subpacket::regular(SubpacketData::RevocationReason(code, "".into())).unwrap(),
        ];
        let none = pgp::types::SignatureBytes::Native(bytes::Bytes::new());
        [Signature::from_config(config, [0, 0], none).unwrap()]
    };
    let at = Timestamp::from_secs;
    let retired = revocation(RevocationCode::KeyRetired, 100);
    assert!(!revokes(retired.iter(), at(99)));
    assert!(revokes(retired.iter(), at(100)));
    assert!(revokes(revocation(RevocationCode::KeyCompromised, 100).iter(), at(99)));
    assert!(!revokes([].iter(), at(99)));
}

#[test]
fn a_signature_from_the_future_or_of_another_kind_is_rejected() {
    let key = key(true);
    let sign = |kind, hash, created: u32| {
        let mut config = SignatureConfig::v4(kind, key.primary_key.algorithm(), hash);
        config.hashed_subpackets = vec![
            Subpacket::regular(SubpacketData::SignatureCreationTime(Timestamp::from_secs(created)))
                .unwrap(),
            Subpacket::regular(SubpacketData::IssuerFingerprint(key.fingerprint())).unwrap(),
        ];
        let signature = config.sign(&key.primary_key, &Password::empty(), DATA).unwrap();
        DetachedSignature::new(signature).to_bytes().unwrap()
    };
    let now = Timestamp::now().as_secs();
    let keys = keys(public(&key));
    let verify = |kind, hash, created| keys.verify(DATA, &sign(kind, hash, created));
    verify(SignatureType::Binary, HashAlgorithm::Sha512, now + 3600).unwrap();
    for (kind, hash, created) in [
        (SignatureType::Binary, HashAlgorithm::Sha256, now + 2 * SKEW),
        (SignatureType::Text, HashAlgorithm::Sha256, now),
    ] {
        assert!(matches!(verify(kind, hash, created), Err(SignatureError::Weak(_))));
    }
    let old = key.primary_key.created_at().as_secs() - 1;
    assert!(
        reason(verify(SignatureType::Binary, HashAlgorithm::Sha256, old))
            .ends_with("younger than the signature")
    );
}

#[test]
fn a_signature_with_a_weak_hash_is_rejected() {
    let algorithm = pgp::crypto::public_key::PublicKeyAlgorithm::RSA;
    let with = |hash| {
        let config = SignatureConfig::v4(SignatureType::Binary, algorithm, hash);
        let none = pgp::types::SignatureBytes::Native(bytes::Bytes::new());
        Signature::from_config(config, [0, 0], none).unwrap()
    };
    assert!(is_strong(&with(HashAlgorithm::Sha256)) && is_strong(&with(HashAlgorithm::Sha512)));
    assert!(!is_strong(&with(HashAlgorithm::Sha1)) && !is_strong(&with(HashAlgorithm::Md5)));
    let outcome = Keys::default().verify_one(DATA, &with(HashAlgorithm::Sha1));
    assert!(matches!(outcome, Err(SignatureError::Weak(_))));
}

#[test]
fn a_keyring_may_be_binary_or_any_number_of_blocks() {
    let (one, other) = (public(&key(true)), public(&key(true)));
    let armor = |key: &SignedPublicKey| key.to_armored_string(ArmorOptions::default()).unwrap();
    let text = format!("one\n{}\nand other\n{}", armor(&one), armor(&other));
    let binary = [one.to_bytes().unwrap(), other.to_bytes().unwrap()].concat();
    for bytes in [text.as_bytes(), &binary] {
        let keys = Keys::parse(bytes).unwrap();
        assert!(
            keys.has(&one.fingerprint().to_string()) && keys.has(&other.fingerprint().to_string())
        );
    }
    for nonsense in [&b""[..], b"\0", b"no key at all\n", &text.as_bytes()[..200], &binary[..20]] {
        Keys::parse(nonsense).unwrap_err();
    }
}

/// A file that a vendor has published.
fn real(name: &str) -> Vec<u8> {
    std::fs::read(support::shared_data("signatures").unwrap().join(name)).unwrap()
}

#[test]
#[ignore = "needs ../shared/data"]
fn sums_signed_by_hashicorp_verify_with_every_copy_of_its_key() {
    let copies = [
        HASHICORP.to_vec(),
        real("hashicorp-72D7468F.expired-2026-04-18.pgp"),
        real("hashicorp-72D7468F.expires-2030.asc"),
        real("hashicorp-pgp-key.two-blocks.txt"),
    ];
    for (sums, signature) in [
        ("terraform_1.6.6_SHA256SUMS", "terraform_1.6.6_SHA256SUMS.sig"),
        ("terraform_0.13.1_SHA256SUMS", "terraform_0.13.1_SHA256SUMS.72D7468F.sig"),
    ] {
        let (mut sums, signature) = (real(sums), real(signature));
        for copy in &copies {
            let keys = Keys::parse(copy).unwrap();
            assert_eq!(keys.verify(&sums, &signature).unwrap(), HASHICORP_FINGERPRINT);
        }
        sums[7] ^= 1;
        let keys = Keys::parse(HASHICORP).unwrap();
        assert!(matches!(keys.verify(&sums, &signature), Err(SignatureError::Forged(_))));
    }
}

#[test]
#[ignore = "needs ../shared/data"]
fn leaked_key_is_refused_even_if_a_keyring_contains_it() {
    let sums = real("terraform_0.13.1_SHA256SUMS");
    let signature = real("terraform_0.13.1_SHA256SUMS.348FFC4C.sig");
    let mut keys = Keys::parse(HASHICORP).unwrap();
    assert!(matches!(keys.verify(&sums, &signature), Err(SignatureError::Revoked(_))));
    keys.add(Keys::parse(&real("hashicorp-348FFC4C.asc")).unwrap());
    assert!(matches!(keys.verify(&sums, &signature), Err(SignatureError::Revoked(_))));
}

#[test]
#[ignore = "needs ../shared/data"]
fn changed_sums_changed_signatures_and_other_keys_are_refused() {
    let sums = real("terraform_1.6.6_SHA256SUMS");
    let other = real("terraform_0.13.1_SHA256SUMS");
    let signature = real("terraform_1.6.6_SHA256SUMS.sig");
    let keys = Keys::parse(HASHICORP).unwrap();
    keys.verify(&sums, &signature).unwrap();
    assert!(matches!(keys.verify(&other, &signature), Err(SignatureError::Forged(_))));
    for bit in (0..sums.len() * 8).step_by(97) {
        let mut changed = sums.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(
            matches!(keys.verify(&changed, &signature), Err(SignatureError::Forged(_))),
            "{bit}"
        );
    }
    for byte in (0..signature.len()).rev().take(512).step_by(7) {
        let mut changed = signature.clone();
        changed[byte] ^= 1;
        keys.verify(&sums, &changed).unwrap_err();
    }
    for name in [
        "opentofu-0C0AF313E5FD9F80.asc",
        "gruntwork-577774ACA847CC49.asc",
        "hashicorp-348FFC4C.asc",
    ] {
        let keys = Keys::parse(&real(name)).unwrap();
        assert!(
            matches!(keys.verify(&sums, &signature), Err(SignatureError::UnknownKey(_))),
            "{name}"
        );
    }
}

#[test]
#[ignore = "needs ../shared/data"]
fn pinned_keys_are_the_vendors_and_may_sign() {
    let now = Timestamp::try_from(SystemTime::now()).unwrap();
    for (name, fingerprint) in [
        ("opentofu-0C0AF313E5FD9F80.asc", OPENTOFU_FINGERPRINT),
        ("gruntwork-577774ACA847CC49.asc", GRUNTWORK_FINGERPRINT),
    ] {
        let keys = Keys::parse(&real(name)).unwrap();
        assert!(keys.has(fingerprint), "{name}");
        assert_eq!(primary_at(&keys.0[0], now, true), Ok(()), "{name}");
    }
}
