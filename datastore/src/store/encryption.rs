//! Bytes at rest as upstream encrypts them: 16 random bytes, then AES-256-CBC with PKCS#7 padding, under
//! the SHA-256 of a text. No header tells such an object from a plain one, and nothing proves that it is
//! whole: for that there is the digest, which is always that of the plain bytes.
//!
//! It knows bytes, not where they lie. What an object is that nobody has marked, its content says.

pub(crate) mod object;

use std::fmt;
use std::str::FromStr;

use aes::Aes256;
use aes::cipher::{Array, BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use aws_lc_rs::rand;
use bytes::Bytes;
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

/// The key, as the cipher takes it.
#[derive(Clone)]
pub(crate) struct Key(std::sync::Arc<SecretBox<[u8; 32]>>);

/// How one object lies at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it was put.
    Plain,
    /// Encrypted: so many bytes were put, under the key of this id, as far as that is known.
    Cbc(Option<u64>, Option<u32>),
}

/// Bytes of a block, and of the initial vector before the first.
pub(crate) const BLOCK: usize = 16;
/// Bytes at the beginning of an object by which it is known.
pub(crate) const HEAD: usize = 512;
/// Bytes at the end of an object that show its padding: a block, and the one before it.
pub(crate) const TAIL: usize = 2 * BLOCK;
/// Padding of so many bytes is none by chance: 1 of 2³² plain objects ends like that.
const SURE: usize = 4;

impl AtRest {
    pub(crate) fn key(&self) -> Option<Key> {
        let text = self.key.as_ref()?.expose_secret();
        Some(Key(std::sync::Arc::new(SecretBox::new(Box::new(Sha256::of(text.as_bytes()).0)))))
    }
}

impl Key {
    /// Tells it from another key, and nothing else of it.
    pub(crate) fn id(&self) -> u32 {
        let Sha256([a, b, c, d, ..]) = Sha256::of(self.0.expose_secret());
        u32::from_be_bytes([a, b, c, d])
    }
}

impl Form {
    /// The same, once it is known how many bytes were put.
    pub(crate) fn of_size(self, plain: u64) -> Self {
        match self {
            Self::Plain => Self::Plain,
            Self::Cbc(_, key) => Self::Cbc(Some(plain), key),
        }
    }
}

/// Encrypts what comes piece by piece.
pub(crate) struct Sealing {
    cipher: cbc::Encryptor<Aes256>,
    /// What goes out next: at first the initial vector, then what is no whole block yet.
    iv: Vec<u8>,
    rest: Vec<u8>,
}

impl Sealing {
    pub(crate) fn new(key: &Key) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut iv = [0; BLOCK];
        rand::fill(&mut iv)?;
        Ok(Self::with(key, iv))
    }

    fn with(key: &Key, iv: [u8; BLOCK]) -> Self {
        let cipher = cbc::Encryptor::new(&Array(*key.0.expose_secret()), &Array(iv));
        Self { cipher, iv: iv.to_vec(), rest: Vec::new() }
    }

    pub(crate) fn seal(&mut self, piece: &[u8]) -> Bytes {
        self.rest.extend_from_slice(piece);
        let whole = self.rest.len() / BLOCK * BLOCK;
        let rest = self.rest.split_off(whole);
        let mut blocks = std::mem::replace(&mut self.rest, rest);
        self.cipher.encrypt_blocks(Array::slice_as_chunks_mut(&mut blocks).0);
        let mut sealed = std::mem::take(&mut self.iv);
        sealed.append(&mut blocks);
        sealed.into()
    }

    /// The last bytes: there is always some padding.
    pub(crate) fn finish(mut self) -> Bytes {
        let padding = BLOCK - self.rest.len();
        self.seal(&vec![u8::try_from(padding).unwrap_or_default(); padding])
    }
}

/// Decrypts what comes piece by piece: first the block before, then whole blocks.
pub(crate) struct Opening {
    key: Key,
    cipher: Option<cbc::Decryptor<Aes256>>,
    rest: Vec<u8>,
    /// Bytes at the beginning that nobody has asked for.
    skip: usize,
    /// Bytes that are still to come out.
    left: u64,
}

impl Opening {
    pub(crate) fn new(key: Key, skip: usize, left: u64) -> Self {
        Self { key, cipher: None, rest: Vec::new(), skip, left }
    }

