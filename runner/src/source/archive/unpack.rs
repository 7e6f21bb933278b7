//! Makes a directory of an archive.
//!
//! The archive may be hostile. No entry is written outside of the new directory, only files, directories and links that
//! lead inside are accepted, each path once, and sizes are limited. Links are made last, so that no file is written
//! through one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use tar::{Archive, Entry, EntryType};

use crate::process::Signals;
use crate::source::archive::compression::{self, is_label, is_tar, start};
use crate::source::archive::headers::{self, Extended, MAX_PART, MAX_PATH, TOO_LONG, path_of};
use crate::source::archive::link::is_inside;
use crate::source::archive::{ArchiveError, Packed, Refusal, shown_size};

/// What an archive may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Files, links and directories, also those that only the path of another entry names.
    pub(crate) entries: u64,
    /// The size of the files.
    pub(crate) bytes: u64,
    /// Whether another program than the runner may have made it. Then it may be compressed with gzip or not at all, have
    /// `pax` headers, hard links to earlier files, an entry for its root and directories that occur again. [`LEFT_OUT`]
    /// is left out.
    pub(crate) of_any_program: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 1_000_000, bytes: 16 << 30, of_any_program: false }
    }
}

/// What git and the tool keep for themselves. Hooks and settings of an archive's git must not be used, and a data directory
/// of the tool would select its backend and workspace.
const LEFT_OUT: [&str; 2] = [".git", ".terraform"];
/// The largest window of the compression, as a power of 2: 8 MiB. Ours has 512 KiB.
const WINDOW: u32 = 23;
/// The same for archives of other programs, 128 MiB: the most that `zstd` unpacks by default.
const ANY_WINDOW: u32 = 27;
/// The paths of all entries together have no more bytes: they are kept in memory.
pub(in crate::source) const MAX_PATHS: u64 = 256 << 20;
/// A path has no more parts.
pub(in crate::source) const MAX_DEPTH: usize = 100;
/// Entries begin at multiples of it.
const BLOCK: u64 = 512;
/// An archive ends with as many zero bytes.
const END: u64 = 2 * BLOCK;
/// Files are written in pieces of this size.
const PIECE: usize = 64 << 10;

/// The same as [`unpack_until`], without signals.
#[cfg(any(test, fuzzing))]
pub(crate) fn unpack(from: impl Read, to: &Path, limits: Limits) -> Result<Packed, ArchiveError> {
    unpack_until(None, from, to, limits)
}

/// Unpacks `from` into `to`, which must not exist. What was written is removed after an error, but not after a signal:
/// that may take longer than the time that is left.
pub(crate) fn unpack_until(
    signals: Option<&Signals>,
    from: impl Read,
    to: &Path,
    limits: Limits,
) -> Result<Packed, ArchiveError> {
    make_directory(to)?;
    let unpacked = Unpacking::new(to, limits, signals).unpack(from);
    let is_stopped = signals.is_some_and(|signals| signals.stopped().is_some());
    if unpacked.is_err() && !is_stopped {
        // The directory is new and the caller's own; what cannot be removed is removed with it.
        let _removed = fs::remove_dir_all(to);
    }
    unpacked
}

struct Unpacking<'a> {
    to: &'a Path,
    limits: Limits,
    signals: Option<&'a Signals>,
    packed: Packed,
    /// All entries, and directories that only the path of another entry names.
    counted: u64,
    /// The bytes of all paths.
    paths: u64,
    files: BTreeSet<PathBuf>,
    /// Directories with their modes.
    directories: BTreeMap<PathBuf, u32>,
    links: BTreeMap<PathBuf, PathBuf>,
}

impl<'a> Unpacking<'a> {
    fn new(to: &'a Path, limits: Limits, signals: Option<&'a Signals>) -> Self {
        let (files, directories, links) = Default::default();
        Self {
            to,
            limits,
            signals,
            packed: Packed::default(),
            counted: 0,
            paths: 0,
            files,
            directories,
            links,
        }
    }

