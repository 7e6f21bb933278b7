//! SHA-256 digests, in the formats of headers and annotations.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::Digest as _;

/// A SHA-256 digest. Printed as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

/// Computes a [`Sha256`] piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Hasher(sha2::Sha256);

/// The text is not a SHA-256 digest in the expected format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 digest in {0}")]
pub struct InvalidSha256(&'static str);

impl Sha256 {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The digest of everything that `from` reads, to its end.
    pub fn of_reader(mut from: impl Read) -> io::Result<Self> {
        let (mut hasher, mut piece) = (Hasher::default(), vec![0; 64 << 10]);
        loop {
            match from.read(&mut piece) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(count) => hasher.update(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Padded base64 of 44 characters, as in Burrito's annotation `plan-sum`.
    pub fn to_base64(self) -> String {
        BASE64_STANDARD.encode(self.0)
    }

    /// Parses the format of [`Self::to_base64`].
    pub fn from_base64(text: &str) -> Result<Self, InvalidSha256> {
        let bytes = BASE64_STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(InvalidSha256("base64"))
    }

    /// The value of the header `Repr-Digest` (RFC 9530): `sha-256=:<base64>:`.
    pub fn to_repr_digest(self) -> String {
        format!("sha-256=:{}:", self.to_base64())
    }

    /// The digest in a `Repr-Digest`; `None` if that has only other algorithms. Of several the last one counts (RFC 9651).
    pub fn from_repr_digest(header: &str) -> Result<Option<Self>, InvalidSha256> {
        let broken = InvalidSha256("Repr-Digest (sha-256=:<base64>:)");
        let mut found = None;
        for member in header.split(',') {
            let (name, value) = member.split_once('=').ok_or_else(|| broken.clone())?;
            if name.trim().eq_ignore_ascii_case("sha-256") {
                let value = value.trim().strip_prefix(':').and_then(|v| v.strip_suffix(':'));
                let value = value.ok_or_else(|| broken.clone())?;
                found = Some(Self::from_base64(value).map_err(|_| broken.clone())?);
            }
        }
        Ok(found)
    }
}

impl Hasher {
    /// Adds the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Sha256 {
        Sha256(self.0.finalize().into())
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

impl FromStr for Sha256 {
    type Err = InvalidSha256;

    fn from_str(text: &str) -> Result<Self, InvalidSha256> {
        let mut bytes = [0; 32];
        match hex::decode_to_slice(text, &mut bytes) {
            Ok(()) => Ok(Self(bytes)),
            Err(_) => Err(InvalidSha256("hex")),
        }
    }
}

impl serde::Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn every_format_parses_to_the_same_digest() {
        let sum = Sha256::of(b"");
        assert_eq!(sum.to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(sum));
        assert_eq!(sum.to_base64(), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_eq!(Sha256::from_base64(&sum.to_base64()), Ok(sum));
        assert_eq!(Sha256::from_repr_digest(&sum.to_repr_digest()), Ok(Some(sum)));
    }

    #[test]
    fn other_algorithms_are_ignored_and_invalid_text_is_an_error() {
        let sum = Sha256::of(b"");
        let both = format!("sha-512=:AAAA:, SHA-256=:{}:", sum.to_base64());
        assert_eq!(Sha256::from_repr_digest(&both), Ok(Some(sum)));
        let twice = format!("{}, {}", Sha256::of(b"x").to_repr_digest(), sum.to_repr_digest());
        assert_eq!(Sha256::from_repr_digest(&twice), Ok(Some(sum)), "the last one counts");
        assert_eq!(Sha256::from_repr_digest("md5=:AAAA:"), Ok(None));
        for header in ["", "sha-256", "sha-256=", "sha-256=:AAAA:", "sha-256=47DE", "sha-256=::"] {
            assert!(Sha256::from_repr_digest(header).is_err(), "{header}");
        }
        assert!("e3".parse::<Sha256>().is_err());
        assert!("x".repeat(64).parse::<Sha256>().is_err());
    }

    #[test]
    fn pieces_have_the_digest_of_the_whole() {
        let mut hasher = Hasher::default();
        hasher.update(b"hello ");
        hasher.update(b"burrito");
        assert_eq!(hasher.finish(), Sha256::of(b"hello burrito"));
        let (long, most) = (vec![7; 600 << 10], 599 << 10);
        assert_eq!(Sha256::of_reader(&long[..]).unwrap(), Sha256::of(&long));
        assert_eq!(
            Sha256::of_reader(std::io::Read::take(&long[..], most)).unwrap(),
            Sha256::of(&long[1024..])
        );
    }
}
