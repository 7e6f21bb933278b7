//! Files that a run could not store. They are kept in a private directory, from which `runner upload` sends them.
//!
//! The directory is `$XDG_STATE_HOME/plancha/unsent/<namespace>/<layer>/<run>/<attempt>`. If that cannot be created, it
//! is a directory inside the run's private directory, which is then not removed. An apply writes its record
//! (`applied.json`) there as soon as it has succeeded, and removes the directory when every file is stored: a runner
//! that is killed in between leaves the record. A failed run creates the directory only if a file could not be stored;
//! it then holds the name of the attempt (`attempt.json`).

mod send;

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use datastore_api::client::Token;
use datastore_api::digest::Hasher;
use datastore_api::{Attempt, Client, File, InvalidName, PlanFormat, RunKey, Sha256};
use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use serde::{Deserialize, Serialize};

pub(crate) use send::{UploadError, send, upload};

use crate::process::private_file;
use crate::report::AppliedRecord;
use crate::run::artifacts::{APPLIED, other};
use crate::source::scratch::Scratch;
use crate::source::states;

/// The digests of the files, as `sha256sum` prints them. If a name occurs twice, the last line is valid.
const SUMS: &str = "SHA256SUMS";
/// The directory in the scratch directory.
const IN_SCRATCH: &str = "unsent";

/// The directory of one attempt.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) dir: PathBuf,
    /// Whether a later run of the same layer finds it.
    pub(crate) is_found: bool,
}

/// `attempt.json`, version 1: the attempt that failed.
#[derive(Debug, Serialize, Deserialize)]
struct FailedAttempt {
    version: u32,
    namespace: String,
    layer: String,
    run: String,
    attempt: Attempt,
}

impl FailedAttempt {
    fn run_key(&self) -> Result<RunKey, InvalidName> {
        Ok(RunKey {
            namespace: self.namespace.parse()?,
            layer: self.layer.parse()?,
            run: self.run.parse()?,
        })
    }
}

impl Unsent {
    /// Keeps the record of an apply, before anything is sent.
    pub(crate) fn of_apply(
        state_home: Option<&Path>,
        scratch: &Scratch,
        run: &RunKey,
        record: &AppliedRecord,
    ) -> io::Result<Self> {
        let unsent = Self::create(state_home, scratch, run, record.attempt)?;
        unsent.keep(APPLIED, record.to_json().as_bytes())?;
        Ok(unsent)
    }

    /// A directory for the files of a run that failed.
    pub(crate) fn of_failure(
        state_home: Option<&Path>,
        scratch: &Scratch,
        run: &RunKey,
        attempt: Attempt,
    ) -> io::Result<Self> {
        let RunKey { namespace, layer, run: name } = run;
        let failed = FailedAttempt {
            version: 1,
            namespace: namespace.to_string(),
            layer: layer.to_string(),
            run: name.to_string(),
            attempt,
        };
        let unsent = Self::create(state_home, scratch, run, attempt)?;
        unsent.keep(FAILED, &serde_json::to_vec_pretty(&failed)?)?;
        Ok(unsent)
    }

    /// A directory for the state of an attempt. It may exist already and hold other files.
    pub(crate) fn of_state(
        state_home: Option<&Path>,
        scratch: &Scratch,
        run: &RunKey,
        attempt: Attempt,
    ) -> io::Result<Self> {
        if let Some(home) = state_home {
            let dir = of_layer(home, run).join(run.run.as_ref()).join(attempt.to_string());
            match builder().recursive(true).create(&dir) {
                Ok(()) => return Ok(Self { dir, is_found: true }),
                Err(error) => tracing::warn!("{} cannot be made: {error}", dir.display()),
            }
        }
        let dir = scratch.join(IN_SCRATCH);
        builder().recursive(true).create(&dir)?;
        Ok(Self { dir, is_found: false })
    }

    /// Keeps a copy of a state file, synced to disk. It replaces no file. Returns the path.
    pub(crate) fn keep_state(&self, from: &Path) -> io::Result<PathBuf> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut index = 0;
        let (path, mut to) = loop {
            let path = self.dir.join(states::errored_name(index));
            match options.open(&path) {
                Ok(to) => break (path, to),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => index += 1,
                Err(error) => return Err(error),
            }
        };
        let copied = fs::File::open(from)
            .and_then(|mut from| io::copy(&mut from, &mut to))
            .and_then(|_| to.sync_all());
        match copied {
            Ok(()) => Ok(path),
            Err(error) => {
                // A truncated state could be mistaken for a complete one.
                fs::remove_file(path)?;
                Err(error)
            }
        }
    }

    fn create(
        state_home: Option<&Path>,
        scratch: &Scratch,
        run: &RunKey,
        attempt: Attempt,
    ) -> io::Result<Self> {
        let named = state_home
            .ok_or_else(|| io::Error::other("there is no home directory"))
            .and_then(|home| create(home, run, attempt));
        let (dir, is_found) = match named {
            Ok(dir) => (dir, true),
            Err(error) => {
                tracing::debug!(
                    "files that are not stored are kept in the scratch directory: {error}"
                );
                let dir = scratch.join(IN_SCRATCH);
                builder().recursive(true).create(&dir)?;
                (dir, false)
            }
        };
        Ok(Self { dir, is_found })
    }

    /// Keeps a file.
    pub(crate) fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.copy(name, bytes)
    }

    /// Keeps a copy of a file.
    pub(crate) fn keep_file(&self, name: &str, from: &Path) -> io::Result<()> {
        self.copy(name, fs::File::open(from)?)
    }

    /// Writes a file, and then its digest.
    fn copy(&self, name: &str, mut from: impl Read) -> io::Result<()> {
        let mut to = private_file(&self.dir.join(name))?;
        let (mut hasher, mut piece) = (Hasher::default(), vec![0; 64 << 10]);
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    hasher.update(&piece[..count]);
                    to.write_all(&piece[..count])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut options = fs::OpenOptions::new();
        let mut sums = options.append(true).create(true).mode(0o600).open(self.dir.join(SUMS))?;
        writeln!(sums, "{}  {name}", hasher.finish())
    }

    /// Keeps the directory after the run.
    pub(crate) fn keep_directory(&self, scratch: &Scratch) {
        if !self.is_found {
            scratch.keep(IN_SCRATCH);
        }
    }

    /// Removes the directory, once all files are stored.
    pub(crate) fn remove(self) -> io::Result<()> {
        remove(&self.dir).map(drop)
    }

    /// The command that sends the files, quoted for a shell.
    pub(crate) fn command(&self, client: &Client, burrito: bool) -> String {
        let settings = client.settings();
        let mut words =
            vec![if burrito { "burrito runner upload" } else { "runner upload" }.to_owned()];
        words.extend(["--datastore".to_owned(), quoted(settings.url.as_str())]);
        if let Token::File(file) = &settings.token {
            words.extend(["--token-file".to_owned(), quoted(&file.to_string_lossy())]);
        }
        if let Some(file) = settings.ca_files.first() {
            words.extend(["--ca-file".to_owned(), quoted(&file.to_string_lossy())]);
        }
        words.push(quoted(&self.dir.to_string_lossy()));
        words.join(" ")
    }
}

