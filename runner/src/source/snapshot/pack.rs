//! Writes the files of a snapshot as `tar`, compressed with `zstd`. The same files give the same bytes.

use std::collections::BTreeSet;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use tar::{Builder, EntryType, Header};
use zstd::stream::write::Encoder;

use crate::source::archive::{Limits, MAX_DEPTH, MAX_PATHS, shown_size};
use crate::source::snapshot::SnapshotError;
use crate::source::snapshot::select::Selected;

/// The compression level: the fastest of the normal ones. Higher levels take several times as long for a tenth.
const LEVEL: i32 = 1;
/// Files are read in pieces of at most this size.
const PIECE: usize = 256 << 10;

/// Writes the snapshot of `root` to `to`. It stays within the limits of an apply that unpacks it.
pub(crate) fn pack(root: &Path, selected: &Selected, to: impl Write) -> Result<(), SnapshotError> {
    pack_within(Limits::default(), root, selected, to)
}

pub(super) fn pack_within(
    limits: Limits,
    root: &Path,
    selected: &Selected,
    to: impl Write,
) -> Result<(), SnapshotError> {
    let mut encoder = Encoder::new(to, LEVEL)?;
    encoder.include_checksum(true)?;
    // It compresses on another thread than the one that reads. The bytes are the same.
    encoder.multithread(1)?;
    let size = Size { limits, entries: 0, paths: 0, bytes: 0, largest: (0, PathBuf::new()) };
    let mut archive = Archive { root, size, tar: Builder::new(encoder) };
    for directory in directories(selected) {
        archive.directory(directory)?;
    }
    for file in &selected.files {
        archive.file(file)?;
    }
    archive.tar.into_inner()?.finish()?.flush()?;
    Ok(())
}

/// All directories of the selected paths, parents first.
fn directories(selected: &Selected) -> BTreeSet<&Path> {
    let parents = selected.files.iter().flat_map(|file| file.ancestors().skip(1));
    let empty = selected.directories.iter().flat_map(|directory| directory.ancestors());
    parents.chain(empty).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// What an unpacked archive would have by now.
struct Size {
    limits: Limits,
    entries: u64,
    paths: u64,
    bytes: u64,
    /// The size of the largest file, and the file.
    largest: (u64, PathBuf),
}

impl Size {
    /// Counts an entry with so many bytes of content, and with the target of a link.
    fn count(&mut self, path: &Path, target: &Path, bytes: u64) -> Result<(), SnapshotError> {
        if path.components().count() > MAX_DEPTH {
            return Err(SnapshotError::TooDeep(path.to_owned()));
        }
        let too_large = |limit: String| Err(SnapshotError::TooLarge(limit));
        self.entries += 1;
        if self.entries > self.limits.entries {
            return too_large(format!("{} entries", self.limits.entries));
        }
        self.paths += (path.as_os_str().len() + target.as_os_str().len()) as u64;
        if self.paths > MAX_PATHS {
            return too_large(format!("{} of paths", shown_size(MAX_PATHS)));
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if bytes > self.largest.0 {
            self.largest = (bytes, path.to_owned());
        }
        if self.bytes > self.limits.bytes {
            let largest = self.largest.1.display();
            let limit = shown_size(self.limits.bytes);
            return too_large(format!("{limit} of files (the largest of them is {largest})"));
        }
        Ok(())
    }
}

struct Archive<'a, W: Write> {
    root: &'a Path,
    size: Size,
    tar: Builder<W>,
}

impl<W: Write> Archive<'_, W> {
    fn directory(&mut self, path: &Path) -> Result<(), SnapshotError> {
        let mode = mode(&self.metadata(path)?);
        self.size.count(path, Path::new(""), 0)?;
        let mut header = header(EntryType::Directory, mode, 0);
        Ok(self.tar.append_data(&mut header, path, io::empty())?)
    }

    fn file(&mut self, path: &Path) -> Result<(), SnapshotError> {
        let full = self.root.join(path);
        if self.metadata(path)?.is_symlink() {
            let target = fs::read_link(full).map_err(|error| self.failed(path, error))?;
            self.size.count(path, &target, 0)?;
            let mut header = header(EntryType::Symlink, 0o777, 0);
            return Ok(self.tar.append_link(&mut header, path, target)?);
        }
        let file = fs::File::open(full).map_err(|error| self.failed(path, error))?;
        let metadata = file.metadata().map_err(|error| self.failed(path, error))?;
        if !metadata.is_file() {
            return Err(SnapshotError::Changed(path.to_owned()));
        }
        // The header has the size, so exactly as many bytes must follow.
        let size = metadata.len();
        let piece = usize::try_from(size).map_or(PIECE, |size| size.clamp(1, PIECE));
        let mut content = Exactly { inner: BufReader::with_capacity(piece, file), left: size };
        self.size.count(path, Path::new(""), size)?;
        let mut header = header(EntryType::Regular, mode(&metadata), size);
        self.tar.append_data(&mut header, path, &mut content)?;
        if content.left > 0 {
            return Err(SnapshotError::Changed(path.to_owned()));
        }
        Ok(())
    }

    fn metadata(&self, path: &Path) -> Result<std::fs::Metadata, SnapshotError> {
        fs::symlink_metadata(self.root.join(path)).map_err(|error| self.failed(path, error))
    }

    fn failed(&self, path: &Path, error: io::Error) -> SnapshotError {
        if error.kind() == io::ErrorKind::NotFound {
            return SnapshotError::Changed(path.to_owned());
        }
        SnapshotError::File(self.root.join(path), error)
    }
}

/// A header without what differs between machines: owner, group and time.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn mode(metadata: &std::fs::Metadata) -> u32 {
    metadata.permissions().mode() & 0o777
}

/// Reads at most `left` bytes, and counts them.
struct Exactly<R> {
    inner: R,
    left: u64,
}

impl<R: io::Read> io::Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.inner.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}
