//! Where tools are installed: `<bin-dir>/Terraform/<version>/terraform`, as tenv has it.
//!
//! A version is installed if its binary exists. The binary is written and synced under a temporary name and then
//! renamed, under a kernel lock that ends with its holder. Leftovers of a killed installation are never taken for a
//! version, and the next installation removes them. Beside the binary are its digest (`sha256`) and the day of its last
//! use (`last-use.txt`). A run holds the same lock shared, so that no version is removed while it is used.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use datastore_api::Sha256;
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use tempfile::{NamedTempFile, TempPath};

use crate::source::regular::unless_missing;
use crate::version::{ToolName, Version};

/// The interval between attempts to take a lock.
const LOCK_POLL: Duration = Duration::from_millis(25);
/// Longer than the removal of a version takes.
const BRIEF_LOCK: Duration = Duration::from_secs(10);
/// Longer than any installation may take by its own limits.
const LOCK_TIMEOUT: Duration = Duration::from_hours(1);

/// The installed versions of one tool.
#[derive(Clone, Debug)]
pub(in crate::release) struct Store {
    tool: ToolName,
    dir: PathBuf,
}

/// An exclusive lock to install or remove one version, or a shared one that protects it; held until dropped. Some users can
/// lock only the binary, not the lock file: a removal locks both.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its drop")] [Option<File>; 2]);

/// What is recorded beside a binary: its SHA-256 digest, as `sha256sum` prints it.
const RECORD: &str = "sha256";
/// The day of the last use, as tenv writes it.
const LAST_USE: &str = "last-use.txt";
/// A record or a day is one short line.
const MAX_RECORD: u64 = 4096;

impl Store {
    pub(in crate::release) fn new(bin_dir: &Path, tool: ToolName) -> Self {
        Self { tool, dir: bin_dir.join(tool.directory()) }
    }

    /// The directory that holds a directory for each version.
    pub(in crate::release) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the binary of a version is, or would be.
    pub(in crate::release) fn binary(&self, version: &Version) -> PathBuf {
        self.dir.join(version.to_string()).join(self.tool.program())
    }

    /// Whether that version is installed.
    pub(in crate::release) fn has(&self, version: &Version) -> bool {
        is_program(&self.binary(version))
    }

