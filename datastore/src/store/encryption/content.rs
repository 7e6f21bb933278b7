//! Recognises by its content whether an object without a mark is plain or encrypted.

use crate::store::encryption::EncryptionKey;
use crate::store::encryption::cipher::{BLOCK, Decryptor};

/// The bytes at the beginning of an object that are inspected.
pub(crate) const HEAD: usize = 512;

/// Padding of this length is not a coincidence: 1 of 2³² plain objects ends like that.
const CERTAIN_PADDING: usize = 4;

/// How an unmarked object with valid padding is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interpretation {
    /// As it is stored.
    Plain,
    /// Decrypted.
    Encrypted,
    /// Both are possible: neither is recognisable.
    Ambiguous,
}

/// The first bytes of every artifact of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// A plan of terraform is a zip; one that `OpenTofu` has encrypted is JSON.
    Plan,
    /// A JSON object.
    Json,
    /// A git bundle.
    Bundle,
}

const ZIP: &[u8] = b"PK\x03\x04";

const BUNDLES: [&[u8]; 2] = [b"# v2 git bundle\n", b"# v3 git bundle\n"];

impl Signature {
    fn matches(self, head: &[u8]) -> bool {
        let is_json = || head.trim_ascii_start().starts_with(b"{") && is_content(head);
        match self {
            Self::Plan => head.starts_with(ZIP) || is_json(),
            Self::Json => is_json(),
            Self::Bundle => BUNDLES.iter().any(|bundle| head.starts_with(bundle)),
        }
    }
}

/// Whether an object is recognised as plain: by the signature of its kind, or as any content that a run produces.
pub(crate) fn is_known_content(signature: Option<Signature>, head: &[u8]) -> bool {
    signature.map_or_else(|| is_content(head), |signature| signature.matches(head))
}

/// Decides how an unmarked object is read, by its first bytes, its stored length and its plain size if it is
/// encrypted.
///
/// 1 of 248 plain objects of whole blocks ends like an encrypted one by chance. So the signature of its kind decides
/// first, if there is one, then whether it is content that a run produces, and last a padding that cannot be chance.
pub(crate) fn interpret(
    key: &EncryptionKey,
    signature: Option<Signature>,
    head: &[u8],
    stored: u64,
    plain_size: u64,
) -> Interpretation {
    let decrypted = Decryptor::new(key.clone(), 0, plain_size).decrypt(head);
    if let Some(signature) = signature {
        match (signature.matches(head), signature.matches(&decrypted)) {
            (true, false) => return Interpretation::Plain,
            (false, true) => return Interpretation::Encrypted,
            (true, true) => return Interpretation::Ambiguous,
            (false, false) => {}
        }
    }
    let padding = stored - plain_size - BLOCK as u64;
    if is_content(head) {
        Interpretation::Plain
    } else if padding >= CERTAIN_PADDING as u64 || is_content(&decrypted) {
        Interpretation::Encrypted
    } else {
        Interpretation::Ambiguous
    }
}

/// Whether bytes look encrypted: no byte is frequent, and many are not ASCII text. One encrypted object in millions
/// does not; other compressed or encrypted files do.
pub(crate) fn looks_encrypted(head: &[u8]) -> bool {
    let mut counts = [0_usize; 256];
    for byte in head {
        counts[usize::from(*byte)] += 1;
    }
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let binary = head.iter().filter(|byte| !is_text(byte)).count();
    counts.iter().all(|count| *count <= 8 + head.len() / 32) && binary >= head.len() / 8
}

/// Whether bytes are the beginning of what runs produce: text, or a known kind of file.
fn is_content(head: &[u8]) -> bool {
    const MAGIC: [&[u8]; 11] = [
        ZIP,
        BUNDLES[0],
        BUNDLES[1],
        b"\x28\xb5\x2f\xfd",
        b"\x1f\x8b\x08",
        b"\xfd7zXZ\0",
        b"7z\xbc\xaf\x27\x1c",
        b"BZh",
        b"%PDF-",
        b"\x89PNG\r\n",
        b"\xff\xd8\xff",
    ];
    let is_text = |text: &str| {
        // Line breaks, tabs and colours are text; other control characters are not.
        text.chars()
            .all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x08' | '\x1b'))
    };
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // The last character may be cut off.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    MAGIC.iter().any(|magic| head.starts_with(magic))
        || text.is_some_and(is_text) && !head.is_empty()
}

#[cfg(test)]
mod tests {
    use datastore_api::Sha256;

