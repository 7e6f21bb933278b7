//! Signatures of bindings: Ed25519 with a key pair, or HMAC-SHA256 with a shared secret.
//!
//! A key is a file. PEM is an Ed25519 key as `openssl genpkey -algorithm ed25519` writes it; any other content is a shared
//! secret: at least 32 printable ASCII characters without spaces, which are no encoded key. The key decides the algorithm,
//! never the document.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use base64::{Engine as _, alphabet};
use fs_err as fs;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use secrecy::zeroize::Zeroizing;
use serde::{Deserialize, Serialize};

/// What is signed begins with it: a signature of a binding is none of anything else.
const CONTEXT: &[u8] = b"plancha binding 1\n";
/// A shared secret has at least as many characters.
const MIN_SECRET: usize = 32;
/// Either alphabet of base64, with or without padding.
const ANY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// A key file has at most as many bytes.
const MAX_FILE: u64 = 64 << 10;
/// The public key in its DER form (RFC 8410), before its 32 bytes.
const SPKI: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

const SIGNING: &str = "--signing-key";
/// Why a key with a passphrase cannot be used.
const ENCRYPTED: &str = "the private key is encrypted, and an unattended run has no passphrase";

const ED25519_NAME: &str = "ed25519";
const HMAC_NAME: &str = "hmac-sha256";

/// A key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {reason}", .path.display())]
pub(crate) struct KeyError {
    flag: &'static str,
    path: PathBuf,
    reason: String,
    next: &'static str,
}

/// A signature in `binding.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Signature {
    algorithm: String,
    /// In base64.
    value: String,
}

/// The key that signs bindings.
pub(crate) enum SigningKey {
    Ed25519(Box<Ed25519KeyPair>),
    Hmac(Box<hmac::Key>),
}

/// The key that signatures must be of.
pub(crate) enum VerifyKey {
    /// The 32 bytes of the public key; of several any may have signed.
    Ed25519(Vec<[u8; 32]>),
    Hmac(Box<hmac::Key>),
}

impl SigningKey {
    /// Reads `--signing-key`.
    pub(crate) fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |reason: String| KeyError::new(SIGNING, path, reason);
        let content = read(path).map_err(failed)?;
        if !is_pem(&content) {
            return secret(&content).map(Self::Hmac).map_err(failed);
        }
        if is_encrypted(&content) {
            return Err(failed(ENCRYPTED.to_owned()));
        }
        let der = PrivatePkcs8KeyDer::from_pem_slice(&content).map_err(|_| {
            failed("it has no private key: expected a PEM file with `PRIVATE KEY`, as `openssl genpkey -algorithm ed25519` writes it".to_owned())
        })?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der());
        let pair = pair.map_err(|_| failed("its key is not an Ed25519 key".to_owned()))?;
        Ok(Self::Ed25519(Box::new(pair)))
    }

    pub(super) fn sign(&self, binding: &[u8]) -> Signature {
        let message = [CONTEXT, binding].concat();
        let (algorithm, value) = match self {
            Self::Ed25519(pair) => (ED25519_NAME, BASE64_STANDARD.encode(pair.sign(&message))),
            Self::Hmac(key) => (HMAC_NAME, BASE64_STANDARD.encode(hmac::sign(key, &message))),
        };
        Signature { algorithm: algorithm.to_owned(), value }
    }
}

impl VerifyKey {
    /// Reads `--verify-key`.
    pub(crate) fn read(path: &Path) -> Result<Self, KeyError> {
        let failed = |reason: String| KeyError::new("--verify-key", path, reason);
        let content = read(path).map_err(failed)?;
        if !is_pem(&content) {
            return secret(&content).map(Self::Hmac).map_err(failed);
        }
        let mut keys = Vec::new();
        for key in SubjectPublicKeyInfoDer::pem_slice_iter(&content) {
            let key = key.map_err(|error| failed(error.to_string()))?;
            let raw = key.strip_prefix(SPKI).and_then(|raw| raw.try_into().ok());
            keys.push(raw.ok_or_else(|| failed("its key is not an Ed25519 key".to_owned()))?);
        }
        if keys.is_empty() {
            return Err(failed(
                "it has no public key: expected a PEM file with `PUBLIC KEY`, as `openssl pkey -pubout` writes it"
                    .to_owned(),
            ));
        }
        Ok(Self::Ed25519(keys))
    }

    /// The error is the reason.
    pub(super) fn verify(&self, binding: &[u8], signature: &Signature) -> Result<(), String> {
        let expected = match self {
            Self::Ed25519(_) => ED25519_NAME,
            Self::Hmac(_) => HMAC_NAME,
        };
        if signature.algorithm != expected {
            return Err(format!("it is {}, and the key is for {expected}", signature.algorithm));
        }
        let value = BASE64_STANDARD.decode(&signature.value);
        let value = value.map_err(|_| "it is not base64".to_owned())?;
        let message = [CONTEXT, binding].concat();
        let is_valid = match self {
            Self::Ed25519(keys) => keys
                .iter()
                .any(|key| UnparsedPublicKey::new(&ED25519, key).verify(&message, &value).is_ok()),
            Self::Hmac(key) => hmac::verify(key, &message, &value).is_ok(),
        };
        if is_valid { Ok(()) } else { Err("it does not match".to_owned()) }
    }
}