    /// Every installed version, in no order.
    pub(in crate::release) fn versions(&self) -> Vec<Version> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let versions = names.filter_map(|name| {
            let version: Version = name.parse().ok()?;
            (version.to_string() == name).then_some(version)
        });
        versions.filter(|version| self.has(version)).collect()
    }

    /// Waits for the exclusive lock of this version, then removes the leftovers of killed installations.
    pub(in crate::release) async fn lock(&self, version: &Version) -> io::Result<Lock> {
        create_dir(&self.dir)?;
        let (file, path) = self.lock_file(version)?;
        let waiting = format!("another process is installing {} {version}: waiting", self.tool);
        wait_for(&file, &path, &waiting).await?;
        self.sweep(version)?;
        Ok(Lock([Some(file), None]))
    }

    /// Protects this version from removal while the lock is held, if it still exists then. Where this user may not write,
    /// and no lock file exists yet, the binary itself is locked. `None` if the lock cannot be had.
    pub(in crate::release) async fn protect(&self, version: &Version) -> Option<Lock> {
        let file = match self.lock_file(version) {
            Ok((file, _)) => file,
            Err(_) => fs::File::open(self.binary(version)).ok()?.into_file(),
        };
        let started = Instant::now();
        loop {
            match file.try_lock_shared() {
                Ok(()) => return Some(Lock([Some(file), None])),
                // Removed at this moment, or just installed.
                Err(TryLockError::WouldBlock) if started.elapsed() < BRIEF_LOCK => {
                    tokio::time::sleep(LOCK_POLL).await;
                }
                Err(_) => return None,
            }
        }
    }

    /// The exclusive lock, to remove this version; `None` while a run uses it or another process installs it.
    pub(in crate::release) fn try_lock(&self, version: &Version) -> io::Result<Option<Lock>> {
        let (file, _) = self.lock_file(version)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let binary = fs::File::open(self.binary(version)).ok().map(fs::File::into_file);
        // Some network file systems lock only what may be written.
        let is_used = |binary: &File| matches!(binary.try_lock(), Err(TryLockError::WouldBlock));
        if binary.as_ref().is_some_and(is_used) {
            return Ok(None);
        }
        Ok(Some(Lock([Some(file), binary])))
    }

    fn lock_file(&self, version: &Version) -> io::Result<(File, PathBuf)> {
        let path = self.dir.join(format!(".{version}.lock"));
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o644);
        let file = match options.open(&path) {
            // In a shared directory it may belong to another user: a lock needs read access only.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                fs::File::open(&path).map_err(|_| error)?
            }
            file => file?,
        };
        let file = file.into_file();
        // Otherwise a umask could lock other users out. It fails if the file belongs to another user.
        drop(file.set_permissions(std::fs::Permissions::from_mode(0o644)));
        Ok((file, path))
    }

    /// The digest that is recorded beside a binary; `None` if there is no record.
    pub(in crate::release) fn recorded(&self, version: &Version) -> io::Result<Option<Sha256>> {
        let path = self.beside(version, RECORD);
        let text = match line_of(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let digest = text.split_whitespace().next().unwrap_or_default().parse();
        digest.map(Some).map_err(|_| {
            let text = format!("{} contains no SHA-256 digest", path.display());
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    /// Records the digest beside the binary.
    pub(in crate::release) fn record(&self, version: &Version, digest: Sha256) -> io::Result<()> {
        let line = format!("{digest}  {}\n", self.tool.program());
        self.write_beside(version, RECORD, &line)
    }

    /// Records that the version is used today, if the directory is writable.
    pub(in crate::release) fn used(&self, version: &Version) {
        let today = day(SystemTime::now());
        if line_of(&self.beside(version, LAST_USE)).is_ok_and(|day| day.trim() == today) {
            return;
        }
        if let Err(error) = self.write_beside(version, LAST_USE, &today) {
            tracing::debug!("cannot record the use of {} {version}: {error}", self.tool);
        }
    }

    /// When the version was used last: the latest of the recorded day and the binary's access and modification times.
    pub(in crate::release) fn last_use(&self, version: &Version) -> io::Result<SystemTime> {
        let recorded = line_of(&self.beside(version, LAST_USE)).ok();
        let recorded = recorded.and_then(|day| day.trim().parse::<jiff::civil::Date>().ok());
        let recorded = recorded.and_then(|day| day.to_zoned(jiff::tz::TimeZone::UTC).ok());
        let recorded = recorded.map(|day| SystemTime::from(day.timestamp()));
        let metadata = fs::metadata(self.binary(version))?;
        let times = [recorded, metadata.accessed().ok(), metadata.modified().ok()];
        Ok(times.into_iter().flatten().max().unwrap_or(SystemTime::UNIX_EPOCH))
    }

    /// Removes a version. Call with its lock. Of a link to a directory elsewhere, only the link.
    pub(in crate::release) fn remove(&self, version: &Version) -> io::Result<()> {
        let dir = self.dir.join(version.to_string());
        if dir.is_symlink() {
            return unless_missing(fs::remove_file(dir)).map(drop);
        }
        // Without its binary it no longer counts as installed.
        unless_missing(fs::remove_file(self.binary(version)))?;
        let mut tries = 20;
        loop {
            match fs::remove_dir_all(&dir) {
                // A process without the lock has written its last use.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && tries > 0 => {
                    tries -= 1;
                }
                outcome => return unless_missing(outcome).map(drop),
            }
        }
    }

    /// The versions with leftovers of a killed installation.
    pub(in crate::release) fn left_over(&self) -> Vec<Version> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut versions = Vec::new();
        for name in names {
            let unfinished = name.strip_prefix('.').and_then(|name| name.split_once('='));
            let text = unfinished.map_or(name.as_str(), |(version, _)| version);
            let Ok(version) = text.parse::<Version>() else { continue };
            let left = unfinished.is_some() || (version.to_string() == name && !self.has(&version));
            if left && !versions.contains(&version) {
                versions.push(version);
            }
        }
        versions
    }

    /// Removes the leftovers of a killed installation of this version. Call with its lock.
    pub(in crate::release) fn remove_left_over(&self, version: &Version) -> io::Result<()> {
        self.sweep(version)?;
        if !self.has(version) && self.dir.join(version.to_string()).is_dir() {
            self.remove(version)?;
        }
        Ok(())
    }

    fn beside(&self, version: &Version, name: &str) -> PathBuf {
        self.dir.join(version.to_string()).join(name)
    }

    /// Replaces a small file beside a binary atomically; every user may read it.
    fn write_beside(&self, version: &Version, name: &str, text: &str) -> io::Result<()> {
        let path = self.beside(version, name);
        let mut file =
            tempfile::Builder::new().prefix(&Self::prefix(version)).tempfile_in(&self.dir)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// A version has no `=` in it, so no other version's leftovers begin like this.
    fn prefix(version: &Version) -> String {
        format!(".{version}=")
    }

    fn sweep(&self, version: &Version) -> io::Result<()> {
        let prefix = Self::prefix(version);
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes())
                && let Err(error) = fs::remove_file(entry.path())
            {
                // Harmless, and it may belong to another user.
                tracing::debug!("leftovers cannot be removed: {error}");
            }
        }
        Ok(())
    }

    /// An unnamed temporary file for the archive.
    pub(in crate::release) fn archive(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.dir).map_err(|error| {
            io::Error::new(error.kind(), format!("a file in {}: {error}", self.dir.display()))
        })
    }

    /// A file for the binary. Call with the lock.
    pub(in crate::release) fn unfinished(&self, version: &Version) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(&Self::prefix(version)).tempfile_in(&self.dir)
    }

    /// Makes a file for the binary executable, syncs it, and closes it, so that it can be started.
    pub(in crate::release) fn executable(file: NamedTempFile) -> io::Result<TempPath> {
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755))?;
        file.as_file().sync_all()?;
        Ok(file.into_temp_path())
    }

    /// Installs the executable file as the binary: records its digest, then renames it.
    pub(in crate::release) fn finish(
        &self,
        version: &Version,
        file: TempPath,
        digest: Sha256,
    ) -> io::Result<PathBuf> {
        let path = self.binary(version);
        let dir = self.dir.join(version.to_string());
        create_dir(&dir)?;
        self.record(version, digest)?;
        file.persist(&path).map_err(|error| error.error)?;
        for dir in [&dir, &self.dir] {
            fs::File::open(dir)?.sync_all()?;
        }
        Ok(path)
    }
}

