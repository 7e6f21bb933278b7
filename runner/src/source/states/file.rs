//! State files that the user names (`--state-in`, `--state-out`). They are read and replaced as a whole: the tool gets a
//! private copy, because it truncates its file and writes it in place.

use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use fs_err as fs;

use crate::basis::plan_file::StateVersion;
use crate::process::private_file;
use crate::source::path::resolve;
use crate::source::regular::{self, unless_missing};
use crate::source::states::{self, ERRORED};

/// The directory of the copy that was read, in the private directory of a run.
const READ: &str = "state-in";
/// The directory of the copy that an apply changes. A killed run leaves it there, under the name of a state that no backend
/// accepted.
const WRITTEN: &str = "state-out";
/// The name of the copy that was read.
const COPY: &str = "terraform.tfstate";
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateFiles {
    /// `--state-in`, as an absolute path.
    pub(crate) input: PathBuf,
    /// `--state-out`, as an absolute path. An apply has one.
    pub(crate) output: Option<PathBuf>,
}

/// The state that was read.
#[derive(Clone, Debug)]
pub(crate) struct StateIn {
    /// The copy that the tool reads. There is none if there is no state yet.
    pub(crate) copy: PathBuf,
    /// `None`: there is no state yet.
    pub(crate) version: Option<StateVersion>,
    /// What is in the file that is written.
    pub(crate) output_version: Option<StateVersion>,
    /// Whether the file that is written is compressed.
    pub(crate) gzip_output: bool,
}

/// A state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateFileError {
    #[error("--state-in {} cannot be read: {reason}", .file.display())]
    Unreadable { file: PathBuf, reason: String },
    #[error("--state-in {} is not a state: {reason}", .file.display())]
    NotAState { file: PathBuf, reason: String },
    #[error("--state-out {} exists and is not a state: {reason}", .file.display())]
    OutputIsNoState { file: PathBuf, reason: String },
    #[error(
        "--state-in {} {}, but --state-out {} has a state (serial {serial})", .input.display(),
        .older.map_or("has no state".to_owned(), |serial| format!("has an older one (serial {serial})")), .output.display()
    )]
    Newer { input: PathBuf, older: Option<u64>, output: PathBuf, serial: u64 },
    #[error(
        "--state-out {} has another state (lineage {theirs}) than --state-in {} (lineage {ours})",
        .output.display(), .input.display()
    )]
    OtherState { input: PathBuf, output: PathBuf, ours: String, theirs: String },
    #[error("the module has the backend {0}, and --state-in is for a state in a local file")]
    Backend(String),
    #[error(
        "the module has a state of its own, {}, and --state-in names another one: {}", .own.display(), .named.display()
    )]
    Two { own: PathBuf, named: PathBuf },
    #[error(
        "the state is nearly too large for its Secret: compressed it has {size} bytes, more than 90 % of the {limit} bytes \
         that the Secret {secret} can hold"
    )]
    Large { secret: String, size: u64, limit: u64 },
}

impl StateFileError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => {
                "nothing was done; a file that does not exist yet is a first run, but its directory must exist"
            }
            Self::NotAState { .. } => {
                "nothing was done; name a whole state, plain or compressed with gzip, or a file that does not exist yet"
            }
            Self::OutputIsNoState { .. } | Self::OtherState { .. } => {
                "nothing was done; name another file with --state-out"
            }
            Self::Newer { .. } => {
                "nothing was done: it would be planned and created again; give what the last apply has written as \
                 --state-in, or remove it if the objects in it are gone"
            }
            Self::Backend(_) => {
                "nothing was planned or applied; leave out --state-in and --state-out, or remove the backend from the \
                 configuration"
            }
            Self::Two { .. } => {
                "nothing was planned or applied; name the file that has the state of this module with --state-in, and \
                 remove the other one"
            }
            Self::Large { .. } => {
                "nothing was applied; keep the state in another backend, such as the datastore (--state datastore), or \
                 apply all the same with --allow-large-state: some versions of the tool then fail to save the state, others \
                 divide it among several Secrets, which are not replaced together"
            }
        }
    }
}

