//! Burrito's cipher on bytes: 16 random bytes, then AES-256-CBC with PKCS#7 padding, under the SHA-256 digest of a text.
//!
//! No header distinguishes an encrypted object from a plain one, and nothing proves that it is complete. The digest does,
//! which is always that of the plain bytes.

use aes::Aes256;
use aes::cipher::{Array, BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use aws_lc_rs::rand;
use bytes::Bytes;
use secrecy::ExposeSecret as _;

use crate::store::encryption::EncryptionKey;

/// The size of a block and of the initial vector.
pub(crate) const BLOCK: usize = 16;

/// The bytes at the end that show the padding: the last block, and the one before it.
pub(crate) const TAIL: usize = 2 * BLOCK;

/// Encrypts a stream piece by piece.
pub(crate) struct Encryptor {
    cipher: cbc::Encryptor<Aes256>,
    /// Output before the first block: the initial vector.
    iv: Vec<u8>,
    rest: Vec<u8>,
}

impl Encryptor {
    pub(crate) fn new(key: &EncryptionKey) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut iv = [0; BLOCK];
        rand::fill(&mut iv)?;
        Ok(Self::with(key, iv))
    }

    pub(super) fn with(key: &EncryptionKey, iv: [u8; BLOCK]) -> Self {
        let cipher = cbc::Encryptor::new(&Array(*key.0.expose_secret()), &Array(iv));
        Self { cipher, iv: iv.to_vec(), rest: Vec::new() }
    }

    pub(crate) fn encrypt(&mut self, piece: &[u8]) -> Bytes {
        self.rest.extend_from_slice(piece);
        let whole = self.rest.len() / BLOCK * BLOCK;
        let rest = self.rest.split_off(whole);
        let mut blocks = std::mem::replace(&mut self.rest, rest);
        self.cipher.encrypt_blocks(Array::slice_as_chunks_mut(&mut blocks).0);
        let mut encrypted = std::mem::take(&mut self.iv);
        encrypted.append(&mut blocks);
        encrypted.into()
    }

    /// Returns the last block, which always has padding.
    pub(crate) fn finish(mut self) -> Bytes {
        let padding = BLOCK - self.rest.len();
        self.encrypt(&vec![u8::try_from(padding).unwrap_or_default(); padding])
    }
}

/// Decrypts a stream piece by piece. It starts with the block before the first.
pub(crate) struct Decryptor {
    key: EncryptionKey,
    cipher: Option<cbc::Decryptor<Aes256>>,
    rest: Vec<u8>,
    /// Decrypted bytes to skip.
    skip: usize,
    /// Plain bytes that are still to be returned.
    left: u64,
}

impl Decryptor {
    pub(crate) fn new(key: EncryptionKey, skip: usize, left: u64) -> Self {
        Self { key, cipher: None, rest: Vec::new(), skip, left }
    }

    pub(crate) fn decrypt(&mut self, piece: &[u8]) -> Bytes {
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

/// Whether an object can be encrypted, judged by its length.
pub(crate) fn may_be_encrypted(stored: u64) -> bool {
    stored >= TAIL as u64 && stored.is_multiple_of(BLOCK as u64)
}

/// The plain size, if `tail` is the end of an object that was encrypted with this key.
pub(crate) fn plain_size(key: &EncryptionKey, stored: u64, tail: &[u8]) -> Option<u64> {
    let last = Decryptor::new(key.clone(), 0, u64::MAX).decrypt(tail);
    let padding = usize::from(*last.last()?);
    let is_padding = (1..=BLOCK).contains(&padding)
        && last.len() == BLOCK
        && last[BLOCK - padding..].iter().all(|byte| usize::from(*byte) == padding);
    is_padding.then(|| stored.checked_sub((BLOCK + padding) as u64)).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::encryption::AtRest;

    const IV: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn key(text: &str) -> EncryptionKey {
        AtRest { key: Some(text.into()), encrypts: true }.key().unwrap()
    }

    fn encrypted(plain: &[u8], iv: [u8; 16]) -> Vec<u8> {
        let mut encryptor = Encryptor::with(&key("test-encryption-key"), iv);
        [encryptor.encrypt(plain), encryptor.finish()].concat()
    }

    fn decrypted(stored: &[u8]) -> Vec<u8> {
        let key = key("test-encryption-key");
        let size = plain_size(&key, stored.len() as u64, &stored[stored.len() - TAIL..]).unwrap();
        Decryptor::new(key, 0, size).decrypt(stored).to_vec()
    }

    #[test]
    fn ds19_ciphertext_equals_burritos_byte_for_byte() {
        let hex = |plain: &str| hex(&encrypted(plain.as_bytes(), IV));
        insta::assert_snapshot!(hex("hello burrito"), @"000102030405060708090a0b0c0d0e0f4e2c7688db31356313fedc03a740f13d");
        insta::assert_snapshot!(hex(""), @"000102030405060708090a0b0c0d0e0f95ee8787d6de8e568e330bdf5c733880");
        assert_eq!(decrypted(&encrypted(b"hello burrito", IV)), b"hello burrito");
        assert_eq!(decrypted(&encrypted(b"", IV)), b"");
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    }

    proptest! {
        #[test]
        fn ciphertext_does_not_depend_on_how_the_bytes_are_cut(
            plain in proptest::collection::vec(any::<u8>(), 0..200),
            size in 1_usize..50,
            from in 0_usize..200,
            to in 0_usize..200,
        ) {
            let key = key("test-encryption-key");
            let mut encryptor = Encryptor::with(&key, IV);
            let mut stored = plain.chunks(size).map(|piece| encryptor.encrypt(piece)).collect::<Vec<_>>();
            stored.push(encryptor.finish());
            let stored = stored.concat();
            prop_assert_eq!(&stored, &encrypted(&plain, IV));
            prop_assert_eq!(plain_size(&key, stored.len() as u64, &stored[stored.len() - TAIL..]), Some(plain.len() as u64));
            let (from, to) = (from.min(plain.len()), to.min(plain.len()));
            if from < to {
                let blocks = from / BLOCK * BLOCK..(to - 1) / BLOCK * BLOCK + TAIL;
                let mut decryptor = Decryptor::new(key, from % BLOCK, (to - from) as u64);
                let opened = stored[blocks].chunks(size).map(|piece| decryptor.decrypt(piece)).collect::<Vec<_>>();
                prop_assert_eq!(opened.concat(), &plain[from..to]);
            }
        }
    }
}
