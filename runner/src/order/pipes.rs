//! Files of arguments that are pipes, such as a shell's `<(command)`. Each is read once, before anything else, into a
//! file without a name that can be read again: a plan on the disk, and all else in memory, where keys and tokens stay. A
//! signal can end that, and so does a pipe that sends no bytes.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use secrecy::zeroize::Zeroizing;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use crate::cli::NamedFile;
use crate::order::job::JobError;
use crate::source::regular;

/// A pipe is given up if no byte comes for this time.
const SILENCE: Duration = Duration::from_mins(1);

/// Where the bytes of a pipe are kept, and how many there may be.
#[derive(Clone, Copy)]
struct Kept {
    in_memory: bool,
    most: u64,
    /// The same for messages.
    most_text: &'static str,
}

impl Kept {
    /// For the file of this flag.
    fn of(flag: &str) -> Self {
        match flag {
            "--plan-file" => Self { in_memory: false, most: 1 << 30, most_text: "1 GiB" },
            "--signing-key" | "--verify-key" | "--token-file" => {
                Self { in_memory: true, most: 64 << 10, most_text: "64 KiB" }
            }
            _ => Self { in_memory: true, most: 16 << 20, most_text: "16 MiB" },
        }
    }

    /// A new file without a name.
    fn create(self) -> io::Result<File> {
        if self.in_memory {
            return Ok(memfd_create("plancha", MFdFlags::MFD_CLOEXEC)?.into());
        }
        tempfile::tempfile()
    }
}

/// Reads those of the files that are pipes, and replaces their paths.
pub(crate) async fn read(files: Vec<NamedFile<'_>>) -> Result<(), JobError> {
    for (flag, path) in files {
        let copied = if is_pipe(path) {
            copy(path, Kept::of(flag), SILENCE).await.map(Some)
        } else {
            Ok(None)
        };
        match copied {
            Ok(None) => {}
            Ok(Some(copy)) => *path = copy,
            Err(error) => {
                let path = path.display();
                return Err(JobError::Config(format!("{flag} {path}: {error}: name a file")));
            }
        }
    }
    Ok(())
}

/// Whether it is a pipe, or a terminal, that is open already. Another pipe is refused where it would be read.
fn is_pipe(path: &Path) -> bool {
    let Ok(file) = std::fs::metadata(path) else { return false };
    let is_null = || std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == file.rdev());
    regular::is_open(path)
        && (file.file_type().is_fifo() || file.file_type().is_char_device() && !is_null())
}

/// The path of a copy, which exists as long as this process.
async fn copy(path: &Path, kept: Kept, silence: Duration) -> io::Result<PathBuf> {
    let pipe = File::options().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let refused = |error: io::Error| match error.kind() {
        // Only what can be waited for is accepted. A device such as /dev/zero never ends.
        io::ErrorKind::PermissionDenied => io::Error::other("it is a device"),
        _ => error,
    };
    let mut pipe = Receiver::from_file_unchecked(pipe).map_err(refused)?;
    let (mut copy, mut left) = (kept.create()?, kept.most);
    let mut piece = Zeroizing::new(vec![0; 64 << 10]);
    loop {
        let Ok(count) = tokio::time::timeout(silence, pipe.read(&mut piece)).await else {
            return Err(io::Error::other(format!(
                "the pipe is open, but sent no bytes for {} s",
                silence.as_secs()
            )));
        };
        let count = count?;
        if count == 0 {
            return Ok(format!("/proc/self/fd/{}", copy.into_raw_fd()).into());
        }
        let too_many = || io::Error::other(format!("the pipe sent more than {}", kept.most_text));
        left = left.checked_sub(count as u64).ok_or_else(too_many)?;
        copy.write_all(&piece[..count])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(file: &impl std::os::fd::AsRawFd) -> PathBuf {
        format!("/dev/fd/{}", file.as_raw_fd()).into()
    }

    #[tokio::test]
    async fn pipe_is_read_to_its_end_and_can_be_read_again() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut path = path_of(&reader);
        writer.write_all(b"a plan").unwrap();
        drop(writer);
        read(vec![("--plan-file", &mut path)]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(std::fs::read(&path).unwrap(), b"a plan");
        }
    }

    #[tokio::test]
    async fn pipe_that_stays_open_and_silent_is_given_up() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"a pl").unwrap();
        let error = copy(&path_of(&reader), Kept::of("--plan-file"), Duration::from_millis(50))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("sent no bytes"), "{error}");
    }

    #[tokio::test]
    async fn secrets_stay_in_memory_and_are_short() {
        for flag in ["--signing-key", "--verify-key", "--token-file"] {
            let read = async |len: usize| {
                let (reader, mut writer) = io::pipe().unwrap();
                let mut path = path_of(&reader);
                let write = std::thread::spawn(move || writer.write_all(&vec![b'x'; len]));
                let copied = read(vec![(flag, &mut path)]).await;
                drop(reader);
                let _written = write.join().unwrap();
                copied.map(|()| path)
            };
            let path = read(64 << 10).await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap().len(), 64 << 10);
            let file = std::fs::read_link(&path).unwrap().display().to_string();
            assert!(file.starts_with("/memfd:plancha"), "{file}");
            let error = read((64 << 10) + 1).await.unwrap_err().to_string();
            assert!(error.contains("the pipe sent more than 64 KiB"), "{error}");
        }
    }

    #[tokio::test]
    async fn device_is_refused_and_other_files_stay() {
        let zero = File::open("/dev/zero").unwrap();
        let mut path = path_of(&zero);
        let error = read(vec![("--layer", &mut path)]).await.unwrap_err().to_string();
        assert!(error.starts_with("--layer /dev/fd/") && error.contains("a device"), "{error}");
        for name in ["/dev/null", "/nonexistent", "Cargo.toml"] {
            let mut path = PathBuf::from(name);
            read(vec![("--layer", &mut path)]).await.unwrap();
            assert_eq!(path, Path::new(name));
        }
    }
}