impl StateFiles {
    /// Reads the state into the private directory. Nothing else is changed.
    pub(crate) fn read(&self, scratch: &Path) -> Result<StateIn, StateFileError> {
        let dir = scratch.join(READ);
        let unreadable = |error: io::Error| StateFileError::Unreadable {
            file: self.input.clone(),
            reason: error.to_string(),
        };
        private_dir(&dir).map_err(unreadable)?;
        let copy = dir.join(COPY);
        // That of an earlier reading.
        unless_missing(fs::remove_file(&copy)).map_err(unreadable)?;
        let is_compressed = copy_plain(&self.input, &copy).map_err(unreadable)?;
        let version = match is_compressed {
            Some(_) => {
                let version = fs::File::open(&copy).and_then(StateVersion::read);
                let not_a_state = |error: io::Error| StateFileError::NotAState {
                    file: self.input.clone(),
                    reason: error.to_string(),
                };
                Some(version.map_err(not_a_state)?)
            }
            None => None,
        };
        let output_version = self.check_output(version.as_ref())?;
        let gzip_output = self.is_output_compressed(is_compressed == Some(true));
        Ok(StateIn { copy, version, output_version, gzip_output })
    }

    /// Refuses to read a state that is older than the one that the last apply has written, or to replace another one. Returns
    /// what the output has.
    fn check_output(
        &self,
        ours: Option<&StateVersion>,
    ) -> Result<Option<StateVersion>, StateFileError> {
        let Some(output) = self.output.as_ref().filter(|output| **output != self.input) else {
            return Ok(ours.cloned());
        };
        let theirs = version_of(output).map_err(|error| StateFileError::OutputIsNoState {
            file: output.clone(),
            reason: error.to_string(),
        })?;
        let Some(theirs) = theirs else { return Ok(None) };
        match ours {
            Some(ours) if ours.lineage != theirs.lineage => Err(StateFileError::OtherState {
                input: self.input.clone(),
                output: output.clone(),
                ours: ours.lineage.clone(),
                theirs: theirs.lineage,
            }),
            Some(ours) if ours.serial >= theirs.serial => Ok(Some(theirs)),
            ours => Err(StateFileError::Newer {
                input: self.input.clone(),
                older: ours.map(|ours| ours.serial),
                output: output.clone(),
                serial: theirs.serial,
            }),
        }
    }

    /// A name that ends in `.gz` decides; otherwise the format of an input whose name does not say it is kept.
    fn is_output_compressed(&self, is_input_compressed: bool) -> bool {
        let is_named = |path: &Path| path.extension().is_some_and(|extension| extension == "gz");
        self.output.as_deref().is_some_and(is_named)
            || is_input_compressed && !is_named(&self.input)
    }
}

/// Copies a state as plain JSON. Returns whether it was compressed. `None`: there is no file, or an empty one.
fn copy_plain(from: &Path, to: &Path) -> io::Result<Option<bool>> {
    let Some(mut from) = open(from)? else { return Ok(None) };
    let is_compressed = from.fill_buf()?.starts_with(&GZIP);
    let mut plain: Box<dyn Read> =
        if is_compressed { Box::new(MultiGzDecoder::new(from)) } else { Box::new(from) };
    io::copy(&mut plain, &mut private_file(to)?)?;
    Ok(Some(is_compressed))
}

/// The version of the state in a file, plain or compressed. `None`: there is no file, or an empty one.
pub(crate) fn version_of(file: &Path) -> io::Result<Option<StateVersion>> {
    let Some(mut file) = open(file)? else { return Ok(None) };
    if file.fill_buf()?.starts_with(&GZIP) {
        StateVersion::read(MultiGzDecoder::new(file)).map(Some)
    } else {
        StateVersion::read(file).map(Some)
    }
}

/// Opens a file, following links, as those in the mount of a Secret. A link that leads nowhere is an error, and so is a
/// missing directory: a mistyped path must not look like a first run.
fn open(file: &Path) -> io::Result<Option<BufReader<std::fs::File>>> {
    let Some(opened) = unless_missing(regular::open_followed(file))? else {
        if file.is_symlink() {
            return Err(io::Error::other("it is a link that leads nowhere"));
        }
        let parent = file.parent().unwrap_or(file);
        if !parent.is_dir() {
            let reason = format!("its directory {} does not exist", parent.display());
            return Err(io::Error::other(reason));
        }
        return Ok(None);
    };
    let mut opened = BufReader::with_capacity(64 << 10, opened);
    let is_empty = opened.fill_buf()?.is_empty();
    Ok((!is_empty).then_some(opened))
}

