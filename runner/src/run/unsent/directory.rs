//! One directory of unsent files: the names of its files, their digests, and its lock. It knows neither which directory
//! belongs to which run nor how the files are sent.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::thread;

use datastore_api::digest::Hasher;
use datastore_api::{File as StoredFile, PlanFormat, Sha256};
use fs_err as fs;
use tempfile::NamedTempFile;
use url::Url;

use crate::process::url_secrets;
use crate::run::artifacts::{APPLIED, LEDGER, other};
use crate::source::regular::{self, unless_missing};
use crate::source::scratch::{self, PARTIAL, UNSENT};
use crate::source::states;

/// The digests of the files, as `sha256sum` prints them. If a name occurs twice, the last line is valid.
pub(super) const SUMS: &str = "SHA256SUMS";
/// The URL of the datastore that the files are for. Older versions did not write it.
pub(super) const DATASTORE: &str = "datastore.url";
/// The attempt that failed.
pub(super) const FAILED: &str = "attempt.json";
pub(super) const REPORT: &str = "run.json";

/// The files that a directory may hold besides the records, in the order in which they are sent.
pub(super) fn files() -> [(&'static str, StoredFile); 4] {
    let short = StoredFile::Plan(PlanFormat::Short);
    [
        ("run.log", StoredFile::Log),
        ("short.diff", short),
        (LEDGER, other(LEDGER)),
        (REPORT, other(REPORT)),
    ]
}

/// The names of the runner's own files that have a digest. What identifies the directory comes first.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    [DATASTORE, APPLIED, FAILED].into_iter().chain(files().map(|(name, _)| name))
}

/// Makes directories of mode 0700.
pub(super) fn builder() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Writes a file and its digest, both synced. After an error or a crash the directory has either the whole file or none.
pub(super) fn write(dir: &Path, name: &str, from: impl Read) -> io::Result<()> {
    write_all(dir, [(name, from)])
}

/// Writes files and their digests, all synced. They get their names in this order: after an error or a crash the directory has
/// none, or the first ones, each of them whole.
pub(super) fn write_all<'a>(
    dir: &Path,
    from: impl IntoIterator<Item = (&'a str, impl Read)>,
) -> io::Result<()> {
    let mut sums = partial(dir)?;
    let lines = unless_missing(regular::read(&dir.join(SUMS)))?;
    sums.write_all(&lines.unwrap_or_default())?;
    let mut files = Vec::new();
    for (name, from) in from {
        let mut file = partial(dir)?;
        writeln!(sums, "{}  {name}", copy(from, &mut file)?)?;
        files.push((name, file));
    }
    let written = files.iter().map(|(_, file)| file).chain([&sums]);
    sync_all(&written.map(NamedTempFile::as_file).collect::<Vec<_>>())?;
    sums.persist(dir.join(SUMS)).map_err(|error| error.error)?;
    for (name, file) in files {
        file.persist(dir.join(name)).map_err(|error| error.error)?;
    }
    sync(dir)
}

/// Copies all bytes. Returns their digest.
fn copy(mut from: impl Read, to: &mut impl io::Write) -> io::Result<Sha256> {
    let (mut hasher, mut piece) = (Hasher::default(), vec![0; 64 << 10]);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => {
                hasher.update(&piece[..count]);
                to.write_all(&piece[..count])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Syncs files at the same time: a file system with a journal then writes it once, not for each of them.
fn sync_all(files: &[&File]) -> io::Result<()> {
    thread::scope(|scope| {
        let start = |file| thread::Builder::new().spawn_scoped(scope, move || File::sync_all(file));
        let started = files.iter().map(|file| (*file, start(*file))).collect::<Vec<_>>();
        let ended = started.into_iter().map(|(file, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| file.sync_all()),
            // There may be no more threads.
            Err(_) => file.sync_all(),
        });
        ended.collect()
    })
}

/// A file of mode 0600 that is removed unless it gets its name.
pub(super) fn partial(dir: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(PARTIAL).tempfile_in(dir)
}

/// Syncs the names in a directory.
pub(super) fn sync(dir: &Path) -> io::Result<()> {
    match fs::File::open(dir)?.sync_all() {
        // Some file systems cannot sync a directory.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// The recorded digests of the files, by name; `None` without a record. An error of the kind `InvalidData` is damage.
pub(super) fn sums(dir: &Path) -> io::Result<Option<BTreeMap<String, Sha256>>> {
    let Some(bytes) = unless_missing(regular::read(&dir.join(SUMS)))? else { return Ok(None) };
    let mut sums = BTreeMap::new();
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix('\n'));
        let pair = line.and_then(|line| line.split_once("  "));
        let pair = pair.and_then(|(sha256, name)| Some((name.to_owned(), sha256.parse().ok()?)));
        let (name, sha256) = pair.ok_or_else(|| {
            let reason = format!("line {} is not a digest and the name of a file", index + 1);
            io::Error::new(io::ErrorKind::InvalidData, reason)
        })?;
        sums.insert(name, sha256);
    }
    Ok(Some(sums))
}

/// The URL of a datastore as it is recorded and compared: without user, password and query.
pub(super) fn recorded_url(url: &Url) -> String {
    url_secrets::without_secrets(url).as_str().trim_end_matches('/').to_owned()
}

/// The recorded URL of the datastore that the files in a directory are for.
pub(super) fn datastore_of(dir: &Path) -> Option<String> {
    let text = regular::read_text(&dir.join(DATASTORE)).ok()?;
    Url::parse(text.trim()).ok().as_ref().map(recorded_url)
}

/// The lock of a directory, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock(Option<File>);

impl Lock {
    /// Whether it keeps other processes out. A file system may have no locks.
    pub(super) fn is_exclusive(&self) -> bool {
        self.0.is_some()
    }
}

/// The result of an attempt to lock a directory. The process that has the lock writes, sends and removes its files.
#[derive(Debug)]
pub(super) enum Locking {
    Locked(Lock),
    /// Another process has it.
    Busy,
    /// There is no such directory any more.
    Gone,
}

/// Locks a directory, if no other process has done so.
pub(super) fn lock(dir: &Path) -> io::Result<Locking> {
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let file = match fs::File::open(dir) {
        Ok(file) => File::from(file),
        Err(error) if missing(&error) => return Ok(Locking::Gone),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Locking::Busy),
        Err(TryLockError::Error(error)) => {
            tracing::debug!("{} cannot be locked: {error}", dir.display());
            return Ok(Locking::Locked(Lock(None)));
        }
    }
    // The one who had the lock may have removed the directory.
    match fs::metadata(dir) {
        Ok(now) if now.ino() == file.metadata()?.ino() => Ok(Locking::Locked(Lock(Some(file)))),
        Ok(_) => Ok(Locking::Busy),
        Err(error) if missing(&error) => Ok(Locking::Gone),
        Err(error) => Err(error),
    }
}