    use super::*;
    use crate::store::encryption::AtRest;
    use crate::store::encryption::cipher::{Encryptor, TAIL, may_be_encrypted, plain_size};

    const IV: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn key(text: &str) -> EncryptionKey {
        AtRest { key: Some(text.into()), encrypts: true }.key().unwrap()
    }

    fn encrypted(plain: &[u8], iv: [u8; 16]) -> Vec<u8> {
        let mut encryptor = Encryptor::with(&key("test-encryption-key"), iv);
        [encryptor.encrypt(plain), encryptor.finish()].concat()
    }

    /// The bytes that a reader returns; `None` if it refuses.
    fn read_as(signature: Option<Signature>, stored: &[u8]) -> Option<Vec<u8>> {
        let key = key("test-encryption-key");
        let size = stored.len() as u64;
        let found =
            may_be_encrypted(size).then(|| plain_size(&key, size, &stored[stored.len() - TAIL..]));
        let Some(plain) = found.flatten() else { return Some(stored.to_vec()) };
        match interpret(&key, signature, &stored[..stored.len().min(HEAD)], size, plain) {
            Interpretation::Encrypted => {
                Some(Decryptor::new(key, 0, plain).decrypt(stored).to_vec())
            }
            Interpretation::Plain => Some(stored.to_vec()),
            Interpretation::Ambiguous => None,
        }
    }

    fn read(stored: &[u8]) -> Vec<u8> {
        read_as(None, stored).unwrap()
    }

    #[test]
    fn ds20_an_unrecognisable_plain_object_is_never_garbled() {
        let (mut by_chance, mut refused) = (0, 0);
        for seed in 0..20_000_u64 {
            // 64 random bytes: of each 248 one ends like an encrypted object.
            let plain =
                [0_u8, 1].map(|n| Sha256::of(&[&seed.to_le_bytes()[..], &[n]].concat()).0).concat();
            let tail = &plain[plain.len() - TAIL..];
            by_chance += usize::from(plain_size(&key("test-encryption-key"), 64, tail).is_some());
            match read_as(None, &plain) {
                Some(read) => assert_eq!(read, plain),
                None => refused += 1,
            }
        }
        assert!(by_chance > 40, "the test tries nothing: {by_chance}");
        assert_eq!(refused, by_chance, "either interpretation may be right");
    }

    #[test]
    fn an_encrypted_object_with_short_padding_is_decrypted_or_refused_but_never_returned_as_stored()
    {
        let log = [b"\x00\x01\xff".as_slice(), &[0xfe; 700]].concat();
        for length in 500..520 {
            let stored = encrypted(&log[..length], IV);
            let padding = stored.len() - BLOCK - length;
            let expected = (padding >= CERTAIN_PADDING).then(|| log[..length].to_vec());
            assert_eq!(read_as(None, &stored), expected, "padding of {padding}");
        }
        let zip = [ZIP, &[0xfe; 700]].concat();
        let bundle = [BUNDLES[1], &[0xfe; 700]].concat();
        let json = b" \n{\"format_version\": \"1.2\"".repeat(30);
        for (signature, content) in [
            (Signature::Plan, &zip),
            (Signature::Plan, &json),
            (Signature::Json, &json),
            (Signature::Bundle, &bundle),
        ] {
            for length in 500..520 {
                let content = &content[..length];
                let read = |stored: &[u8]| read_as(Some(signature), stored).unwrap();
                assert_eq!(read(&encrypted(content, IV)), content, "{signature:?}, encrypted");
                assert_eq!(read(content), content, "{signature:?}, plain");
            }
        }
    }

    #[test]
    fn content_of_runs_is_recognised_plain_or_encrypted_whatever_its_length() {
        let json = format!("{{\"format_version\":\"1.2\",\"x\":\"{}\"}}", "y".repeat(600));
        let zip = [b"PK\x03\x04".as_slice(), &[0; 700]].concat();
        let bundle = [b"# v2 git bundle\n".as_slice(), &[0xff; 700]].concat();
        for content in
            [json.as_bytes(), &zip, &bundle, "Plan: 0 to create é\n".repeat(40).as_bytes()]
        {
            for length in 1..content.len() {
                let content = &content[..length];
                assert_eq!(read(content), content, "plain, {length}");
                if length > 4 || !content.starts_with(b"PK") {
                    assert_eq!(read(&encrypted(content, IV)), content, "encrypted, {length}");
                }
            }
        }
    }
}
