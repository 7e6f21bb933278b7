//! The private directory of one run: plan files, the log, a checkout that is not kept.
//!
//! It has mode 0700 and is removed when the run ends. The first run at a time gets `plancha-000000`, so that in every container of
//! one image it has the same path: a plan may contain that path. Others get random names. Directories of killed runs are removed by a later run of the same
//! user: a kernel lock shows which runs are alive. The lock file is removed last, so that a later run completes a
//! removal that was interrupted. Files that could not be stored ([`UNSENT`]) stay.

mod ended;
mod held;
mod killed;
mod name;
mod removal;

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

pub(crate) use ended::{AHEAD, APPROVED, LOG, UNSENT, output_of};
use fs_err as fs;
pub(crate) use held::Held;
pub(crate) use killed::KilledApply;
pub(crate) use name::is_scratch;
pub(crate) use removal::PARTIAL;

use crate::process::Signals;
use crate::source::regular::{self, unless_missing};
use crate::source::scratch::ended::{adopt_record, apply_end, has_completed};
use crate::source::scratch::name::{is_first, new_directory};
use crate::source::scratch::removal::{LAYER, LOCK, clear, clear_if_current, is_at};
use crate::source::states::{self, KeptState, PushRecord, file};
use crate::tool::diagnostics::{ApplyEnd, Refusal};

/// Shows that the code of a killed apply was out of reach.
const OUT_OF_REACH: &str = "code-out-of-reach";
/// Shows that what the tool of a killed apply has said about its state was read.
const READ: &str = "output-was-read";
/// A younger directory may not be locked yet.
const MIN_AGE: Duration = Duration::from_mins(1);
/// A younger directory may not have its lock file yet.
const MIN_AGE_WITHOUT_LOCK: Duration = Duration::from_hours(1);
/// How often a directory is created, if other runs remove it at once.
const TRIES: usize = 3;

/// The private directory cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("the directory for temporary files, {} (TMPDIR), cannot be used: {}", .dir.display(), reason(.cause))]
pub(crate) struct ScratchError {
    dir: PathBuf,
    cause: io::Error,
}

impl ScratchError {
    /// What kind of error the system reports.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }
}

/// The system's reason, without the random file name.
pub(crate) fn reason(cause: &io::Error) -> String {
    let text = cause.to_string();
    text.split_once(" at path ").map_or(text.as_str(), |(reason, _)| reason).to_owned()
}

/// Why the directory of an ended run was not removed.
#[derive(Debug)]
pub(crate) struct Abandoned {
    pub(crate) left: Left,
    /// The layer that the run applied, with its namespace, if it is known.
    pub(crate) layer: Option<String>,
}

/// What an ended run has left, or may have left.
#[derive(Debug)]
pub(crate) enum Left {
    State(Box<KeptState>),
    OutOfReach(MissingCode),
}

/// The code of a killed apply, in which there may be a state. Its directory is missing or empty, or was so at the
/// start of a run since then: what is in it now may be new.
#[derive(Debug)]
pub(crate) struct MissingCode {
    /// The private directory of the killed run.
    pub(crate) scratch: PathBuf,
    /// The directory of the module.
    pub(crate) dir: PathBuf,
    /// The repository of the code, or its path.
    pub(crate) source: Option<String>,
}

/// A private directory that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    /// What ended runs of this user have left, long enough ago to be noticed.
    abandoned: Vec<Abandoned>,
    /// Set if the whole directory stays.
    whole: OnceLock<()>,
    /// Held while the run lives.
    _lock: File,
}

impl Scratch {
    /// Creates it in the system's directory for temporary files.
    pub(crate) fn create() -> Result<Self, ScratchError> {
        let dir = std::env::temp_dir();
        Self::create_in(&dir).map_err(|cause| ScratchError { dir, cause })
    }

    /// Creates it in another directory.
    pub(crate) fn create_in(parent: &Path) -> io::Result<Self> {
        // First, so that the name of a killed run's directory is free, and its space.
        let abandoned = sweep(parent).unwrap_or_else(|error| {
            tracing::debug!("what earlier runs left in {} stays: {error}", parent.display());
            Vec::new()
        });
        let (dir, lock) = create_locked(parent)?;
        Ok(Self { dir, abandoned, whole: OnceLock::new(), _lock: lock })
    }

    /// Why directories of ended runs, of any layer, were not removed.
    pub(crate) fn abandoned(&self) -> &[Abandoned] {
        &self.abandoned
    }

