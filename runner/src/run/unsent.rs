//! Files that a run could not store. They are kept in a private directory, from which `runner upload` sends them.
//!
//! The directory is `$XDG_STATE_HOME/plancha/unsent/<namespace>/<layer>/<run>/<attempt>`. If that cannot be written, it
//! is a directory inside the run's private directory, which then stays. It names the datastore that the files are for
//! (`datastore.url`). An apply writes its record (`applied.json`) there as soon as it has succeeded, and removes the
//! directory when every file is stored: a runner that is killed in between leaves the record. A failed run creates the
//! directory only if a file could not be stored; it then holds the name of the attempt (`attempt.json`). Before the tool of
//! an apply starts, the record is in the private directory (`unsent-if-complete`).
//!
//! A process that writes, sends or removes the files holds the directory's lock.

mod adopt;
mod copies;
mod directory;
mod find;
mod leftovers;
mod send;
mod spool;
mod state_contents;

use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};

use datastore_api::client::Token;
use datastore_api::{Attempt, Client, InvalidName, RunKey};
use fs_err as fs;
use serde::{Deserialize, Serialize};

pub(crate) use adopt::{adopt_abandoned, adopt_left, left_by, read_left};
pub(crate) use copies::remove_copy;
pub(crate) use find::{
    KeptRecord, Unreadable, UnreadableRecord, copy_of, layer_id, ledgers, missing_states, records,
    states, unreadable, unsent_apply, versions_of, waiting,
};
pub(crate) use leftovers::remove_leftovers;
pub(crate) use send::{Sending, UploadError, send_unless_used, upload};
pub(crate) use spool::check_spool;
pub(crate) use state_contents::StateContents;

use crate::process::quoted;
use crate::report::AppliedRecord;
use crate::run::artifacts::APPLIED;
use crate::run::unsent::copies::{copy_state, keep_output, write_record};
use crate::run::unsent::directory::{DATASTORE, FAILED, Lock, Locking, builder};
use crate::run::unsent::find::of_layer;
use crate::source::regular::{self, unless_missing};
use crate::source::scratch::{self, AHEAD, Scratch, UNSENT};
use crate::source::states::{self as state_files, PushRecord};

/// An attempt has at most this many directories, one for each datastore.
const MAX_DIRECTORIES: usize = 100;
/// How often a directory is created, if other processes remove it at once.
const TRIES: usize = 3;