/// Removes the runner's files in a directory. Returns the names of other files.
pub(super) fn empty(dir: &Path) -> io::Result<Vec<String>> {
    // Another process may remove the same files. The records go last: until then the directory can be sent again.
    let own = names().collect::<Vec<_>>();
    for name in own.into_iter().rev().chain([SUMS]) {
        unless_missing(fs::remove_file(dir.join(name)))?;
    }
    unless_missing(states::remove_orphaned_records(dir))?;
    let mut foreign = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(PARTIAL) {
            unless_missing(fs::remove_file(dir.join(name)))?;
        } else {
            foreign.push(name);
        }
    }
    foreign.sort();
    Ok(foreign)
}

/// Removes the runner's files in a directory, then the directory and its empty parents. With other files it stays, and
/// their names are returned.
pub(super) fn remove(dir: &Path) -> io::Result<Vec<String>> {
    let foreign = empty(dir)?;
    if !foreign.is_empty() {
        return Ok(foreign);
    }
    unless_missing(fs::remove_dir(dir))?;
    if let Some(parent) = dir.parent().filter(|_| dir.ends_with(UNSENT)) {
        scratch::remove_emptied(parent)?;
    }
    let in_state_home = dir.ancestors().nth(4).is_some_and(|root| root.ends_with("plancha/unsent"));
    for parent in dir.ancestors().skip(1).take(if in_state_home { 3 } else { 0 }) {
        // A parent that is not empty is used by other runs.
        if fs::remove_dir(parent).is_err() {
            break;
        }
    }
    Ok(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_url_has_no_secret() {
        for (url, recorded) in [
            ("http://user:secret@Host:80/?token=secret#secret", "http://host"),
            ("https://host:8443/behind/a/proxy/", "https://host:8443/behind/a/proxy"),
        ] {
            assert_eq!(recorded_url(&url.parse().unwrap()), recorded);
        }
    }

    #[test]
    fn file_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "run.log", &b"a log"[..]).unwrap();
        // The name is taken by a directory, so the last step fails.
        fs::create_dir(dir.path().join(APPLIED)).unwrap();
        write(dir.path(), APPLIED, &b"{}"[..]).unwrap_err();
        let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left = left.collect::<Vec<_>>();
        left.sort();
        assert_eq!(left, [SUMS, APPLIED, "run.log"]);
        assert_eq!(sums(dir.path()).unwrap().unwrap()["run.log"], Sha256::of(b"a log"));
    }

    #[test]
    fn of_several_files_the_first_ones_are_whole_if_one_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(APPLIED)).unwrap();
        let files = [(DATASTORE, &b"http://host\n"[..]), (APPLIED, b"{}"), (REPORT, b"{}")];
        write_all(dir.path(), files).unwrap_err();
        let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut left = left.collect::<Vec<_>>();
        left.sort();
        assert_eq!(left, [SUMS, APPLIED, DATASTORE]);
        assert_eq!(sums(dir.path()).unwrap().unwrap()[DATASTORE], Sha256::of(b"http://host\n"));
    }

    #[test]
    fn directory_is_locked_by_one_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("dir");
        assert!(matches!(lock(&dir).unwrap(), Locking::Gone));
        fs::create_dir(&dir).unwrap();
        let held = lock(&dir).unwrap();
        assert!(matches!(&held, Locking::Locked(lock) if lock.is_exclusive()));
        assert!(matches!(lock(&dir).unwrap(), Locking::Busy));
        drop(held);
        assert!(matches!(lock(&dir).unwrap(), Locking::Locked(_)));
    }
}