    /// Records which layer is applied here, and how its state gets into the backend. Later runs of the layer find what the
    /// run leaves: a state, or its record.
    pub(crate) fn record_apply(&self, layer: &str, push: &PushRecord) -> io::Result<()> {
        push.write_for_directory(&self.dir)?;
        crate::process::private_file(&self.join(LAYER))?.write_all(layer.as_bytes())
    }

    /// The states that ended runs of the same layer have left in their directories.
    pub(crate) fn left_states(&self, layer: &str) -> io::Result<Vec<KeptState>> {
        let mut found = Vec::new();
        for dir in self.of_layer(layer)?.into_iter().filter(|dir| !is_used(dir)) {
            found.extend(states_left(&dir)?);
        }
        found.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(found)
    }

    /// The copies of states that ended runs of any layer have kept in their directories.
    pub(crate) fn left_copies(&self) -> Vec<PathBuf> {
        let dirs = self.others().unwrap_or_default();
        dirs.iter().flat_map(|dir| states::kept(&dir.join(UNSENT))).collect()
    }

    /// The code of killed applies of the same layer that is out of reach.
    pub(crate) fn missing_code(&self, layer: &str) -> io::Result<Vec<MissingCode>> {
        let dirs = self.of_layer(layer)?.into_iter().filter(|dir| !is_used(dir));
        Ok(dirs.filter_map(|dir| missing_code(&dir)).collect())
    }

    /// The directory of a killed run of the same layer whose tool still works.
    pub(crate) fn orphaned(&self, layer: &str) -> io::Result<Option<PathBuf>> {
        Ok(self.of_layer(layer)?.into_iter().find(|dir| is_orphaned(dir)))
    }

    /// The directories of files that runs of the same layer and user could not store.
    pub(crate) fn left_unsent(&self, layer: &str) -> io::Result<Vec<PathBuf>> {
        let dirs = self.of_layer(layer)?;
        for dir in dirs.iter().filter(|dir| !is_used(dir)) {
            adopt_record(dir);
        }
        Ok(dirs.iter().map(|dir| dir.join(UNSENT)).filter(|dir| dir.is_dir()).collect())
    }