/// The name of a file, and why it is not stored.
pub(crate) type Lost = (&'static str, String);

/// The contents of a file to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents<'a> {
    Bytes(&'a [u8]),
    CopyOf(&'a Path),
}

/// Where the files of one attempt are kept, and for which datastore.
#[derive(Debug)]
pub(crate) struct Keeper<'a> {
    pub(crate) state_home: Option<&'a Path>,
    pub(crate) scratch: &'a Scratch,
    pub(crate) run: &'a RunKey,
    pub(crate) attempt: Attempt,
}

/// The directory of one attempt.
#[derive(Debug)]
pub(crate) struct Unsent {
    dir: PathBuf,
    /// The directory to move to if this one cannot be written.
    in_scratch: PathBuf,
    lock: Lock,
    /// Files that could not be kept.
    unkept: Vec<&'static str>,
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

impl Keeper<'_> {
    /// Keeps the record of an apply, before anything is sent.
    pub(crate) fn keep_record(
        &self,
        record: &AppliedRecord,
        client: &Client,
    ) -> io::Result<Unsent> {
        keep_first(self.create()?, client, APPLIED, record.to_json().as_bytes())
    }

    /// Keeps the record of an apply whose tool has not started, for the case that the runner is killed. It replaces that of an
    /// earlier try.
    pub(crate) fn keep_ahead(&self, record: &AppliedRecord, client: &Client) -> io::Result<()> {
        let dir = self.scratch.join(AHEAD);
        unless_missing(fs::remove_dir_all(&dir))?;
        let (in_scratch, lock) = (dir.clone(), own_directory(&dir)?);
        let unsent = Unsent { dir, in_scratch, lock, unkept: Vec::new() };
        keep_first(unsent, client, APPLIED, record.to_json().as_bytes()).map(drop)
    }

    /// A directory for the files of a run that failed.
    pub(crate) fn keep_failure(&self, client: &Client) -> io::Result<Unsent> {
        let RunKey { namespace, layer, run } = self.run;
        let failed = FailedAttempt {
            version: 1,
            namespace: namespace.to_string(),
            layer: layer.to_string(),
            run: run.to_string(),
            attempt: self.attempt,
        };
        keep_first(self.create()?, client, FAILED, &serde_json::to_vec_pretty(&failed)?)
    }

    /// Keeps a copy of a state file, synced to disk, and its record; the tool's output as well if the state is not whole.
    /// It replaces no file. Returns the path.
    pub(crate) fn keep_state(&self, from: &Path, record: &PushRecord) -> io::Result<PathBuf> {
        let path = self.copy_state(from)?;
        write_record(record, &path, &path);
        if let Err(error) = keep_output(&scratch::output_of(&self.scratch.join("")), &path) {
            tracing::warn!("what the tool printed is not kept beside {}: {error}", path.display());
        }
        Ok(path)
    }

    fn copy_state(&self, from: &Path) -> io::Result<PathBuf> {
        if let Some(home) = self.state_home {
            let dir = self.dir_in(home);
            match copy_state(from, &dir) {
                Ok(path) => return Ok(path),
                Err(error) => tracing::warn!("{} cannot be written: {error}", dir.display()),
            }
        }
        copy_state(from, &self.scratch.join(UNSENT))
    }

    /// Keeps a copy of a state file that stays where it is, and its record. Returns the path of the copy.
    pub(crate) fn copy_of_original(&self, file: &Path, record: &PushRecord) -> io::Result<PathBuf> {
        let original = fs::canonicalize(file)?;
        self.keep_state(&original, &record.clone().of_original(&original))
    }

    /// Keeps the record of a state whose file is not there, beside an empty file. Returns the path of that file.
    pub(crate) fn keep_lost_state(&self, record: &PushRecord) -> io::Result<PathBuf> {
        // The disk of the private directory may be full.
        self.keep_state(Path::new("/dev/null"), record)
    }

    /// The directory of the attempt.
    fn dir_in(&self, state_home: &Path) -> PathBuf {
        let of_run = of_layer(state_home, self.run).join(self.run.run.as_ref());
        of_run.join(self.attempt.to_string())
    }

    /// Records a state file that stays where it is and cannot be copied: a link leads to it, with the record beside the
    /// link.
    pub(crate) fn link_state(&self, file: &Path, record: &PushRecord) -> io::Result<()> {
        let dir = self.dir_in(self.state_home.ok_or_else(no_home)?);
        builder().recursive(true).create(&dir)?;
        let file = fs::canonicalize(file)?;
        let mut index = 0;
        loop {
            let link = dir.join(state_files::errored_name(index));
            match std::os::unix::fs::symlink(&file, &link) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if fs::read_link(&link).is_ok_and(|target| target == file) {
                        write_record(record, &file, &link);
                        return Ok(());
                    }
                    index += 1;
                }
                linked => {
                    linked?;
                    write_record(record, &file, &link);
                    return directory::sync(&dir);
                }
            }
        }
    }

    fn create(&self) -> io::Result<Unsent> {
        let in_scratch = self.scratch.join(UNSENT);
        let named = self.state_home.ok_or_else(no_home).and_then(|home| self.new_directory(home));
        let (dir, lock) = match named {
            Ok(new) => new,
            Err(error) => {
                tracing::debug!(
                    "files that are not stored are kept in the scratch directory: {error}"
                );
                (in_scratch.clone(), own_directory(&in_scratch)?)
            }
        };
        Ok(Unsent { dir, in_scratch, lock, unkept: Vec::new() })
    }

    /// Creates and locks the directory of the attempt. An existing one may only hold state files; one with other files,
    /// or that another process uses, is that of an attempt of the same name in another datastore.
    fn new_directory(&self, state_home: &Path) -> io::Result<(PathBuf, Lock)> {
        let of_run = of_layer(state_home, self.run).join(self.run.run.as_ref());
        let attempt = self.attempt;
        for index in 1..=MAX_DIRECTORIES {
            let name = if index == 1 { attempt.to_string() } else { format!("{attempt}-{index}") };
            let dir = of_run.join(name);
            if let Some(lock) = take(&dir)? {
                return Ok((dir, lock));
            }
        }
        let full = format!("{} has no free directory for attempt {attempt}", of_run.display());
        Err(io::Error::other(full))
    }
}