impl KeyError {
    fn new(flag: &'static str, path: &Path, reason: String) -> Self {
        let next = match flag {
            _ if reason == ENCRYPTED => {
                "write the key without its passphrase into a file that only the user of the run can read: \
                 `openssl pkey -in KEY -out NEW`; or name the file of a shared secret"
            }
            SIGNING => {
                "name a key that `openssl genpkey -algorithm ed25519 -out KEY` makes, or the file of a shared secret \
                 (`openssl rand -hex 32`)"
            }
            _ => {
                "name the public key of --signing-key (`openssl pkey -in KEY -pubout`), or the file of the same shared \
                 secret"
            }
        };
        Self { flag, path: path.to_owned(), reason, next }
    }

    /// What to do about it.
    pub(crate) fn next(&self) -> &'static str {
        self.next
    }
}

/// Reads a key file; the error is the reason.
fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !metadata.is_file() {
        return Err("it is a device or a named pipe, which may be read only once".to_owned());
    }
    if metadata.len() > MAX_FILE {
        return Err(format!("it has more than {MAX_FILE} bytes, and is no key"));
    }
    let mut content = Zeroizing::new(fs::read(path).map_err(|error| error.to_string())?);
    // Some editors write it before text.
    if content.starts_with(BYTE_ORDER_MARK) {
        content.drain(..BYTE_ORDER_MARK.len());
    }
    if content.trim_ascii().is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(content)
}

fn is_pem(content: &[u8]) -> bool {
    memchr::memmem::find(content, b"-----BEGIN ").is_some()
}

/// Whether a PEM file has a private key with a passphrase, in the newer or the older form.
fn is_encrypted(content: &[u8]) -> bool {
    let forms: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
    forms.iter().any(|form| memchr::memmem::find(content, form).is_some())
}

/// A shared secret; a line break at the end is not part of it.
fn secret(content: &[u8]) -> Result<Box<hmac::Key>, String> {
    let secret = content.trim_ascii_end();
    if !secret.iter().all(u8::is_ascii_graphic) || secret.len() < MIN_SECRET {
        return Err(format!(
            "it is neither a PEM file nor a shared secret of at least {MIN_SECRET} printable ASCII characters without \
             spaces, such as `openssl rand -hex 32` writes"
        ));
    }
    if is_encoded_key(secret) {
        return Err(
            "it is a key, but not in PEM: name a file that begins with `-----BEGIN`, as openssl \
                    writes it"
                .to_owned(),
        );
    }
    Ok(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret)))
}

/// Whether the text is a key in base64: in DER, in PEM, or as ssh writes it. A public key is no secret.
fn is_encoded_key(text: &[u8]) -> bool {
    let standard = |byte: &u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => *byte,
    };
    let text = Zeroizing::new(text.iter().map(standard).collect::<Vec<_>>());
    let Ok(decoded) = ANY_BASE64.decode(&*text).map(Zeroizing::new) else { return false };
    // The first field of ssh is short, and has its length in four bytes.
    is_pem(&decoded) || is_der_key(&decoded) || decoded.starts_with(&[0, 0, 0])
}