    /// The directories of other runs of the same layer and user.
    fn of_layer(&self, layer: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for dir in self.others()? {
            let file = dir.join(LAYER);
            let text = regular::exists(&file)
                .and_then(|exists| exists.then(|| regular::read_text(&file)).transpose());
            match text {
                Ok(text) if text.as_deref() == Some(layer) => found.push(dir),
                Ok(_) => {}
                // No run has written this: it is a link, no regular file, or no text.
                Err(error) if error.kind() == io::ErrorKind::Other => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// The directories of other runs of the same user.
    fn others(&self) -> io::Result<Vec<PathBuf>> {
        let parent = self.dir.parent().unwrap_or(&self.dir);
        let dirs = fs::read_dir(parent)?.map(|entry| Ok(entry?.path()));
        let dirs = dirs.collect::<io::Result<Vec<_>>>()?.into_iter();
        Ok(dirs.filter(|dir| *dir != self.dir && is_own(dir)).collect())
    }

    /// Leaves everything where it is when the run ends.
    pub(crate) fn keep_all(&self) {
        // A second call changes nothing.
        let _ = self.whole.set(());
    }

    /// Removes what is in it, except for a plan that is only here, and its record: its apply works in it.
    /// After a signal that takes a few seconds at most, and is an error.
    pub(crate) async fn empty(&self, signals: &Signals) -> io::Result<()> {
        let dir = self.dir.clone();
        let is_plan = |name: &OsStr| name.as_bytes().starts_with(APPROVED.as_bytes());
        let stays = move |name: &OsStr| name == LOCK || is_plan(name);
        let emptied = tokio::task::spawn_blocking(move || removal::empty(&dir, stays));
        let emptied = signals.shortly(emptied).await;
        emptied.map_err(|_| io::ErrorKind::Interrupted)?.map_err(io::Error::other)?
    }

    /// Removes it. After a signal that takes a few seconds at most, and a later run removes the rest.
    pub(crate) async fn remove(&self, signals: &Signals) {
        if self.whole.get().is_some() {
            return;
        }
        let dir = self.dir.clone();
        let removed = tokio::task::spawn_blocking(move || clear(&dir));
        match signals.shortly(removed).await {
            Err(_) => tracing::info!(
                "{} has too many files to be removed now: a later run removes the rest",
                self.dir.display()
            ),
            Ok(Ok(Err(error))) => warn_of_rest(&self.dir, &error),
            Ok(_) => {}
        }
        // What is left is not tried again when this value is dropped.
        self.keep_all();
    }

    /// A path in it.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A panic is like a kill: the tool may still write here. A later run removes it, or copies a state that is left.
        if self.whole.get().is_some() || std::thread::panicking() {
            return;
        }
        if let Err(error) = clear(&self.dir) {
            warn_of_rest(&self.dir, &error);
        }
    }
}

fn warn_of_rest(dir: &Path, error: &io::Error) {
    tracing::warn!("{} cannot be removed completely: {error}", dir.display());
}

/// Creates a directory with its lock file, and locks it.
fn create_locked(parent: &Path) -> io::Result<(PathBuf, File)> {
    let mut tries = 1;
    loop {
        let dir = new_directory(parent, tries == 1)?.keep();
        let file = dir.join(LOCK);
        match crate::process::private_file(&file).and_then(|lock| take(lock, &file)) {
            Ok(lock) => return Ok((dir, lock)),
            Err(error) => {
                // By now it may be the directory of another run, which has a file in it.
                let _removed = fs::remove_dir(&dir);
                if tries == TRIES {
                    return Err(error);
                }
                tries += 1;
            }
        }
    }
}

/// Locks a new directory by its lock file at `path`.
fn take(lock: File, path: &Path) -> io::Result<File> {
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::ResourceBusy.into()),
        // Without locks no directory is ever taken for an abandoned one.
        Err(TryLockError::Error(error)) => {
            tracing::debug!("{} cannot be locked: {error}", path.display());
        }
        Ok(()) => {}
    }
    // If the machine was suspended before the lock was taken, another run may have swept the directory, and a third one
    // may have created it again.
    if is_at(&lock, path) { Ok(lock) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

/// Whether this is the private directory of a run of this user. Any user may create one in /tmp.
fn is_own(dir: &Path) -> bool {
    let is_mine = |dir: std::fs::Metadata| dir.is_dir() && dir.uid() == me();
    is_scratch(dir) && fs::symlink_metadata(dir).is_ok_and(is_mine)
}

/// Removes the private directory of an ended run whose unsent files are all stored.
pub(crate) fn remove_emptied(dir: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(dir)?.flatten();
    if !is_scratch(dir) || entries.any(|entry| entry.file_name() != LAYER) {
        return Ok(());
    }
    unless_missing(fs::remove_file(dir.join(LAYER)))?;
    unless_missing(fs::remove_dir(dir)).map(drop)
}

/// Removes what killed runs of this user have left. A directory that cannot be removed does not keep the others. One with
/// states that no backend accepted stays, and one whose code is out of reach; these are returned.
fn sweep(parent: &Path) -> io::Result<Vec<Abandoned>> {
    let mut abandoned = Vec::new();
    for entry in fs::read_dir(parent)?.flatten() {
        let dir = entry.path();
        match unless_missing(sweep_one(&dir)) {
            Ok(found) => abandoned.extend(found.into_iter().flatten()),
            Err(error) => tracing::debug!("{} stays: {error}", dir.display()),
        }
    }
    Ok(abandoned)
}

/// The code of the killed apply in a private directory, if it is out of reach. That is recorded: this run, or a later
/// one, may fill the directory of the code, which then looks as if a state was removed there.
fn missing_code(dir: &Path) -> Option<MissingCode> {
    let record = PushRecord::of_directory(dir)?;
    let (code, mark) = (record.dir.clone()?, dir.join(OUT_OF_REACH));
    let is_there = fs::read_dir(&code).is_ok_and(|mut entries| entries.next().is_some());
    if is_there && !record.is_replaced() {
        if !mark.exists() {
            return None;
        }
        if record.left_in_code().is_ok_and(|states| !states.is_empty()) {
            // The directory is back.
            let _removed = fs::remove_file(mark);
            return None;
        }
    } else if has_completed(dir) {
        return None;
    } else if let Err(error) = crate::process::private_file(&mark) {
        tracing::debug!("it is not recorded that {} is out of reach: {error}", code.display());
    }
    Some(MissingCode { scratch: dir.to_owned(), dir: code, source: record.source })
}

/// Records that the tool of a killed apply has said that its state was refused, if that state is not found: an empty file
/// with a record, which is kept like a state. What the tool has said is read once, since a state may be pushed and
/// removed later.
fn record_lost_state(dir: &Path) -> io::Result<()> {
    let mark = dir.join(READ);
    let Some(record) = PushRecord::of_directory(dir).filter(|_| !mark.exists()) else {
        return Ok(());
    };
    let Some(ApplyEnd { refusal: Some(refusal), .. }) = apply_end(dir)? else { return Ok(()) };
    // With its code out of reach, the next apply is refused in any case.
    if missing_code(dir).is_some() {
        return Ok(());
    }
    if states_in(dir)?.is_empty() && record.left_in_code()?.is_empty() {
        let was_in = record.runs_in.clone().or_else(|| record.dir.clone());
        let record = match refusal {
            Refusal::Written => record.of_lost(was_in.as_deref().unwrap_or(dir)),
            Refusal::Printed => record,
        };
        let file = dir.join(states::ERRORED);
        drop(crate::process::private_file(&file)?);
        record.write(&file, &file)?;
    }
    crate::process::private_file(&mark).map(drop)
}

fn sweep_one(dir: &Path) -> io::Result<Vec<Abandoned>> {
    let metadata = fs::symlink_metadata(dir)?;
    let age = metadata.modified()?.elapsed().unwrap_or_default();
    if !is_own(dir) || is_used(dir) {
        return Ok(Vec::new());
    }
    adopt_record(dir);
    let missing = missing_code(dir);
    if age < MIN_AGE {
        return Ok(Vec::new());
    }
    let lock = unless_missing(regular::open(&dir.join(LOCK)))?;
    if lock.is_none() && age < MIN_AGE_WITHOUT_LOCK {
        return Ok(Vec::new());
    }
    if lock.is_none() && is_first(dir) {
        // Another run may remove it and create it again, and without a lock nothing shows that. It is never removed with
        // anything in it, and a run whose new directory is removed creates another one.
        return match fs::remove_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
            _ => Ok(Vec::new()),
        };
    }
    record_lost_state(dir)?;
    let unsent = dir.join(UNSENT);
    let states = file::left(dir)?.into_iter().filter(|state| !state.starts_with(&unsent));
    let states = states.map(|state| KeptState::in_directory(state, dir));
    let states = states.chain(KeptState::of_kept_code(dir)?);
    let states = states.map(|state| Left::State(Box::new(state)));
    let left = states.chain(missing.map(Left::OutOfReach)).collect::<Vec<_>>();
    if left.is_empty() {
        let dir = dir.to_owned();
        removal::shortly(move || match lock {
            Some(lock) => clear_if_current(&dir, &lock),
            None => clear(&dir),
        })?;
    }
    let layer = regular::read_text(&dir.join(LAYER)).ok().map(|layer| layer.trim().to_owned());
    Ok(left.into_iter().map(|left| Abandoned { left, layer: layer.clone() }).collect())
}

fn me() -> u32 {
    nix::unistd::geteuid().as_raw()
}

/// The states that an ended run has left, in its directory and where its code stays.
fn states_left(dir: &Path) -> io::Result<Vec<KeptState>> {
    record_lost_state(dir)?;
    let own = states_in(dir)?.into_iter().map(|file| KeptState::in_directory(file, dir));
    Ok(own.chain(KeptState::of_kept_code(dir)?).collect())
}

/// The states in the directory of a run: those of its code, and those that it has kept, whose names may be numbered.
fn states_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = file::left(dir)?;
    let numbered = states::kept(&dir.join(UNSENT)).into_iter();
    found.extend(numbered.filter(|file| !file.ends_with(states::ERRORED)));
    Ok(found)
}