/// Writes the file that identifies a directory.
fn keep_first(mut unsent: Unsent, client: &Client, name: &str, bytes: &[u8]) -> io::Result<Unsent> {
    let url = directory::recorded_url(&client.settings().url) + "\n";
    let files = [(DATASTORE, url.as_bytes()), (name, bytes)];
    match unsent.write(name, |dir| directory::write_all(dir, files)) {
        Ok(()) => Ok(unsent),
        Err(error) => {
            // What is there is not complete, and cannot be sent.
            drop(directory::remove(&unsent.dir));
            Err(error)
        }
    }
}

/// Creates and locks a directory, or locks an existing one that holds only states. `None`: it is used otherwise.
fn take(dir: &Path) -> io::Result<Option<Lock>> {
    for _ in 0..TRIES {
        let is_new = match builder().create(dir) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                builder().recursive(true).create(dir.parent().unwrap_or(dir))?;
                continue;
            }
            Err(error) => return Err(error),
        };
        match directory::lock(dir)? {
            // Without locks, an existing directory may be one that another runner has just created.
            Locking::Locked(lock) if is_new || lock.is_exclusive() => {
                return Ok(if holds_only_states(dir)? { Some(lock) } else { None });
            }
            Locking::Locked(_) | Locking::Busy => return Ok(None),
            // Another process has removed it since.
            Locking::Gone => {}
        }
    }
    Ok(None)
}

/// Creates and locks a directory that only this run uses.
fn own_directory(dir: &Path) -> io::Result<Lock> {
    builder().recursive(true).create(dir)?;
    match directory::lock(dir)? {
        Locking::Locked(lock) => Ok(lock),
        Locking::Busy | Locking::Gone => {
            let used = format!("another process uses {}", dir.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, used))
        }
    }
}

impl Unsent {
    /// Keeps a file that is not stored. If it cannot be kept either, that is logged, and [`Self::advice`] names it.
    pub(crate) fn keep_lost(&mut self, name: &'static str, contents: Contents<'_>) {
        let kept = match contents {
            Contents::Bytes(bytes) => self.keep(name, bytes),
            Contents::CopyOf(file) => fs::File::open(file).and_then(|from| {
                self.write(name, |dir| {
                    (&from).rewind()?;
                    directory::write(dir, name, &from)
                })
            }),
        };
        if let Err(error) = kept {
            tracing::warn!("{name} is neither stored nor kept: {error}");
            self.unkept.push(name);
        }
    }

    /// Whether one of the files that are not stored is kept.
    pub(crate) fn has_any(&self, lost: &[Lost]) -> bool {
        lost.iter().any(|(name, _)| !self.unkept.contains(name))
    }

    /// How the files that are not stored get into the datastore.
    pub(crate) fn advice(&self, lost: &[Lost], client: &Client, burrito: bool) -> String {
        let unkept = self.unkept.join(", ");
        if !self.has_any(lost) {
            return format!("{unkept} could not be kept either");
        }
        let command = self.command(client, burrito);
        let but = if unkept.is_empty() {
            String::new()
        } else {
            format!(" (without {unkept}, which could not be kept)")
        };
        format!("send what is missing with `{command}`{but}")
    }

    fn keep(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(name, |dir| directory::write(dir, name, bytes))
    }

    /// Writes a file into the directory. If that fails, for example because the disk is full, everything moves to the scratch
    /// directory.
    fn write(&mut self, name: &str, to: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        match to(&self.dir) {
            Err(error) if self.dir != self.in_scratch => {
                tracing::warn!(
                    "{name} cannot be kept in {}, so the scratch directory is kept: {error}",
                    self.dir.display()
                );
                self.move_to_scratch()?;
                to(&self.dir)
            }
            written => written,
        }
    }