    fn unpack(mut self, from: impl Read) -> Result<Packed, ArchiveError> {
        let tar = if self.limits.of_any_program {
            compression::any(from, ANY_WINDOW)
        } else {
            compression::zstd(from, WINDOW)
        };
        let (mut first, tar) = start(tar?)?;
        let mut tar: Box<dyn Read + '_> = Box::new(tar);
        if self.limits.of_any_program && is_label(&first) {
            // It has no content, and does not describe the files.
            tar.read_exact(&mut first)?;
            let rest = start(tar)?;
            (first, tar) = (rest.0, Box::new(rest.1));
        }
        if !is_tar(&first) {
            return Err(ArchiveError::Unknown("not a tar archive"));
        }
        // Headers and padding count as well: an archive of empty entries must end too.
        let most = self.limits.bytes.saturating_add(self.limits.entries.saturating_mul(4 * END));
        let mut bytes = Tail { inner: tar, read: 0, zeros: 0, left: most, is_at_end: false };
        let entries = self.entries(&mut bytes);
        // The library has no kind of error for it.
        let end = entries.map_err(|error| match error {
            ArchiveError::Read(_) if bytes.is_at_end => ArchiveError::BadEnd,
            error => error,
        })?;
        io::copy(&mut bytes, &mut io::sink())?;
        // Other programs write more zeros than the format asks for. Those of the last entry do not count.
        let rest = bytes.read.saturating_sub(end);
        if rest < END {
            return Err(ArchiveError::BadEnd);
        }
        if bytes.zeros < rest {
            return Err(ArchiveError::Trailing);
        }
        self.finish()
    }

    /// The offset at which the last entry ends.
    fn entries(&mut self, bytes: impl Read) -> Result<u64, ArchiveError> {
        // Raw: the library would read a long name of any size into memory.
        let (mut extended, mut end) = (Extended::default(), 0);
        for entry in Archive::new(bytes).entries()?.raw(true) {
            let mut entry = entry?;
            let size = entry.size().checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
            end = entry.raw_file_position().saturating_add(size);
            match entry.header().entry_type() {
                EntryType::GNULongName => extended.path = Some(headers::long_name(&mut entry)?),
                EntryType::GNULongLink => extended.target = Some(headers::long_name(&mut entry)?),
                EntryType::XHeader if self.limits.of_any_program => {
                    extended.read_pax(&mut entry)?;
                }
                EntryType::XGlobalHeader if self.limits.of_any_program => {
                    let commit = headers::commit(&mut entry)?;
                    self.packed.commit = self.packed.commit.take().or(commit);
                }
                _ => self.entry(entry, std::mem::take(&mut extended))?,
            }
        }
        Ok(end)
    }

    /// Makes the links, and sets the modes of the directories.
    fn finish(mut self) -> Result<Packed, ArchiveError> {
        let links = std::mem::take(&mut self.links);
        if let Some(link) = links.keys().find(|link| self.directories.contains_key(*link)) {
            return Err(refused(link, Refusal::Twice));
        }
        for (link, target) in &links {
            if link.ancestors().skip(1).any(|parent| links.contains_key(parent)) {
                return Err(refused(link, "a parent is not a directory"));
            }
            self.check_stopped()?;
            self.place(link)?;
            symlink(target, self.to.join(link)).map_err(|error| self.failed(link, error))?;
        }
        // Children first: a directory may become read-only.
        for (directory, mode) in self.directories.iter().rev() {
            self.check_stopped()?;
            fs::set_permissions(self.to.join(directory), PermissionsExt::from_mode(*mode | 0o700))
                .map_err(|error| self.failed(directory, error))?;
        }
        Ok(self.packed)
    }

