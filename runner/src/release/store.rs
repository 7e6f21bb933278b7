//! Where tools are installed: `<bin-dir>/Terraform/<version>/terraform`, as tenv has it.
//!
//! A version is installed when its binary is there. It gets there by a rename of a file that is whole
//! and on the disk, under a lock of the kernel that goes away with its holder; whatever a killed
//! installer leaves lies beside the versions, counts for nothing, and is swept by the next one.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use tempfile::NamedTempFile;

use crate::version::{ToolName, Version};

/// How often a lock that another installer holds is tried again.
const LOCK_POLL: Duration = Duration::from_millis(25);
/// An installer that holds it longer than its own limits allow has stopped, not died.
const LOCK_TIMEOUT: Duration = Duration::from_hours(1);

/// The installed versions of one tool.
#[derive(Clone, Debug)]
pub(super) struct Store {
    tool: ToolName,
    dir: PathBuf,
}

/// The right to install one version, until dropped.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held for its drop")] File);

impl Store {
    pub(super) fn new(bin_dir: &Path, tool: ToolName) -> Self {
        Self { tool, dir: bin_dir.join(tool.directory()) }
    }

    /// The directory that holds a directory for each version.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the binary of a version is, or would be.
    pub(super) fn binary(&self, version: &Version) -> PathBuf {
        self.dir.join(version.to_string()).join(self.tool.program())
    }

    /// Whether that version is installed.
    pub(super) fn has(&self, version: &Version) -> bool {
        is_program(&self.binary(version))
    }

    /// Every installed version, in no order.
    pub(super) fn versions(&self) -> Vec<Version> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let versions = names.filter_map(|name| {
            let version: Version = name.parse().ok()?;
            (version.to_string() == name).then_some(version)
        });
        versions.filter(|version| self.has(version)).collect()
    }

    /// Waits until nobody else installs this version, here or in another process, then removes what
    /// killed installers of it have left.
    pub(super) async fn lock(&self, version: &Version) -> io::Result<Lock> {
        create_dir(&self.dir)?;
        let path = self.dir.join(format!(".{version}.lock"));
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o644);
        let file = match options.open(&path) {
            // In a directory that several share it may be another's: to lock it, reading will do.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                fs::File::open(&path).map_err(|_| error)?
            }
            file => file?,
        };
        let file = file.into_file();
        // Else a umask would keep those out who come after a killed installer. It may be another's.
        drop(file.set_permissions(std::fs::Permissions::from_mode(0o644)));
        let waiting = format!("another process is installing {} {version}: waiting", self.tool);
        wait_for(&file, &path, &waiting).await?;
        self.sweep(version)?;
        Ok(Lock(file))
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
                // It counts for nothing, and may be another's.
                tracing::debug!("leftovers stay: {error}");
            }
        }
        Ok(())
    }

    /// A file for the archive, which has no name and goes away with its handle.
    pub(super) fn archive(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.dir).map_err(|error| {
            io::Error::new(error.kind(), format!("a file in {}: {error}", self.dir.display()))
        })
    }

    /// A file for the binary. Call with the lock.
    pub(super) fn unfinished(&self, version: &Version) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(&Self::prefix(version)).tempfile_in(&self.dir)
    }

    /// Makes the file the installed binary: executable, on the disk, then under its name.
    pub(super) fn finish(&self, version: &Version, file: NamedTempFile) -> io::Result<PathBuf> {
        let path = self.binary(version);
        let dir = self.dir.join(version.to_string());
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755))?;
        file.as_file().sync_all()?;
        create_dir(&dir)?;
        file.persist(&path).map_err(|error| error.error)?;
        for dir in [&dir, &self.dir] {
            fs::File::open(dir)?.sync_all()?;
        }
        Ok(path)
    }
}

/// Waits until nobody else has locked the file, and says so where somebody has.
pub(super) async fn wait_for(file: &File, path: &Path, waiting: &str) -> io::Result<()> {
    let mut told = false;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if started.elapsed() > LOCK_TIMEOUT => {
                let text = format!("{} is held by another process", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(TryLockError::WouldBlock) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::info!("{waiting}");
                }
                tokio::time::sleep(LOCK_POLL).await;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Makes a directory and its parents. What is new may be entered by everybody, as the binaries may be
/// started by everybody: a umask that keeps out others would make a shared directory useless to them.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    const OPEN: u32 = 0o755;
    let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(dir)?;
    for dir in missing {
        let mode = fs::metadata(dir)?.permissions().mode();
        if mode & OPEN != OPEN {
            match fs::set_permissions(dir, std::fs::Permissions::from_mode(mode | OPEN)) {
                // Another user has made it at the same time.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                outcome => outcome?,
            }
        }
    }
    Ok(())
}

/// A file that is not empty and that somebody may execute.
pub(super) fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        metadata.is_file() && metadata.len() > 0 && metadata.permissions().mode() & 0o111 != 0
    })
}