/// Makes the copy that an apply changes.
pub(crate) fn prepare_output(state: &StateIn, scratch: &Path) -> io::Result<PathBuf> {
    let dir = scratch.join(WRITTEN);
    private_dir(&dir)?;
    let to = dir.join(ERRORED);
    copy_or_remove(&state.copy, &to)?;
    Ok(to)
}

/// Makes `to` a copy of `from`; without `from` there is no `to`.
pub(crate) fn copy_or_remove(from: &Path, to: &Path) -> io::Result<()> {
    match unless_missing(regular::open(from))? {
        Some(mut from) => {
            let mut file = private_file(to)?;
            io::copy(&mut from, &mut file)?;
            file.sync_all()
        }
        None => unless_missing(fs::remove_file(to)).map(drop),
    }
}

/// Replaces a file by a state. A reader sees the old file or the new one, and after a crash one of them is there. A link
/// stays, and the file to which it leads is replaced. The new file has the mode 0600.
pub(crate) fn replace(from: &Path, to: &Path, gzip: bool) -> io::Result<()> {
    let to = resolve(to)?;
    let dir = to.parent().unwrap_or(&to);
    let new = tempfile::Builder::new().prefix(".plancha-").tempfile_in(dir)?;
    let mut from = regular::open(from)?;
    if gzip {
        let mut encoder = GzEncoder::new(BufWriter::new(new.as_file()), Compression::default());
        io::copy(&mut from, &mut encoder)?;
        encoder.finish()?.flush()?;
    } else {
        io::copy(&mut from, &mut new.as_file())?;
    }
    new.as_file().sync_all()?;
    new.persist(&to).map_err(|error| error.error)?;
    sync_directory(dir)
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    match fs::File::open(dir)?.sync_all() {
        // Some file systems cannot sync a directory.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// The size of the file when it is compressed.
pub(crate) fn compressed_size(file: &Path) -> io::Result<u64> {
    let mut encoder = GzEncoder::new(Counter(0), Compression::default());
    io::copy(&mut regular::open(file)?, &mut encoder)?;
    Ok(encoder.finish()?.0)
}

/// Counts bytes.
struct Counter(u64);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether something is mounted at this path: such a file can be written, and cannot be replaced.
pub(crate) fn is_mount_point(path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.any(|point| Path::new(&unescaped(point)) == path)
}

/// The path in a field of mountinfo, where a few characters are octal numbers.
fn unescaped(field: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The states that a killed run has left in its private directory. A copy that its apply has not changed is none.
pub(crate) fn left(scratch: &Path) -> io::Result<Vec<PathBuf>> {
    let copy = scratch.join(WRITTEN).join(ERRORED);
    let mut found = states::errored(scratch)?;
    if found.contains(&copy) && is_unchanged(&scratch.join(READ).join(COPY), &copy)? {
        found.retain(|file| *file != copy);
    }
    Ok(found)
}

/// The tool makes an empty file when it locks a state that does not exist yet.
fn is_unchanged(before: &Path, now: &Path) -> io::Result<bool> {
    let Some(before) = unless_missing(regular::sha256(before))? else {
        return Ok(fs::metadata(now)?.len() == 0);
    };
    Ok(regular::sha256(now)? == before)
}

fn private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const STATE: &str = r#"{"version": 4, "serial": 3, "lineage": "l"}"#;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn files(dir: &Path, input: &str, output: &str) -> StateFiles {
        StateFiles { input: dir.join(input), output: Some(dir.join(output)) }
    }

    #[test]
    fn plain_and_compressed_states_are_read_and_no_file_is_no_state() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("plain"), STATE).unwrap();
        fs::write(dir.path().join("tfstate"), gzip(STATE)).unwrap();
        fs::write(dir.path().join("named.gz"), gzip(STATE)).unwrap();
        fs::write(dir.path().join("empty"), "").unwrap();
        fs::os::unix::fs::symlink("plain", dir.path().join("link")).unwrap();
        for (input, output, serial, gzip_output) in [
            ("plain", "plain", Some(3), false),
            ("plain", "new.gz", Some(3), true),
            ("tfstate", "tfstate", Some(3), true),
            ("tfstate", "new", Some(3), true),
            ("named.gz", "new", Some(3), false),
            ("link", "new", Some(3), false),
            ("empty", "new", None, false),
            ("missing", "missing", None, false),
            ("missing", "missing.gz", None, true),
        ] {
            let scratch = tempfile::tempdir().unwrap();
            let read = files(dir.path(), input, output).read(scratch.path()).unwrap();
            assert_eq!(read.version.map(|version| version.serial), serial, "{input}");
            assert_eq!(read.gzip_output, gzip_output, "{input} {output}");
            let copy = fs::read_to_string(&read.copy).ok();
            assert_eq!(copy.as_deref(), serial.map(|_| STATE), "{input}");
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cut = gzip(STATE);
        for (name, bytes) in [
            ("torn", STATE.as_bytes()[..20].to_vec()),
            ("other", b"{}".to_vec()),
            ("cut", cut[..cut.len() - 6].to_vec()),
            ("twice", format!("{STATE}{STATE}").into_bytes()),
        ] {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        fs::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
        for name in ["torn", "other", "cut", "twice", "dangling", "no/such", "."] {
            let scratch = tempfile::tempdir().unwrap();
            let error = files(dir.path(), name, "out").read(scratch.path()).unwrap_err();
            assert!(error.to_string().contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn newer_or_other_state_at_the_output_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let state = |lineage: &str, serial: u64| {
            format!(r#"{{"version": 4, "serial": {serial}, "lineage": "{lineage}"}}"#)
        };
        fs::write(dir.path().join("in"), state("l", 3)).unwrap();
        for (input, output, refused) in [
            ("in", state("l", 3), false),
            ("in", state("l", 2), false),
            ("in", String::new(), false),
            ("in", state("l", 4), true),
            ("in", state("m", 1), true),
            ("in", "text".to_owned(), true),
            ("missing", state("l", 1), true),
        ] {
            fs::write(dir.path().join("out"), &output).unwrap();
            let scratch = tempfile::tempdir().unwrap();
            let read = files(dir.path(), input, "out").read(scratch.path());
            assert_eq!(read.is_err(), refused, "{input} {output}");
        }
    }

    #[test]
    fn file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("from"), STATE).unwrap();
        fs::write(path("to"), "old").unwrap();
        fs::os::unix::fs::symlink("to", path("link")).unwrap();
        replace(&path("from"), &path("link"), true).unwrap();
        assert!(path("link").is_symlink());
        assert_eq!(version_of(&path("to")).unwrap().unwrap().serial, 3);
        assert!(fs::read(path("to")).unwrap().starts_with(&GZIP));
        assert_eq!(fs::metadata(path("to")).unwrap().permissions().mode() & 0o777, 0o600);
        replace(&path("from"), &path("to"), false).unwrap();
        assert_eq!(fs::read_to_string(path("to")).unwrap(), STATE);
        replace(&path("from"), &path("no/to"), false).unwrap_err();
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 3, "no temporary file is left");
    }

    #[test]
    fn copy_that_a_killed_apply_has_not_changed_is_not_left() {
        let (dir, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("in"), STATE).unwrap();
        let read = files(dir.path(), "in", "in").read(scratch.path()).unwrap();
        let copy = prepare_output(&read, scratch.path()).unwrap();
        assert!(left(scratch.path()).unwrap().is_empty());
        fs::write(&copy, "").unwrap();
        assert_eq!(left(scratch.path()).unwrap(), [copy], "the tool has truncated it");

        let scratch = tempfile::tempdir().unwrap();
        let read = files(dir.path(), "missing", "missing").read(scratch.path()).unwrap();
        let copy = prepare_output(&read, scratch.path()).unwrap();
        assert!(!copy.exists());
        fs::write(&copy, "").unwrap();
        assert!(left(scratch.path()).unwrap().is_empty());
        fs::write(&copy, STATE).unwrap();
        assert_eq!(left(scratch.path()).unwrap(), [copy]);
    }

    #[test]
    fn mount_points_are_recognized() {
        assert!(is_mount_point(Path::new("/proc")));
        assert!(!is_mount_point(Path::new("/proc/self/mountinfo")));
        assert_eq!(unescaped("/a\\040b\\134"), "/a b\\");
    }
}