    pub(crate) fn open(&mut self, piece: &[u8]) -> Bytes {
        self.rest.extend_from_slice(piece);
        if self.cipher.is_none() {
            let Some((iv, _)) = self.rest.split_first_chunk::<BLOCK>() else { return Bytes::new() };
            let key = Array(*self.key.0.expose_secret());
            self.cipher = Some(cbc::Decryptor::new(&key, &Array(*iv)));
            self.rest.drain(..BLOCK);
        }
        let whole = self.rest.len() / BLOCK * BLOCK;
        let rest = self.rest.split_off(whole);
        let mut blocks = std::mem::replace(&mut self.rest, rest);
        if let Some(cipher) = &mut self.cipher {
            cipher.decrypt_blocks(Array::slice_as_chunks_mut(&mut blocks).0);
        }
        let mut plain = Bytes::from(blocks);
        let skipped = self.skip.min(plain.len());
        let plain = {
            self.skip -= skipped;
            plain.split_off(skipped)
        };
        let length = usize::try_from(self.left).map_or(plain.len(), |left| left.min(plain.len()));
        self.left -= length as u64;
        plain.slice(..length)
    }
}

/// Whether an object can be encrypted at all: it is the initial vector and whole blocks.
pub(crate) fn may_be_sealed(stored: u64) -> bool {
    stored >= TAIL as u64 && stored.is_multiple_of(BLOCK as u64)
}

/// Bytes that were put, if `tail` is the end of an object that was encrypted under this key.
pub(crate) fn plain_size(key: &Key, stored: u64, tail: &[u8]) -> Option<u64> {
    let last = Opening::new(key.clone(), 0, u64::MAX).open(tail);
    let padding = usize::from(*last.last()?);
    let is_padding = (1..=BLOCK).contains(&padding)
        && last.len() == BLOCK
        && last[BLOCK - padding..].iter().all(|byte| usize::from(*byte) == padding);
    is_padding.then(|| stored.checked_sub((BLOCK + padding) as u64)).flatten()
}

/// How the stored bytes of an unmarked object with valid padding are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As they are.
    Plain,
    /// Decrypted.
    Encrypted,
    /// Either way: neither is recognisable.
    Ambiguous,
}

/// The first bytes that every artifact of a kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// A plan of terraform is a zip; one that `OpenTofu` has encrypted is JSON.
    Plan,
    /// A JSON object.
    Json,
    /// A git bundle.
    Bundle,
}

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

/// Whether the first bytes of an object show that it is plain: those of its kind, or any content that a run makes.
pub(crate) fn is_recognised(signature: Option<Signature>, head: &[u8]) -> bool {
    signature.map_or_else(|| is_content(head), |signature| signature.matches(head))
}

const ZIP: &[u8] = b"PK\x03\x04";
const BUNDLES: [&[u8]; 2] = [b"# v2 git bundle\n", b"# v3 git bundle\n"];

/// How an unmarked object is to be read, by its first bytes, its length, and the bytes that were stored if its
/// end is that of an encrypted object.
///
/// 1 of 248 plain objects of whole blocks ends like an encrypted one by chance, so the content decides: first
/// the signature of its kind, if it has one, then whether it is content that a run makes. A padding that cannot
/// be chance decides where nothing else does.
pub(crate) fn reading(
    key: &Key,
    signature: Option<Signature>,
    head: &[u8],
    stored: u64,
    plain_size: u64,
) -> Reading {
    let decrypted = Opening::new(key.clone(), 0, plain_size).open(head);
    if let Some(signature) = signature {
        match (signature.matches(head), signature.matches(&decrypted)) {
            (true, false) => return Reading::Plain,
            (false, true) => return Reading::Encrypted,
            (true, true) => return Reading::Ambiguous,
            (false, false) => {}
        }
    }
    let padding = stored - plain_size - BLOCK as u64;
    if is_content(head) {
        Reading::Plain
    } else if padding >= SURE as u64 || is_content(&decrypted) {
        Reading::Encrypted
    } else {
        Reading::Ambiguous
    }
}

/// Whether bytes could be the beginning of an encrypted object: no byte is frequent, and many are no ASCII text. Of
/// encrypted objects one in millions does not look so; other files do if they are compressed or encrypted.
pub(crate) fn looks_random(head: &[u8]) -> bool {
    let mut counts = [0_usize; 256];
    for byte in head {
        counts[usize::from(*byte)] += 1;
    }
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let binary = head.iter().filter(|byte| !is_text(byte)).count();
    counts.iter().all(|count| *count <= 8 + head.len() / 32) && binary >= head.len() / 8
}