    fn move_to_scratch(&mut self) -> io::Result<()> {
        let to = self.in_scratch.clone();
        let lock = own_directory(&to)?;
        let copied = directory::names().try_for_each(|name| {
            match unless_missing(fs::File::open(self.dir.join(name)))? {
                Some(from) => directory::write(&to, name, from),
                None => Ok(()),
            }
        });
        if let Err(error) = copied {
            drop(directory::remove(&to));
            return Err(error);
        }
        // The directory stays: only one whose files are stored may disappear while `runner upload` waits for it.
        if let Err(error) = directory::empty(&self.dir) {
            tracing::warn!("{} keeps files that are not needed: {error}", self.dir.display());
        }
        (self.dir, self.lock) = (to, lock);
        Ok(())
    }

    /// Removes the directory, once all files are stored.
    pub(crate) fn remove(self) -> io::Result<()> {
        let removed = directory::remove(&self.dir).map(drop);
        drop(self.lock);
        removed
    }

    /// The command that sends the files, quoted for a shell.
    fn command(&self, client: &Client, burrito: bool) -> String {
        command_to(client, burrito, &self.dir)
    }
}

/// The command that sends the files of a directory to this datastore, quoted for a shell.
pub(crate) fn command_to(client: &Client, burrito: bool, dir: &Path) -> String {
    let settings = client.settings();
    let mut options = Vec::new();
    if let Token::File(file) = &settings.token {
        options.extend(["--token-file".to_owned(), absolute(file)]);
    }
    if let Some(file) = settings.ca_files.first() {
        options.extend(["--ca-file".to_owned(), absolute(file)]);
    }
    upload_command(burrito, settings.url.as_str(), &options, dir)
}

/// The command that sends the files of a directory to a datastore.
pub(crate) fn upload_command(burrito: bool, url: &str, options: &[String], dir: &Path) -> String {
    let program = if burrito { "burrito runner upload" } else { "runner upload" };
    let mut words = vec![program.to_owned(), "--datastore".to_owned(), quoted(url)];
    words.extend(options.iter().cloned());
    words.push(quoted(&dir.to_string_lossy()));
    words.join(" ")
}

fn holds_only_states(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if !state_files::is_kept(&name) && !state_files::is_record(&name) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn no_home() -> io::Error {
    io::Error::other("there is no home directory")
}

/// A path that a shell finds from any directory.
fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    quoted(&regular::in_command(&path))
}

#[cfg(test)]
mod tests {
    use datastore_api::client::Settings;
    use tempfile::TempDir;

    use super::*;

    fn run() -> RunKey {
        let name = |name: &str| name.parse().unwrap();
        RunKey { namespace: name("default"), layer: name("x"), run: name("a") }
    }

