//! Makes a directory of an archive.
//!
//! The archive may be hostile. No entry is written outside of the new directory, only files, directories and links that
//! lead inside are accepted, each path once, and sizes are limited. Links are made last, so that no file is written
//! through one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use tar::{Archive, Entry, EntryType};
use zstd::stream::read::Decoder;

use crate::source::archive::link::is_inside;
use crate::source::archive::{ArchiveError, Packed};

/// The most that an archive may unpack to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Files, links and directories.
    pub(crate) entries: u64,
    /// The size of the files.
    pub(crate) bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 16 << 30 }
    }
}

/// The largest window of the compression, as a power of 2: 8 MiB. Ours has 512 KiB.
const WINDOW: u32 = 23;
/// A path, or the target of a link, is at most this long.
const MAX_PATH: usize = 4096;
/// An archive ends with as many zero bytes.
const END: u64 = 1024;

/// Unpacks `from` into `to`, which must not exist. What was written is removed after an error.
pub(crate) fn unpack(from: impl Read, to: &Path, limits: Limits) -> Result<Packed, ArchiveError> {
    make_directory(to)?;
    let unpacked = Unpacking::new(to, limits).unpack(from);
    if unpacked.is_err() {
        // The directory is new and the caller's own; what cannot be removed is removed with it.
        let _removed = fs::remove_dir_all(to);
    }
    unpacked
}

struct Unpacking<'a> {
    to: &'a Path,
    limits: Limits,
    packed: Packed,
    files: BTreeSet<PathBuf>,
    /// Directories with their modes.
    directories: BTreeMap<PathBuf, u32>,
    links: BTreeMap<PathBuf, PathBuf>,
}

impl<'a> Unpacking<'a> {
    fn new(to: &'a Path, limits: Limits) -> Self {
        let (files, directories, links) = Default::default();
        Self { to, limits, packed: Packed::default(), files, directories, links }
    }

    fn unpack(mut self, from: impl Read) -> Result<Packed, ArchiveError> {
        let mut decoder = Decoder::new(from)?;
        decoder.window_log_max(WINDOW)?;
        // Headers and padding count as well: an archive of empty entries must end too.
        let most = self.limits.bytes.saturating_add(self.limits.entries.saturating_mul(4 * END));
        let mut bytes = Tail { inner: decoder, zeros: 0, left: most };
        let mut archive = Archive::new(&mut bytes);
        // Raw: the library would read a long name of any size into memory.
        let mut long = LongNames::default();
        for entry in archive.entries()?.raw(true) {
            let mut entry = entry?;
            match entry.header().entry_type() {
                EntryType::GNULongName => long.path = Some(long_name(&mut entry)?),
                EntryType::GNULongLink => long.target = Some(long_name(&mut entry)?),
                _ => self.entry(entry, std::mem::take(&mut long))?,
            }
        }
        // Other programs write more zeros than the format asks for.
        let rest = io::copy(&mut bytes, &mut io::sink())?;
        if bytes.zeros < END.max(rest) {
            return Err(ArchiveError::BadEnd);
        }
        let links = std::mem::take(&mut self.links);
        if let Some(link) = links.keys().find(|link| self.directories.contains_key(*link)) {
            let (name, reason) = (link.display().to_string(), "its path occurs twice");
            return Err(ArchiveError::Refused { name, reason });
        }
        for (link, target) in &links {
            if link.ancestors().skip(1).any(|parent| links.contains_key(parent)) {
                let (name, reason) = (link.display().to_string(), "a parent is not a directory");
                return Err(ArchiveError::Refused { name, reason });
            }
            self.place(link)?;
            let link = self.to.join(link);
            symlink(target, &link).map_err(|error| ArchiveError::File(link, error))?;
        }
        // Children first: a directory may become read-only.
        for (directory, mode) in self.directories.iter().rev() {
            let path = self.to.join(directory);
            fs::set_permissions(&path, PermissionsExt::from_mode(*mode | 0o700))
                .map_err(|error| ArchiveError::File(path, error))?;
        }
        Ok(self.packed)
    }

