//! Opens regular files only. In a directory that others can write, a name may be a pipe, a device or a link, and to open
//! or read one could block forever or never end.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use datastore_api::Sha256;
use fs_err as fs;
use nix::fcntl::OFlag;

/// No file that the runner reads as a whole is larger, except logs.
const MAX_LEN: u64 = 64 << 20;

/// Whether there is a regular file of this name. Anything else with the name is an error.
pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.is_file() => Ok(true),
        Ok(_) => Err(not_regular(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn not_regular(path: &Path) -> io::Error {
    io::Error::other(format!("{} is not a regular file", path.display()))
}

/// Opens a regular file to read it. A link is not followed.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::O_NOFOLLOW)
}

/// Opens a regular file beside one that the user names. A link is followed.
pub(crate) fn open_followed(path: &Path) -> io::Result<File> {
    open_with(path, OFlag::empty())
}

/// To open a pipe does not block.
fn open_with(path: &Path, flags: OFlag) -> io::Result<File> {
    use fs_err::os::unix::fs::OpenOptionsExt as _;
    let flags = flags | OFlag::O_NONBLOCK;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(not_regular(path));
    }
    Ok(file.into())
}

/// `None` if a file is not there.
pub(crate) fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error with the name of the file that cannot be read.
pub(crate) fn unreadable(name: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{} cannot be read: {error}", name.display()))
}

/// Whether this is the path of a file that the process has open.
pub(crate) fn is_open(path: &Path) -> bool {
    ["/dev/fd", "/dev/stdin", "/proc"].iter().any(|open| path.starts_with(open))
}

/// A file in a command that is shown. One that this process has open has another path for other processes.
pub(crate) fn in_command(path: &Path) -> String {
    if is_open(path) { "FILE".to_owned() } else { path.display().to_string() }
}

/// Checks a file that the user names. A link is followed, and a pipe that is open already, as a shell's `<(command)`
/// is, can be read. To open another pipe could block forever, and a device may never end.
pub(crate) fn check_named(path: &Path) -> io::Result<()> {
    if is_open(path) || path == Path::new("/dev/null") {
        return Ok(());
    }
    // To open a missing file gives the better error.
    let Ok(kind) = fs::metadata(path).map(|file| file.file_type()) else { return Ok(()) };
    if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket() {
        return Err(io::Error::other(format!("{} is a device or a pipe", path.display())));
    }
    Ok(())
}

/// The beginning of a regular file that the user names, at most so many bytes. A link is followed. `None`: it is no regular
/// file. A pipe can be read only once, by the program that needs it.
pub(crate) fn beginning(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    open_followed(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Reads a small regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LEN {
        return Err(io::Error::other(format!("{} is too large", path.display())));
    }
    Ok(bytes)
}

/// Reads a small regular file of text.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let not_text = |_| io::Error::other(format!("{} is not UTF-8", path.display()));
    String::from_utf8(read(path)?).map_err(not_text)
}

/// The digest of a regular file of any length.
pub(crate) fn sha256(path: &Path) -> io::Result<Sha256> {
    Sha256::of_reader(open(path)?)
}

/// The result for a file that may be missing. `None`: it is.
pub(crate) fn unless_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_limited_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::os::unix::fs::symlink("/dev/zero", path("device")).unwrap();
        fs::write(path("file"), "text").unwrap();
        fs::os::unix::fs::symlink("file", path("link")).unwrap();
        fs::File::create(path("large")).unwrap().set_len(MAX_LEN + 1).unwrap();
        for name in ["pipe", "device", "link", "large", "missing", "."] {
            read(&path(name)).unwrap_err();
        }
        fs::os::unix::fs::symlink("pipe", path("link-to-pipe")).unwrap();
        for name in ["pipe", "device", "link-to-pipe", "missing", "."] {
            open_followed(&path(name)).unwrap_err();
        }
        open_followed(&path("link")).unwrap();
        for name in ["pipe", "device", "link-to-pipe", "."] {
            assert_eq!(beginning(&path(name), 9).unwrap(), None, "{name}");
        }
        assert_eq!(beginning(&path("link"), 2).unwrap().unwrap(), b"te");
        beginning(&path("missing"), 9).unwrap_err();
        assert_eq!(read_text(&path("file")).unwrap(), "text");
        assert_eq!(unless_missing(read_text(&path("missing"))).unwrap(), None);
        unless_missing(read_text(&path("device"))).unwrap_err();
    }
}
