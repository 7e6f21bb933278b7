//! Single files of a `file://` storage: opened, removed and named by version.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path as FsPath;
use std::time::UNIX_EPOCH;

use nix::errno::Errno;
use nix::fcntl::OFlag;

/// Objects up to this size (64 KiB) are read by the job that opens them.
pub(in crate::store) const SMALL: usize = 64 << 10;

/// Retries when another job has removed a directory or replaced an object.
pub(in crate::store) const MAX_TRIES: usize = 100;

/// A path that is not a regular file.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("its path is {0}, not a file")]
pub(in crate::store) struct Irregular(&'static str);

/// Opens a regular file only: opening a FIFO or a device could block. A directory counts as missing.
pub(in crate::store) fn open_file(
    file_path: &FsPath,
    options: &mut OpenOptions,
) -> io::Result<(File, Metadata)> {
    let file = match options.custom_flags(OFlag::O_NONBLOCK.bits()).open(file_path) {
        // A FIFO without a reader.
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => {
            return Err(irregular(fs::metadata(file_path)?.file_type()));
        }
        file => file?,
    };
    regular(file)
}

/// An open file with its metadata. Fails if it is no regular file.
pub(in crate::store) fn regular(file: File) -> io::Result<(File, Metadata)> {
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta)) } else { Err(irregular(meta.file_type())) }
}

/// Whether a regular file has this path. Fails if something else has it, also a directory.
pub(in crate::store) fn is_regular(file_path: &FsPath) -> io::Result<bool> {
    match fs::metadata(file_path) {
        Ok(meta) if meta.is_dir() => Err(io::Error::other(Irregular("a directory"))),
        Ok(meta) if !meta.is_file() => Err(irregular(meta.file_type())),
        Err(error) if is_absent(&error) => Ok(false),
        meta => meta.map(|_| true),
    }
}

fn irregular(kind: FileType) -> io::Error {
    if kind.is_dir() {
        return ErrorKind::NotFound.into();
    }
    let kind = if kind.is_fifo() { "a FIFO" } else { "a socket or a device" };
    io::Error::other(Irregular(kind))
}

pub(in crate::store) fn remove(file_path: &FsPath) -> io::Result<()> {
    match fs::remove_file(file_path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The `ETag` of a file, as `object_store` builds it.
pub(in crate::store) fn etag(meta: &fs::Metadata) -> String {
    let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let microseconds = modified.unwrap_or_default().as_micros();
    format!("\"{:x}-{microseconds:x}-{:x}\"", meta.ino(), meta.len())
}

/// Whether no file exists, also because an ancestor is a file.
pub(in crate::store) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