/// Whether bytes are the beginning of what runs make: text, or a file of a known kind.
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
        // A carriage return, tabs, colours; but no other control.
        text.chars()
            .all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x08' | '\x1b'))
    };
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // A character that is cut off by the end of what we look at.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    MAGIC.iter().any(|magic| head.starts_with(magic))
        || text.is_some_and(is_text) && !head.is_empty()
}

impl fmt::Display for Form {
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

impl FromStr for Form {
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
    format!("`{text}` is no form that this version knows")
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IV: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn key(text: &str) -> Key {
        AtRest { key: Some(text.into()), encrypts: true }.key().unwrap()
    }

    fn sealed(plain: &[u8], iv: [u8; 16]) -> Vec<u8> {
        let mut sealing = Sealing::with(&key("test-encryption-key"), iv);
        [sealing.seal(plain), sealing.finish()].concat()
    }

    /// What a reader makes of stored bytes; nothing where it refuses.
    fn read_as(signature: Option<Signature>, stored: &[u8]) -> Option<Vec<u8>> {
        let key = key("test-encryption-key");
        let size = stored.len() as u64;
        let found =
            may_be_sealed(size).then(|| plain_size(&key, size, &stored[stored.len() - TAIL..]));
        let Some(plain) = found.flatten() else { return Some(stored.to_vec()) };
        match reading(&key, signature, &stored[..stored.len().min(HEAD)], size, plain) {
            Reading::Encrypted => Some(Opening::new(key, 0, plain).open(stored).to_vec()),
            Reading::Plain => Some(stored.to_vec()),
            Reading::Ambiguous => None,
        }
    }

    fn read(stored: &[u8]) -> Vec<u8> {
        read_as(None, stored).unwrap()
    }

    #[test]
    fn ds19_what_is_sealed_is_upstreams_byte_for_byte() {
        let hex = |plain: &str| hex(&sealed(plain.as_bytes(), IV));
        insta::assert_snapshot!(hex("hello burrito"), @"000102030405060708090a0b0c0d0e0f4e2c7688db31356313fedc03a740f13d");
        insta::assert_snapshot!(hex(""), @"000102030405060708090a0b0c0d0e0f95ee8787d6de8e568e330bdf5c733880");
        assert_eq!(read(&sealed(b"hello burrito", IV)), b"hello burrito");
        assert_eq!(read(&sealed(b"", IV)), b"");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
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
        assert_eq!(refused, by_chance, "either reading may be right");
    }

    #[test]
    fn an_encrypted_object_with_short_padding_is_decrypted_or_refused_but_never_returned_as_stored()
    {
        let log = [b"\x00\x01\xff".as_slice(), &[0xfe; 700]].concat();
        for length in 500..520 {
            let stored = sealed(&log[..length], IV);
            let padding = stored.len() - BLOCK - length;
            let expected = (padding >= SURE).then(|| log[..length].to_vec());
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
                assert_eq!(read(&sealed(content, IV)), content, "{signature:?}, encrypted");
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
                    assert_eq!(read(&sealed(content, IV)), content, "encrypted, {length}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_into_pieces_does_not_show(
            plain in proptest::collection::vec(any::<u8>(), 0..200),
            size in 1_usize..50,
            from in 0_usize..200,
            to in 0_usize..200,
        ) {
            let key = key("test-encryption-key");
            let mut sealing = Sealing::with(&key, IV);
            let mut stored = plain.chunks(size).map(|piece| sealing.seal(piece)).collect::<Vec<_>>();
            stored.push(sealing.finish());
            let stored = stored.concat();
            prop_assert_eq!(&stored, &sealed(&plain, IV));
            prop_assert_eq!(plain_size(&key, stored.len() as u64, &stored[stored.len() - TAIL..]), Some(plain.len() as u64));
            let (from, to) = (from.min(plain.len()), to.min(plain.len()));
            if from < to {
                let blocks = from / BLOCK * BLOCK..(to - 1) / BLOCK * BLOCK + TAIL;
                let mut opening = Opening::new(key, from % BLOCK, (to - from) as u64);
                let opened = stored[blocks].chunks(size).map(|piece| opening.open(piece)).collect::<Vec<_>>();
                prop_assert_eq!(opened.concat(), &plain[from..to]);
            }
        }
    }

    #[test]
    fn a_form_reads_back_as_it_is_written_down() {
        for form in [
            Form::Plain,
            Form::Cbc(None, None),
            Form::Cbc(Some(13), None),
            Form::Cbc(None, Some(7)),
            Form::Cbc(Some(13), Some(u32::MAX)),
        ] {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        for text in ["", "gcm", "cbc:", "cbc:x", "plain:1"] {
            text.parse::<Form>().unwrap_err();
        }
    }
}
