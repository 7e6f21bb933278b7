//! The headers before an entry that hold what its own header has no room for: those of GNU tar, and `pax`, which git, GNU
//! tar and bsdtar write.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use tar::Entry;

use crate::source::archive::{ArchiveError, Refusal};

/// A path, or the target of a link, is at most this long.
pub(super) const MAX_PATH: usize = 4096;
/// A part of a path is at most this long.
pub(super) const MAX_PART: usize = 255;
/// Why a longer path, or target of a link, is refused.
pub(super) const TOO_LONG: Refusal =
    Refusal::TooLong("its path, or the target of its link, is too long");
/// The largest `pax` header: programs write extended attributes into it.
const MAX_PAX: usize = 1 << 20;

/// What the headers before an entry record about it.
#[derive(Default)]
pub(super) struct Extended {
    pub(super) path: Option<PathBuf>,
    pub(super) target: Option<PathBuf>,
    pub(super) size: Option<u64>,
    /// Whether the entry is a sparse file, whose content is in pieces.
    pub(super) is_sparse: bool,
}

impl Extended {
    /// Reads the `pax` header of the next entry.
    pub(super) fn read_pax(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
    ) -> Result<(), ArchiveError> {
        let mut sparse_name = None;
        for (key, value) in records(&content(entry, MAX_PAX)?).ok_or(ArchiveError::BadHeader)? {
            let is_set = !value.is_empty();
            match key {
                b"path" => self.path = is_set.then(|| path_of(value)),
                b"linkpath" => self.target = is_set.then(|| path_of(value)),
                b"size" => self.size = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok()),
                _ if key.starts_with(b"GNU.sparse.") => {
                    self.is_sparse = true;
                    sparse_name =
                        sparse_name.or((key == b"GNU.sparse.name").then(|| path_of(value)));
                }
                _ => {}
            }
        }
        // Its path is one for programs that do not know sparse files.
        self.path = sparse_name.or(self.path.take());
        Ok(())
    }
}

/// A name of the next entry, as GNU tar writes it.
pub(super) fn long_name(entry: &mut Entry<'_, impl Read>) -> Result<PathBuf, ArchiveError> {
    let size = entry.size();
    let mut name = Vec::new();
    entry.take(MAX_PATH as u64 + 1).read_to_end(&mut name)?;
    if name.len() > MAX_PATH && size > name.len() as u64 {
        let name = format!("{}...", String::from_utf8_lossy(&name));
        return Err(ArchiveError::Refused { name, reason: TOO_LONG });
    }
    // It ends with a NUL byte.
    Ok(path_of(name.strip_suffix(b"\0").unwrap_or(&name)))
}

/// The commit in a global `pax` header, as `git archive` writes it.
pub(super) fn commit(entry: &mut Entry<'_, impl Read>) -> Result<Option<String>, ArchiveError> {
    let content = content(entry, MAX_PAX)?;
    let records = records(&content).ok_or(ArchiveError::BadHeader)?;
    let comment = records.into_iter().find(|(key, _)| *key == b"comment");
    let comment = comment.and_then(|(_, value)| std::str::from_utf8(value).ok());
    let is_commit = |text: &&str| {
        matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    Ok(comment.filter(is_commit).map(str::to_ascii_lowercase))
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

fn content(entry: &mut Entry<'_, impl Read>, most: usize) -> Result<Vec<u8>, ArchiveError> {
    let mut content = Vec::new();
    entry.take(most as u64 + 1).read_to_end(&mut content)?;
    if content.len() > most { Err(ArchiveError::BadHeader) } else { Ok(content) }
}

/// The records of a `pax` header: `LENGTH KEY=VALUE\n`, where the length is that of the whole record.
fn records(mut content: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ')?;
        let length = std::str::from_utf8(&content[..space]).ok()?.parse::<usize>().ok()?;
        let (record, rest) = content.split_at_checked(length)?;
        let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((&record[..equals], &record[equals + 1..]));
        content = rest;
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_pax_header_have_their_length() {
        let found = records(b"9 a=b\nc\n\n5 x=\n12 path=a/b\n").unwrap();
        assert_eq!(found, [(&b"a"[..], &b"b\nc\n"[..]), (b"x", b""), (b"path", b"a/b")]);
        for wrong in [
            "5 x=",
            "4 x=\n",
            "99 a=b\n",
            "6 xy\n",
            "x",
            "1 ",
            "-1 a=b\n",
            "18446744073709551615 a=b\n",
        ] {
            assert!(records(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