/// Whether it is one DER sequence that begins as those of keys do: with another sequence, or with a version.
fn is_der_key(der: &[u8]) -> bool {
    let [0x30, length, rest @ ..] = der else { return false };
    // A long length follows in as many bytes as the lower bits name.
    let long = usize::from(length & 0x7f);
    let (length, content) = match length {
        0x81..=0x84 if rest.len() >= long => {
            let length =
                rest[..long].iter().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
            (length, &rest[long..])
        }
        length => (usize::from(*length), rest),
    };
    length == content.len() && matches!(content, [0x30 | 0x02, ..])
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl fmt::Debug for VerifyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifyKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_is_no_part_of_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let (public, private) = (dir.path().join("public"), dir.path().join("private"));
        for (file, key) in [(&public, PUBLIC), (&private, PRIVATE)] {
            fs::write(file, format!("\u{feff}{key}")).unwrap();
        }
        let signature = SigningKey::read(&private).unwrap().sign(b"x");
        VerifyKey::read(&public).unwrap().verify(b"x", &signature).unwrap();
        let reason = |path: &Path| VerifyKey::read(path).unwrap_err().reason;
        assert_eq!(reason(dir.path()), "it is a directory");
        assert!(reason(Path::new("/dev/null")).starts_with("it is a device or a named pipe"));
        assert!(reason(Path::new("/proc/self/fd/999")).starts_with("No such file"));
    }

    /// A throwaway pair, made by `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout`.
    const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIDdlmflEit/EP1V1fOAopBHnUd6cIuwhUthY8/pgZvck\n-----END PRIVATE KEY-----";
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAl6XZzbmwojRXxl1frowr+bqhKvtpY9SkSBKVXWWrHBc=\n-----END PUBLIC KEY-----";
    /// A key of another algorithm.
    const P256: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAErQjFsx8/e036u3fo0ThvkOIJy6rD\nIKiSgBr2ZlsAcGg+Rzmxu6FBWwFrrb+W4CF755b3Yupq9LRPwf5k1Yn2RQ==\n-----END PUBLIC KEY-----";

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        file
    }

    fn signing(content: &str) -> Result<SigningKey, String> {
        SigningKey::read(file(content).path()).map_err(|error| error.reason)
    }

    fn verifying(content: &str) -> Result<VerifyKey, String> {
        VerifyKey::read(file(content).path()).map_err(|error| error.reason)
    }

    #[test]
    fn a_signature_of_a_key_is_accepted_by_its_other_half_only() {
        let secret = "s".repeat(32);
        for (private, public) in [(PRIVATE, PUBLIC), (&secret, &secret)] {
            let signature = signing(private).unwrap().sign(b"a binding");
            let key = verifying(public).unwrap();
            key.verify(b"a binding", &signature).unwrap();
            key.verify(b"another", &signature).unwrap_err();
            for other in [PUBLIC, &secret].into_iter().filter(|other| *other != public) {
                let error = verifying(other).unwrap().verify(b"a binding", &signature).unwrap_err();
                assert!(error.contains("and the key is for"), "{error}");
            }
            let cut = Signature { value: signature.value[1..].to_owned(), ..signature };
            key.verify(b"a binding", &cut).unwrap_err();
        }
    }

    #[test]
    fn any_of_several_public_keys_may_have_signed() {
        let signature = signing(PRIVATE).unwrap().sign(b"x");
        let other = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
        verifying(other).unwrap().verify(b"x", &signature).unwrap_err();
        verifying(&format!("{other}{PUBLIC}")).unwrap().verify(b"x", &signature).unwrap();
    }

    /// Anyone may have a public key.
    #[test]
    fn key_in_another_form_than_pem_is_no_secret() {
        let der =
            |pem: &str| pem.lines().filter(|line| !line.starts_with("--")).collect::<String>();
        let (public, private, p256) = (der(PUBLIC), der(PRIVATE), der(P256));
        let url_safe = public.replace('+', "-").replace('/', "_");
        let pem_in_base64 = BASE64_STANDARD.encode(PUBLIC);
        let ssh = "AAAAC3NzaC1lZDI1NTE5AAAAIGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE";
        for key in
            [&public, &private, &p256, &url_safe, &format!("{public}\n"), &pem_in_base64, ssh]
        {
            for error in [signing(key).unwrap_err(), verifying(key).unwrap_err()] {
                assert!(error.contains("it is a key, but not in PEM"), "{key}: {error}");
            }
        }
        for secret in [
            // As `openssl rand` writes them, with -hex and -base64.
            "5e2ecf1c1e0a4d2bb1c0a3b64d7a4f1f7a5de7c44f70c2de0d9f0f8a2f6a8b51",
            "q3B2cZ8n0m1m5v7k5U2Kz3y0c8y0w8z0nXn1b0b1b2M=",
            "a-passphrase-with-dashes_and_more",
        ] {
            verifying(secret).unwrap();
        }
    }

    #[test]
    fn keys_that_cannot_be_used_are_refused_with_the_reason() {
        for (content, reason) in [
            ("", "it is empty"),
            ("short\n", "at least 32 printable"),
            (
                "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGb9ECWmEzf6FQbrBZ9w7lshQhqowtrb a@b",
                "at least 32 printable",
            ),
            (
                "0*0\u{5}\u{6}\u{3}+ep\u{3}!\u{0}01234567890123456789012345678901",
                "at least 32 printable",
            ),
            (PUBLIC, "it has no private key"),
            ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGjMF8=\n", "the private key is encrypted"),
            (
                "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n",
                "the private key is encrypted",
            ),
        ] {
            let error = signing(content).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        for (content, reason) in [(P256, "not an Ed25519 key"), (PRIVATE, "it has no public key")] {
            let error = verifying(content).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let error = SigningKey::read(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.starts_with("--signing-key /nonexistent: "), "{error}");
        let encrypted = file("-----BEGIN ENCRYPTED PRIVATE KEY-----\n");
        let error = SigningKey::read(encrypted.path()).unwrap_err();
        assert!(error.next().contains("`openssl pkey -in KEY -out NEW`"), "{}", error.next());
    }
}
