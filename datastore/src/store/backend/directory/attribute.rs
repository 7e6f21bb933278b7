//! The digest of an object in a directory, as an extended attribute of its file.
//!
//! The attribute is part of the file, so renames and power failures cannot separate the two. It names the version of the file
//! that it describes, as a record does (`digest_record.rs`). So a file that was changed in place is detected, and a copy with
//! attributes (`cp -a`) is compared with its digest.
//!
//! ext4 keeps at most about 64 bytes in the inode itself, and needs one more block for a longer attribute. So a version has
//! a short form, unless it is encrypted. Earlier releases wrote JSON, which is read as well.

use std::fs::File;
use std::path::Path;

use datastore_api::Sha256;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, getxattr};

use crate::store::digest_record::{Version, bare};

const NAME: &str = "user.plancha";
/// The largest attribute; real ones have a quarter of this.
const MAX: usize = 1024;
/// The first byte of the short form. JSON begins with another one.
const SHORT: u8 = 1;
/// The bytes of the short form: the first one, inode, microseconds and size of the `ETag` as numbers in little endian, and the digest.
const SHORT_LENGTH: usize = 1 + 3 * 8 + 32;

/// The version in a file's attribute; `None` without an attribute.
pub(in crate::store) fn read(file: &File) -> Option<Version> {
    let mut value = [0; MAX];
    let length = fgetxattr(file, NAME, &mut value[..]).ok()?;
    decode(value.get(..length)?)
}

/// The same by path.
pub(in crate::store) fn read_at(file_path: &Path) -> Option<Version> {
    let mut value = [0; MAX];
    let length = getxattr(file_path, NAME, &mut value[..]).ok()?;
    decode(value.get(..length)?)
}

/// Writes the attribute, which the caller syncs; `false` if the file system does not support it.
pub(in crate::store) fn write(file: &File, version: &Version) -> bool {
    let value = encode_short(version).or_else(|| serde_json::to_vec(version).ok());
    value.is_some_and(|value| {
        value.len() <= MAX && fsetxattr(file, NAME, &value, XattrFlags::empty()).is_ok()
    })
}

fn decode(value: &[u8]) -> Option<Version> {
    match value {
        [SHORT, ..] => decode_short(value),
        json => serde_json::from_slice(json).ok(),
    }
}

/// The short form of a plain version with a digest and an `ETag` of a file.
fn encode_short(version: &Version) -> Option<Vec<u8>> {
    let Version { etag, size, sha256: Some(sha256), format: None } = version else { return None };
    let mut parts = bare(etag).split('-');
    let mut value = vec![SHORT];
    for _ in 0..3 {
        let number = u64::from_str_radix(parts.next()?, 16).ok()?;
        value.extend(number.to_le_bytes());
    }
    value.extend(sha256.0);
    // Only what is read back as it is: an `ETag` can have another form, or another size.
    let is_same = decode_short(&value).is_some_and(|read| read.is(etag, *size));
    is_same.then_some(value)
}

fn decode_short(value: &[u8]) -> Option<Version> {
    let value: &[u8; SHORT_LENGTH] = value.try_into().ok()?;
    let (numbers, digest) = value.split_first()?.1.split_at_checked(3 * 8)?;
    let mut numbers =
        numbers.chunks_exact(8).map(|number| number.try_into().map(u64::from_le_bytes));
    let mut number = || numbers.next()?.ok();
    let (inode, microseconds, size) = (number()?, number()?, number()?);
    let etag = format!("\"{inode:x}-{microseconds:x}-{size:x}\"");
    let sha256 = Some(Sha256(digest.try_into().ok()?));
    Some(Version { etag, size, sha256, format: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: &str) -> Version {
        let sha256 = Some(Sha256::of(b"x"));
        Version { etag: etag.to_owned(), size: 0x1000, sha256, format: None }
    }

    #[test]
    fn a_plain_version_has_a_short_form_that_fits_into_an_inode() {
        let written = version("\"98a095-6614e0a40794a-1000\"");
        let value = encode_short(&written).unwrap();
        assert!(value.len() <= 64, "{}", value.len());
        assert_eq!(decode(&value), Some(written));
    }

    #[test]
    fn other_versions_and_those_of_earlier_releases_are_json() {
        let usual = "\"98a095-6614e0a40794a-1000\"";
        let encrypted = Version { format: Some("cbc".to_owned()), ..version(usual) };
        let unknown = Version { sha256: None, ..version(usual) };
        for other in [version("\"x\""), version("\"1-2-3\""), version(""), encrypted, unknown] {
            assert_eq!(encode_short(&other), None, "{other:?}");
            assert_eq!(decode(&serde_json::to_vec(&other).unwrap()), Some(other));
        }
        let earlier = version(usual);
        assert_eq!(decode(&serde_json::to_vec(&earlier).unwrap()), Some(earlier));
    }

    #[test]
    fn a_broken_attribute_is_none() {
        let value = encode_short(&version("\"98a095-6614e0a40794a-1000\"")).unwrap();
        for length in 0..value.len() {
            assert_eq!(decode(&value[..length]), None, "{length}");
        }
        assert_eq!(decode(&[&value[..], b"x"].concat()), None);
    }
}