/// The kept records of this layer, with their directories.
pub(crate) fn records(state_home: Option<&Path>, run: &RunKey) -> Vec<(PathBuf, AppliedRecord)> {
    let Some(home) = state_home else { return Vec::new() };
    let layer = of_layer(home, run);
    let attempts = below(&layer).into_iter().flat_map(|run| below(&run));
    let read = |dir: PathBuf| {
        let json = fs::read(dir.join(APPLIED)).ok()?;
        match AppliedRecord::parse(&json) {
            Ok(record) => Some((dir, record)),
            Err(reason) => {
                tracing::warn!("{} cannot be read: {reason}", dir.join(APPLIED).display());
                None
            }
        }
    };
    attempts.filter_map(read).collect()
}

/// The kept state files of this layer.
pub(crate) fn states(state_home: Option<&Path>, run: &RunKey) -> Vec<PathBuf> {
    let Some(home) = state_home else { return Vec::new() };
    let runs = below(&of_layer(home, run));
    let attempts = runs.iter().flat_map(|run| below(run));
    let mut found = attempts.flat_map(|attempt| states::kept(&attempt)).collect::<Vec<_>>();
    found.sort();
    found
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The layer in the scratch directory of its run ([`Scratch::record_layer`]).
pub(crate) fn layer_id(RunKey { namespace, layer, .. }: &RunKey) -> String {
    format!("{namespace}/{layer}\n")
}

const REPORT: &str = "run.json";
/// The attempt that failed.
const FAILED: &str = "attempt.json";

/// The files that a directory may hold besides the records, in the order in which they are sent.
fn files() -> [(&'static str, File); 3] {
    let short = File::Plan(PlanFormat::Short);
    [("run.log", File::Log), ("short.diff", short), (REPORT, other(REPORT))]
}

fn of_layer(state_home: &Path, run: &RunKey) -> PathBuf {
    // A name is one segment of a path, and neither `.` nor `..`.
    let RunKey { namespace, layer, .. } = run;
    state_home.join("plancha/unsent").join(namespace.as_ref()).join(layer.as_ref())
}

/// Creates the directory of an attempt. An existing one may only hold state files.
fn create(state_home: &Path, run: &RunKey, attempt: Attempt) -> io::Result<PathBuf> {
    let of_run = of_layer(state_home, run).join(run.run.as_ref());
    builder().recursive(true).create(&of_run)?;
    let dir = of_run.join(attempt.to_string());
    match builder().create(&dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && holds_only_states(&dir)? => {}
        made => made?,
    }
    Ok(dir)
}

fn holds_only_states(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        if !states::is_kept(&entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn builder() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Removes the runner's files in a directory, then the directory and its empty parents. Returns the names of other
/// files, which are not removed.
fn remove(dir: &Path) -> io::Result<Vec<String>> {
    for name in files().map(|(name, _)| name).into_iter().chain([APPLIED, FAILED, SUMS]) {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut foreign = Vec::new();
    for entry in fs::read_dir(dir)? {
        foreign.push(entry?.file_name().to_string_lossy().into_owned());
    }
    if !foreign.is_empty() {
        foreign.sort();
        return Ok(foreign);
    }
    fs::remove_dir(dir)?;
    let named = dir.ancestors().nth(4).is_some_and(|root| root.ends_with("plancha/unsent"));
    let above = if named { 3 } else { usize::from(dir.ends_with(IN_SCRATCH)) };
    for parent in dir.ancestors().skip(1).take(above) {
        // A parent that is not empty is used by other runs.
        if fs::remove_dir(parent).is_err() {
            break;
        }
    }
    Ok(foreign)
}

/// The recorded digests of the files, by name.
fn sums(dir: &Path) -> BTreeMap<String, Sha256> {
    let text = fs::read_to_string(dir.join(SUMS)).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| {
        let (sha256, name) = line.split_once("  ")?;
        Some((name.to_owned(), sha256.parse().ok()?))
    });
    pairs.collect()
}

/// A word, quoted for a shell if necessary.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_read_it_otherwise() {
        for (word, expected) in [
            ("/a/b-c", "/a/b-c"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$x", "'$x'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