/// The first bytes of a small text file.
fn line_of(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_RECORD).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `YYYY-MM-DD`
pub(in crate::release) fn day(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.to_zoned(jiff::tz::TimeZone::UTC).date().to_string()
}

/// Waits for the exclusive lock of a file; logs `waiting` if another process holds it.
pub(in crate::release) async fn wait_for(
    file: &File,
    path: &Path,
    waiting: &str,
) -> io::Result<()> {
    let mut is_logged = false;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if started.elapsed() > LOCK_TIMEOUT => {
                let text = format!("{} is locked by another process", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(TryLockError::WouldBlock) => {
                if !std::mem::replace(&mut is_logged, true) {
                    tracing::info!("{waiting}");
                }
                tokio::time::sleep(LOCK_POLL).await;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Makes a directory and its parents. Every user may enter new ones, whatever the umask, since every user may start the
/// binaries.
pub(in crate::release) fn create_dir(dir: &Path) -> io::Result<()> {
    const OPEN: u32 = 0o755;
    let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(dir)?;
    for dir in missing {
        let mode = fs::metadata(dir)?.permissions().mode();
        if mode & OPEN != OPEN {
            match fs::set_permissions(dir, std::fs::Permissions::from_mode(mode | OPEN)) {
                // Another user has created it in the meantime.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

/// Whether this is a file that is not empty and executable.
pub(in crate::release) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        metadata.is_file() && metadata.len() > 0 && metadata.permissions().mode() & 0o111 != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock file cannot be made where a directory is, as in a directory that this user may not write.
    #[tokio::test]
    async fn a_version_without_a_lock_file_is_protected_by_its_binary() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), ToolName::Terraform);
        let version: Version = "1.9.8".parse().unwrap();
        fs::create_dir_all(store.dir().join("1.9.8")).unwrap();
        fs::write(store.binary(&version), "x").unwrap();
        let lock_file = store.dir().join(".1.9.8.lock");
        fs::create_dir(&lock_file).unwrap();
        let protection = store.protect(&version).await.unwrap();
        fs::remove_dir(&lock_file).unwrap();
        assert!(store.try_lock(&version).unwrap().is_none());
        drop(protection);
        assert!(store.try_lock(&version).unwrap().is_some());
    }

    #[test]
    fn a_record_that_is_not_text_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), ToolName::Terraform);
        let version: Version = "1.9.8".parse().unwrap();
        fs::create_dir_all(store.dir().join("1.9.8")).unwrap();
        fs::write(store.beside(&version, RECORD), b"\xff\xfe").unwrap();
        let error = store.recorded(&version).unwrap_err().to_string();
        assert!(error.ends_with("/1.9.8/sha256 contains no SHA-256 digest"), "{error}");
    }
}