/// Whether a runner, or the tool of a killed one, uses a directory.
fn is_used(dir: &Path) -> bool {
    [dir.join(LOCK), output_of(dir)].iter().any(|file| matches!(is_held(file), Ok(Some(true))))
}

/// Whether the run of a directory was killed, and its tool still works.
fn is_orphaned(dir: &Path) -> bool {
    let is_held = |file: &Path| matches!(is_held(file), Ok(Some(true)));
    !is_held(&dir.join(LOCK)) && is_held(&output_of(dir))
}

/// Whether a directory is that of a run that was killed, and whose tool still works.
pub(crate) fn has_orphan(dir: &Path) -> bool {
    is_own(dir) && is_orphaned(dir)
}

/// Whether a process holds a lock on a file; `None`: there is no such file. Two runs that check one file at the same
/// time do not take each other for its holder.
fn is_held(path: &Path) -> io::Result<Option<bool>> {
    let Some(file) = unless_missing(regular::open(path))? else { return Ok(None) };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(false)),
        Err(TryLockError::WouldBlock) => Ok(Some(true)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::source::scratch::name::{FIRST, rename_first};

    fn make(parent: &Path, name: &str, age: Duration, has_lock: bool) -> (PathBuf, Option<File>) {
        let dir = parent.join(name);
        fs::create_dir_all(dir.join("work/a")).unwrap();
        let lock = has_lock.then(|| crate::process::private_file(&dir.join(LOCK)).unwrap());
        set_age(&dir, age);
        (dir, lock)
    }

    fn set_age(dir: &Path, age: Duration) {
        File::open(dir).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn only_directories_without_a_lock_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let old = 2 * MIN_AGE;
        let make = |name: &str, age: Duration| make(parent.path(), name, age, true);
        let (dead, lock) = make("plancha-dead00", old);
        drop(lock);
        let (living, held) = make("plancha-living", old);
        held.as_ref().unwrap().lock().unwrap();
        let (young, _) = make("plancha-young0", Duration::ZERO);
        let (foreign, _) = make("other-dead", old);
        let (named, _) = make("plancha-of-the-user", old);
        let (errored, _) = make("plancha-error0", Duration::ZERO);
        let state = errored.join("work/live/.terragrunt-cache/a/b/errored.tfstate");
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        fs::write(&state, "{}").unwrap();
        set_age(&errored, old);

        sweep(parent.path()).unwrap();

        assert!(!dead.exists());
        assert!(state.exists(), "nothing else records what that apply has created");
        assert!(living.exists() && young.exists() && foreign.exists() && named.exists());
    }

    #[test]
    fn one_run_at_a_time_has_the_first_directory() {
        let parent = tempfile::tempdir().unwrap();
        let first = Scratch::create_in(parent.path()).unwrap();
        let second = Scratch::create_in(parent.path()).unwrap();
        assert_eq!(first.join(""), parent.path().join(FIRST).join(""));
        assert_ne!(second.join(""), first.join(""));
        assert!(is_scratch(&first.join("")) && is_scratch(&second.join("")));
        drop(first);
        let third = Scratch::create_in(parent.path()).unwrap();
        assert_eq!(third.join(""), parent.path().join(FIRST).join(""));
        // Another user's link of that name is not followed.
        drop(third);
        std::os::unix::fs::symlink(parent.path().join("elsewhere"), parent.path().join(FIRST))
            .unwrap();
        let fourth = Scratch::create_in(parent.path()).unwrap();
        assert_ne!(fourth.join(""), parent.path().join(FIRST).join(""));
    }

    #[test]
    fn first_directory_of_a_dead_run_is_free_before_it_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let first = parent.path().join(FIRST);
        let (dead, lock) = make(parent.path(), FIRST, 2 * MIN_AGE, true);
        let output = crate::process::private_file(&output_of(&dead)).unwrap();
        set_age(&dead, 2 * MIN_AGE);
        output.lock().unwrap();
        drop(lock);
        let other = Scratch::create_in(parent.path()).unwrap();
        assert!(other.join("") != first.join("") && dead.join("work/a").exists(), "its tool works");
        drop(output);

        let renamed = rename_first(&dead).unwrap();
        assert!(!first.exists() && is_scratch(&renamed) && renamed.join("work/a").exists());
        fs::rename(&renamed, &dead).unwrap();

        let scratch = Scratch::create_in(parent.path()).unwrap();
        assert_eq!(scratch.join(""), first.join(""));
        assert!(!first.join("work").exists());
    }

    #[test]
    fn directory_of_another_run_is_not_removed_with_the_lock_of_the_one_before() {
        let parent = tempfile::tempdir().unwrap();
        let (dir, before) = make(parent.path(), FIRST, 2 * MIN_AGE, true);
        let (before, file) = (before.unwrap(), dir.join(LOCK));
        fs::remove_file(&file).unwrap();
        let now = crate::process::private_file(&file).unwrap();
        clear_if_current(&dir, &before).unwrap();
        assert!(dir.join("work/a").exists());
        take(before, &file).unwrap_err();
        let now = take(now, &file).unwrap();
        clear_if_current(&dir, &crate::process::private_file(&file).unwrap()).unwrap();
        assert!(dir.join("work/a").exists(), "locked by a run");
        clear_if_current(&dir, &now).unwrap();
        assert!(!dir.exists());
    }

    #[test]
    fn directory_without_a_lock_file_is_removed_after_an_hour() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, age| make(parent.path(), name, age, false).0;
        let old = make("plancha-old000", 2 * MIN_AGE_WITHOUT_LOCK);
        let young = make("plancha-young0", MIN_AGE_WITHOUT_LOCK / 2);
        let errored = make("plancha-error0", Duration::ZERO);
        fs::write(errored.join("work/errored.tfstate"), "{}").unwrap();
        set_age(&errored, 2 * MIN_AGE_WITHOUT_LOCK);
        sweep(parent.path()).unwrap();
        assert!(!old.exists() && young.exists());
        assert!(errored.join("work/errored.tfstate").exists());
    }

    #[test]
    fn first_directory_without_a_lock_file_is_removed_only_if_it_is_empty() {
        let parent = tempfile::tempdir().unwrap();
        let (first, _) = make(parent.path(), FIRST, Duration::ZERO, false);
        set_age(&first, 2 * MIN_AGE_WITHOUT_LOCK);
        sweep(parent.path()).unwrap();
        assert!(first.join("work/a").exists());
        fs::remove_dir_all(first.join("work")).unwrap();
        for (age, is_removed) in
            [(MIN_AGE_WITHOUT_LOCK / 2, false), (2 * MIN_AGE_WITHOUT_LOCK, true)]
        {
            set_age(&first, age);
            sweep(parent.path()).unwrap();
            assert_eq!(first.exists(), !is_removed);
        }
    }

    #[test]
    fn unsent_files_of_a_killed_run_stay_when_the_rest_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        for has_lock in [true, false] {
            let (dir, _) = make(parent.path(), "plancha-unsent", Duration::ZERO, has_lock);
            fs::create_dir_all(dir.join(UNSENT)).unwrap();
            fs::write(dir.join(UNSENT).join("applied.json"), "{}").unwrap();
            fs::write(dir.join(LAYER), "default/x\n").unwrap();
            set_age(&dir, 2 * MIN_AGE_WITHOUT_LOCK);
            let (partial, _) = make(parent.path(), "plancha-killed", Duration::ZERO, has_lock);
            fs::create_dir_all(partial.join(UNSENT)).unwrap();
            fs::write(partial.join(UNSENT).join(".partial-x"), "{").unwrap();
            set_age(&partial, 2 * MIN_AGE_WITHOUT_LOCK);
            sweep(parent.path()).unwrap();
            assert!(!partial.exists(), "a file that was not written to its end is no record");
            let left = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
            let mut left = left.collect::<Vec<_>>();
            left.sort();
            assert_eq!(left, [LAYER, UNSENT]);
        }
    }

    #[test]
    fn directories_of_other_users_and_files_that_block_are_ignored() {
        let parent = tempfile::tempdir().unwrap();
        let layer = "default/x\n";
        let scratch = Scratch::create_in(parent.path()).unwrap();
        let mode = nix::sys::stat::Mode::S_IRWXU;
        let (pipe, _) = make(parent.path(), "plancha-pipe00", Duration::ZERO, false);
        nix::unistd::mkfifo(&pipe.join(LAYER), mode).unwrap();
        let (endless, _) = make(parent.path(), "plancha-zero00", Duration::ZERO, false);
        fs::os::unix::fs::symlink("/dev/zero", endless.join(LAYER)).unwrap();
        let left = || scratch.left_states(layer).unwrap().into_iter().map(|state| state.file);
        assert_eq!(left().count(), 0);
        let (dir, _) = make(parent.path(), "plancha-mine00", Duration::ZERO, false);
        nix::unistd::mkfifo(&dir.join(LOCK), mode).unwrap();
        fs::write(dir.join(LAYER), layer).unwrap();
        fs::create_dir(dir.join(UNSENT)).unwrap();
        let states = [dir.join(states::ERRORED), dir.join(UNSENT).join(states::ERRORED)];
        for state in &states {
            fs::write(state, "{}").unwrap();
        }
        assert_eq!(left().collect::<Vec<_>>(), states);
        // Only root can give a directory to another user.
        if nix::unistd::chown(&dir, Some(65534.into()), None).is_ok() {
            assert_eq!(left().count(), 0);
            assert!(scratch.left_unsent(layer).unwrap().is_empty());
        }
    }
}
