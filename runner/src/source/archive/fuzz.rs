//! Makes archives of any entries, unpacks them, and checks what must hold for each.

use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::{Limits, unpack};

/// Kind, name, target of a link, and content.
type Entry<'a> = (u8, &'a [u8], &'a [u8], &'a [u8]);

const KINDS: &[u8] = b"0123456LKxgS7D\0";

/// How an archive is changed after it was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    /// Its end is missing.
    Cut,
    /// It follows itself.
    Twice,
    /// One byte differs.
    Flipped,
}

/// Unpacks entries of a kind, a name, the name of a target and content. `form` selects how they are compressed, for which
/// limits, and how the archive is changed; `at` where. Nothing may be written outside of the new directory, and after an
/// error nothing may be left. An archive without its end, and one that follows itself, are refused.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "fuzz targets call it, and tests"))]
pub fn source_archive(entries: &[Entry<'_>], form: u8, at: u16) {
    let Some(tar) = tar_of(entries) else { return };
    let change = [Change::None, Change::Cut, Change::Twice, Change::Flipped][usize::from(form & 3)];
    let (of_any_program, after_compression) = (form & 4 != 0, form & 8 != 0);
    let compress = |tar: Vec<u8>| match form >> 4 & 3 {
        0 if of_any_program => tar,
        1 if of_any_program => gzip(&tar),
        _ => zstd::encode_all(&tar[..], 1).unwrap_or_default(),
    };
    let archive = if after_compression {
        changed(compress(tar), change, at)
    } else {
        compress(changed(tar, change, at))
    };
    let Ok(dir) = tempfile::tempdir() else { return };
    let limits = Limits { entries: 50, bytes: 1 << 16, of_any_program };
    let to = dir.path().join("to");
    let unpacked = unpack(&archive[..], &to, limits);
    assert_eq!(unpacked.is_ok(), to.exists(), "after an error nothing is left");
    let is_whole = change != Change::Cut && (change != Change::Twice || entries.is_empty());
    assert!(is_whole || unpacked.is_err(), "an archive that is not whole is refused");
    let outside = std::fs::read_dir(dir.path()).into_iter().flatten().flatten();
    assert!(outside.map(|entry| entry.path()).all(|path| path == to), "nothing is written outside");
    check_inside(&to);
}

fn tar_of(entries: &[Entry<'_>]) -> Option<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (kind, name, target, content) in entries {
        let mut header = Header::new_gnu();
        let fields = header.as_gnu_mut()?;
        for (field, bytes) in [(&mut fields.name, name), (&mut fields.linkname, target)] {
            let length = bytes.len().min(field.len());
            field[..length].copy_from_slice(&bytes[..length]);
        }
        header.set_entry_type(EntryType::new(KINDS[usize::from(*kind) % KINDS.len()]));
        header.set_mode(u32::from(*kind));
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, *content).ok()?;
    }
    tar.into_inner().ok()
}

fn changed(mut archive: Vec<u8>, change: Change, at: u16) -> Vec<u8> {
    let at = usize::from(at) % archive.len().max(1);
    match change {
        Change::None => {}
        Change::Cut => archive.truncate(at),
        Change::Twice => archive.extend_from_within(..),
        Change::Flipped => archive[at] ^= 0x55,
    }
    archive
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(bytes);
    written.and_then(|()| encoder.finish()).unwrap_or_default()
}

/// Links lead nowhere else, so a file behind any path is inside.
fn check_inside(root: &Path) {
    let real_root = std::fs::canonicalize(root).unwrap_or_default();
    let mut to_do = vec![root.to_owned()];
    while let Some(path) = to_do.pop() {
        if let Ok(real) = std::fs::canonicalize(&path) {
            assert!(real.starts_with(&real_root), "a link leads outside");
        }
        if path.is_dir() && !path.is_symlink() {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            to_do.extend(entries.map(|entry| entry.path()));
        }
    }
}