    fn entry(
        &mut self,
        entry: Entry<'_, impl Read>,
        extended: Extended,
    ) -> Result<(), ArchiveError> {
        let any = self.limits.of_any_program;
        let name = extended.path.unwrap_or_else(|| path_of(&entry.path_bytes()));
        self.count(&name)?;
        self.packed.entries += 1;
        let mode = entry.header().mode()? & 0o777;
        let kind = kind(&entry, &name, any);
        if any
            && kind == EntryType::Directory
            && name.components().all(|part| part == Component::CurDir)
        {
            // The root itself, which is there already.
            return Ok(());
        }
        if any && name.iter().any(|part| LEFT_OUT.iter().any(|left_out| part == *left_out)) {
            return Ok(());
        }
        let path = checked(&name).map_err(|reason| refused(&name, reason))?;
        let is_known = self.files.contains(&path) || self.links.contains_key(&path);
        let is_again = self.directories.contains_key(&path);
        if is_known || is_again && !(any && kind == EntryType::Directory) {
            return Err(refused(&path, Refusal::Twice));
        }
        if extended.is_sparse || kind == EntryType::GNUSparse {
            return Err(refused(&path, Refusal::Sparse));
        }
        if extended.size.is_some_and(|size| size != entry.size()) {
            return Err(refused(&path, "its headers have different sizes"));
        }
        let target = || {
            let target = entry.link_name_bytes().map(|target| path_of(&target));
            extended.target.clone().or(target).unwrap_or_default()
        };
        match kind {
            EntryType::Directory => {
                self.place(&path)?;
                if !is_again {
                    self.make(&path)?;
                }
                self.directories.insert(path, mode);
            }
            EntryType::Regular => {
                let size = entry.size();
                self.file(entry, size, path, mode)?;
            }
            EntryType::Symlink if is_inside(&path, &target()) => {
                let target = target();
                self.count_path(&target)?;
                self.links.insert(path, target);
            }
            EntryType::Symlink => return Err(refused(&path, "its link leads out of the archive")),
            EntryType::Link if any => self.copy_of(&target(), path, mode)?,
            _ => {
                return Err(refused(
                    &path,
                    "it is neither a file, nor a directory, nor a symbolic link",
                ));
            }
        }
        Ok(())
    }

    /// Copies an earlier file, to which a hard link leads.
    fn copy_of(&mut self, target: &Path, path: PathBuf, mode: u32) -> Result<(), ArchiveError> {
        let target = checked(target).ok().filter(|target| self.files.contains(target));
        let target =
            target.ok_or_else(|| refused(&path, "its hard link leads to no earlier file"))?;
        let target = self.to.join(target);
        let failed = |error| ArchiveError::File(target.clone(), error);
        let file = std::fs::File::open(&target).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        self.file(file, size, path, mode)
    }