    fn entry(&mut self, entry: Entry<'_, impl Read>, long: LongNames) -> Result<(), ArchiveError> {
        let path = long.path.unwrap_or_else(|| path_of(&entry.path_bytes()));
        let refused = |reason| ArchiveError::Refused { name: path.display().to_string(), reason };
        let path = checked(&path).map_err(refused)?;
        let (kind, mode) = (entry.header().entry_type(), entry.header().mode()? & 0o777);
        self.packed.entries += 1;
        if self.packed.entries > self.limits.entries {
            return Err(ArchiveError::TooLarge(format!("{} entries", self.limits.entries)));
        }
        let is_known = self.files.contains(&path) || self.links.contains_key(&path);
        if is_known || self.directories.contains_key(&path) {
            return Err(refused("its path occurs twice"));
        }
        match kind {
            EntryType::Directory => {
                self.place(&path)?;
                self.make(&path)?;
                self.directories.insert(path, mode);
            }
            EntryType::Regular => {
                self.place(&path)?;
                self.file(entry, &path, mode)?;
                self.files.insert(path);
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().map(|target| path_of(&target));
                let target = long.target.or(target);
                let target = target.filter(|target| is_inside(&path, target));
                let target = target.ok_or_else(|| refused("its link leads out of the archive"))?;
                self.links.insert(path, target);
            }
            _ => return Err(refused("it is neither a file, nor a directory, nor a symbolic link")),
        }
        Ok(())
    }

    fn file(
        &mut self,
        mut entry: Entry<'_, impl Read>,
        path: &Path,
        mode: u32,
    ) -> Result<(), ArchiveError> {
        let size = entry.size();
        self.packed.bytes = self.packed.bytes.saturating_add(size);
        if self.packed.bytes > self.limits.bytes {
            return Err(ArchiveError::TooLarge(format!("{} bytes", self.limits.bytes)));
        }
        let full = self.to.join(path);
        let failed = |error| ArchiveError::File(full.clone(), error);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode | 0o600);
        let mut file = options.open(&full).map_err(failed)?;
        if io::copy(&mut entry, &mut file).map_err(failed)? != size {
            return Err(ArchiveError::BadEnd);
        }
        Ok(())
    }

    /// Makes missing parents. A file or link in a parent's place is refused.
    fn place(&mut self, path: &Path) -> Result<(), ArchiveError> {
        let mut missing = Vec::new();
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            if self.files.contains(parent) || self.links.contains_key(parent) {
                let (name, reason) = (path.display().to_string(), "a parent is not a directory");
                return Err(ArchiveError::Refused { name, reason });
            }
            if !self.directories.contains_key(parent) {
                missing.push(parent.to_owned());
            }
        }
        for parent in missing.into_iter().rev() {
            self.make(&parent)?;
            self.directories.insert(parent, 0o700);
        }
        Ok(())
    }

    fn make(&self, directory: &Path) -> Result<(), ArchiveError> {
        make_directory(&self.to.join(directory))
    }
}

/// The names of the next entry that are too long for its header.
#[derive(Default)]
struct LongNames {
    path: Option<PathBuf>,
    target: Option<PathBuf>,
}

fn long_name(entry: &mut Entry<'_, impl Read>) -> Result<PathBuf, ArchiveError> {
    let mut name = Vec::new();
    entry.take(MAX_PATH as u64 + 1).read_to_end(&mut name)?;
    // It ends with a NUL byte.
    Ok(path_of(name.strip_suffix(b"\0").unwrap_or(&name)))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Creates a directory that only the user may enter.
fn make_directory(path: &Path) -> Result<(), ArchiveError> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| ArchiveError::File(path.to_owned(), error))
}

/// A path below the root, or why it is refused.
fn checked(path: &Path) -> Result<PathBuf, &'static str> {
    if path.as_os_str().len() > MAX_PATH {
        return Err("its path is too long");
    }
    if path.as_os_str().as_bytes().contains(&0) {
        return Err("its path has a NUL byte");
    }
    let mut checked = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if name != ".git" => checked.push(name),
            Component::Normal(_) => return Err("it belongs to git"),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err("its path leads out of the archive");
            }
        }
    }
    if checked.as_os_str().is_empty() { Err("it has no path") } else { Ok(checked) }
}

/// Counts the zero bytes at the end, and ends with an error after too many bytes.
struct Tail<R> {
    inner: R,
    zeros: u64,
    left: u64,
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let last = buffer[..read].iter().rposition(|byte| *byte != 0);
        self.zeros = match last {
            Some(at) => (read - at - 1) as u64,
            None => self.zeros + read as u64,
        };
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::other("it is larger than the limits allow"))?;
        Ok(read)
    }
}