    fn keeper<'a>(home: &'a TempDir, scratch: &'a Scratch, run: &'a RunKey) -> Keeper<'a> {
        Keeper { state_home: Some(home.path()), scratch, run, attempt: Attempt(0) }
    }

    fn client() -> Client {
        Client::new(Settings::new("http://host:9/".parse().unwrap())).unwrap()
    }

    #[test]
    fn runners_with_the_same_attempt_take_different_directories() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [first, second] = [(); 2].map(|()| Scratch::create_in(tmp.path()).unwrap());
        let (run, client) = (run(), client());
        let keeper = |scratch| keeper(&home, scratch, &run);
        let of_run = of_layer(home.path(), &run).join("a");
        // Another runner has created and locked the directory, and not written to it yet.
        fs::create_dir_all(of_run.join("0")).unwrap();
        let lock = directory::lock(&of_run.join("0")).unwrap();
        let one = keeper(&first).keep_failure(&client).unwrap();
        assert_eq!(one.dir, of_run.join("0-2"));
        drop(lock);
        // It holds nothing, so the next one takes it.
        let two = keeper(&second).keep_failure(&client).unwrap();
        assert_eq!(two.dir, of_run.join("0"));
        // The directory of the first one is locked until its files are stored.
        one.remove().unwrap();
        drop(two);
        let three = keeper(&second).keep_failure(&client).unwrap();
        assert_eq!(three.dir, of_run.join("0-2"));
    }

    #[test]
    fn files_do_not_move_to_a_directory_that_another_process_uses() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scratch = Scratch::create_in(tmp.path()).unwrap();
        let (run, client) = (run(), client());
        let mut unsent = keeper(&home, &scratch, &run).keep_failure(&client).unwrap();
        let dir = unsent.dir.clone();
        fs::remove_file(dir.join("SHA256SUMS")).unwrap();
        fs::create_dir(dir.join("SHA256SUMS")).unwrap();
        fs::create_dir(scratch.join(UNSENT)).unwrap();
        let _lock = directory::lock(&scratch.join(UNSENT)).unwrap();
        unsent.keep("run.json", b"{}").unwrap_err();
        assert_eq!(unsent.dir, dir);
        assert!(dir.join(FAILED).exists());
    }

    #[test]
    fn files_that_cannot_be_kept_are_named() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scratch = Scratch::create_in(tmp.path()).unwrap();
        let (run, client) = (run(), client());
        let mut unsent = keeper(&home, &scratch, &run).keep_failure(&client).unwrap();
        let lost = |name| (name, "503".to_owned());
        unsent.keep_lost("run.log", Contents::CopyOf(&home.path().join("missing")));
        let advice = unsent.advice(&[lost("run.log")], &client, false);
        assert_eq!(advice, "run.log could not be kept either");
        unsent.keep_lost("run.json", Contents::Bytes(b"{}"));
        let advice = unsent.advice(&[lost("run.log"), lost("run.json")], &client, false);
        let end = "/default/x/a/0` (without run.log, which could not be kept)";
        assert!(advice.starts_with("send what is missing with `runner upload "), "{advice}");
        assert!(advice.ends_with(end), "{advice}");
        assert_eq!(unsent.dir, of_layer(home.path(), &run).join("a/0"), "the disk is not at fault");
    }

    #[test]
    fn files_move_to_the_scratch_directory_if_one_cannot_be_written() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scratch = Scratch::create_in(tmp.path()).unwrap();
        let run = run();
        let push = PushRecord::new("terraform".to_owned(), None, Path::new(""));
        scratch.record_apply(&layer_id(&run), &push).unwrap();
        let keeper = Keeper {
            state_home: Some(home.path()),
            scratch: &scratch,
            run: &run,
            attempt: Attempt(0),
        };
        let mut unsent = keeper.keep_failure(&client()).unwrap();
        let dir = of_layer(home.path(), &run).join("a/0");
        assert_eq!(unsent.dir, dir);
        unsent.keep("run.log", b"a log").unwrap();
        // The digest cannot be written, which fails as a full disk does.
        fs::remove_file(dir.join("SHA256SUMS")).unwrap();
        fs::create_dir(dir.join("SHA256SUMS")).unwrap();

        unsent.keep("run.json", b"{}").unwrap();

        assert_eq!(unsent.dir, scratch.join(UNSENT));
        for (name, bytes) in
            [("run.log", &b"a log"[..]), ("run.json", b"{}"), (DATASTORE, b"http://host:9\n")]
        {
            assert_eq!(fs::read(unsent.dir.join(name)).unwrap(), bytes);
            let sum = directory::sums(&unsent.dir).unwrap().unwrap()[name];
            assert_eq!(sum, datastore_api::Sha256::of(bytes), "{name}");
        }
        assert!(unsent.dir.join(FAILED).exists() && !dir.join("run.log").exists());
        let (kept, private) = (unsent.dir.clone(), scratch.join(""));
        drop(scratch);
        assert!(kept.join("run.log").exists());
        unsent.remove().unwrap();
        assert!(!private.exists());
    }

    /// `runner upload` takes a directory that disappears for one whose files are stored.
    #[test]
    fn directory_whose_files_have_moved_stays() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scratch = Scratch::create_in(tmp.path()).unwrap();
        let (run, client) = (run(), client());
        let mut unsent = keeper(&home, &scratch, &run).keep_failure(&client).unwrap();
        let dir = unsent.dir.clone();
        unsent.move_to_scratch().unwrap();
        assert_eq!(unsent.dir, scratch.join(UNSENT));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }

    #[test]
    fn path_in_a_command_is_absolute() {
        let expected = std::env::current_dir().unwrap().join("tok");
        assert_eq!(absolute(Path::new("tok")), quoted(&expected.to_string_lossy()));
    }
}