    fn file(
        &mut self,
        mut content: impl Read,
        size: u64,
        path: PathBuf,
        mode: u32,
    ) -> Result<(), ArchiveError> {
        self.place(&path)?;
        self.packed.bytes = self.packed.bytes.saturating_add(size);
        if self.packed.bytes > self.limits.bytes {
            return Err(ArchiveError::TooLarge(format!(
                "{} of files",
                shown_size(self.limits.bytes)
            )));
        }
        let failed = |error| self.failed(&path, error);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode | 0o600);
        let mut file = options.open(self.to.join(&path)).map_err(failed)?;
        let (mut piece, mut left) = (vec![0; PIECE], size);
        while left > 0 {
            let read = content.read(&mut piece)?;
            if read == 0 {
                return Err(ArchiveError::BadEnd);
            }
            file.write_all(&piece[..read]).map_err(failed)?;
            left = left.saturating_sub(read as u64);
        }
        self.files.insert(path);
        Ok(())
    }

    /// Makes missing parents. A file or link in a parent's place is refused.
    fn place(&mut self, path: &Path) -> Result<(), ArchiveError> {
        let mut missing = Vec::new();
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            if self.files.contains(parent) || self.links.contains_key(parent) {
                return Err(refused(path, "a parent is not a directory"));
            }
            if !self.directories.contains_key(parent) {
                missing.push(parent.to_owned());
            }
        }
        for parent in missing.into_iter().rev() {
            self.check_stopped()?;
            self.count(&parent)?;
            self.make(&parent)?;
            self.directories.insert(parent, 0o700);
        }
        Ok(())
    }

    /// Ends the work after a signal. A small archive may name very many directories.
    fn check_stopped(&self) -> Result<(), ArchiveError> {
        let stop = self.signals.and_then(Signals::stopped);
        stop.map_or(Ok(()), |stop| Err(ArchiveError::Read(io::Error::other(stop.to_string()))))
    }

    /// Counts a file, link or directory.
    fn count(&mut self, path: &Path) -> Result<(), ArchiveError> {
        self.counted += 1;
        if self.counted > self.limits.entries {
            return Err(ArchiveError::TooLarge(format!("{} entries", self.limits.entries)));
        }
        self.count_path(path)
    }

    fn count_path(&mut self, path: &Path) -> Result<(), ArchiveError> {
        self.paths += path.as_os_str().len() as u64;
        if self.paths > MAX_PATHS {
            return Err(ArchiveError::TooLarge(format!("{} of paths", shown_size(MAX_PATHS))));
        }
        Ok(())
    }

    fn make(&self, directory: &Path) -> Result<(), ArchiveError> {
        let made = make_directory(&self.to.join(directory));
        made.map_err(|error| match error {
            ArchiveError::File(_, error) => self.failed(directory, error),
            error => error,
        })
    }

    /// An entry that cannot be written. Names that the file system does not accept are the archive's fault.
    fn failed(&self, path: &Path, error: io::Error) -> ArchiveError {
        match error.kind() {
            io::ErrorKind::InvalidFilename => refused(path, TOO_LONG),
            _ => ArchiveError::File(self.to.join(path), error),
        }
    }
}

/// What an entry is. Old programs mark a directory only by a slash at its end, and some write another kind for a file whose
/// blocks are contiguous.
fn kind(entry: &Entry<'_, impl Read>, name: &Path, any: bool) -> EntryType {
    match entry.header().entry_type() {
        EntryType::Regular
            if any && entry.size() == 0 && name.as_os_str().as_bytes().ends_with(b"/") =>
        {
            EntryType::Directory
        }
        EntryType::Continuous if any => EntryType::Regular,
        kind => kind,
    }
}

fn refused(path: &Path, reason: impl Into<Refusal>) -> ArchiveError {
    ArchiveError::Refused { name: path.display().to_string(), reason: reason.into() }
}

/// Creates a directory that only the user may enter.
fn make_directory(path: &Path) -> Result<(), ArchiveError> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| ArchiveError::File(path.to_owned(), error))
}

/// A path below the root, or why it is refused.
fn checked(path: &Path) -> Result<PathBuf, Refusal> {
    if path.as_os_str().len() > MAX_PATH {
        return Err(TOO_LONG);
    }
    if path.as_os_str().as_bytes().contains(&0) {
        return Err("its path has a NUL byte".into());
    }
    let mut checked = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if name.len() > MAX_PART => {
                return Err(Refusal::TooLong("a part of its path has more than 255 bytes"));
            }
            Component::Normal(name) if name != ".git" => checked.push(name),
            Component::Normal(_) => return Err("it belongs to git".into()),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err("its path leads out of the archive".into());
            }
        }
    }
    match checked.components().count() {
        0 => Err("it has no path".into()),
        1..=MAX_DEPTH => Ok(checked),
        _ => Err("its path has more than 100 parts".into()),
    }
}

/// Counts the bytes and the zeros at their end, and ends with an error after too many bytes.
struct Tail<R> {
    inner: R,
    read: u64,
    zeros: u64,
    left: u64,
    is_at_end: bool,
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.is_at_end = read == 0 && !buffer.is_empty();
        self.read += read as u64;
        let last = buffer[..read].iter().rposition(|byte| *byte != 0);
        self.zeros = match last {
            Some(at) => (read - at - 1) as u64,
            None => self.zeros + read as u64,
        };
        let left = self.left.checked_sub(read as u64);
        self.left = left.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(read)
    }
}
