//! Finds what earlier runs of a layer could not store: records of applies, and states. It sends nothing.

use std::io;
use std::path::{Path, PathBuf};

use datastore_api::{Attempt, Name, RunKey, Sha256};
use fs_err as fs;

use crate::report::ledger::Ledger;
use crate::report::{AppliedRecord, later_version};
use crate::run::artifacts::{APPLIED, LEDGER};
use crate::run::push::MissingState;
use crate::run::unsent::copies::read_copy;
use crate::run::unsent::directory::{self, FAILED, Locking, SUMS, datastore_of};
use crate::source::regular;
use crate::source::scratch::{KilledApply, Scratch, reason};
use crate::source::states::{self, KeptState};

/// The directories of all layers, below the state home.
pub(super) const ROOT: &str = "plancha/unsent";

/// A kept record of an apply.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    pub(crate) dir: PathBuf,
    pub(crate) record: AppliedRecord,
    /// The URL of the datastore that it is for. Older versions did not write it.
    datastore: Option<String>,
}

/// A kept record of an apply that cannot be read.
#[derive(Debug)]
pub(crate) struct UnreadableRecord {
    pub(crate) file: PathBuf,
    pub(crate) reason: String,
    pub(crate) cause: Unreadable,
    /// The run of its directory, if the directory is named like one.
    run: Option<Name>,
    /// The URL of the datastore that it is for.
    datastore: Option<String>,
}

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The system does not read the file.
    File,
    /// It is not a record.
    Damaged,
    /// A later version has written it.
    Later,
}

impl UnreadableRecord {
    /// One may be in a scratch directory that cannot be read.
    fn in_scratch(error: &io::Error) -> Self {
        let (file, reason) = (std::env::temp_dir(), error.to_string());
        Self { file, reason, cause: Unreadable::File, run: None, datastore: None }
    }

    /// Whether it may be of this run, in this datastore.
    pub(crate) fn may_be_of(&self, run: &Name, datastore: &url::Url) -> bool {
        let ours = directory::recorded_url(datastore);
        self.run.as_ref().is_none_or(|theirs| theirs == run)
            && self.datastore.as_ref().is_none_or(|theirs| *theirs == ours)
    }
}

impl KeptRecord {
    /// The datastore that the files are for, if it is another one than this.
    pub(crate) fn other_datastore(&self, ours: &url::Url) -> Option<&str> {
        self.datastore.as_deref().filter(|theirs| *theirs != directory::recorded_url(ours))
    }
}

/// The kept records of this layer: in the state home, and in the scratch directories of runs that could not write there,
/// or were killed. `killed` may have other directories for temporary files.
pub(crate) fn records(
    state_home: Option<&Path>,
    scratch: &Scratch,
    killed: &[KilledApply],
    run: &RunKey,
) -> Vec<Result<KeptRecord, UnreadableRecord>> {
    let (dirs, unread) = dirs_of_layer(state_home, scratch, killed, run);
    let unread = unread.map(|error| Err(UnreadableRecord::in_scratch(&error)));
    dirs.into_iter().filter_map(read).chain(unread).collect()
}

/// The kept ledgers of this layer for this datastore, as far as they can be read.
pub(crate) fn ledgers(
    state_home: Option<&Path>,
    scratch: &Scratch,
    killed: &[KilledApply],
    run: &RunKey,
    datastore: &url::Url,
) -> Vec<Ledger> {
    let ours = directory::recorded_url(datastore);
    let (dirs, _) = dirs_of_layer(state_home, scratch, killed, run);
    let dirs = dirs.iter().filter(|dir| datastore_of(dir).is_none_or(|theirs| theirs == ours));
    let read = dirs.filter_map(|dir| {
        let file = dir.join(LEDGER);
        let json = match regular::unless_missing(regular::read(&file)) {
            Ok(json) => json?,
            Err(error) => {
                tracing::warn!("the ledger of an earlier apply cannot be read: {error}");
                return None;
            }
        };
        let ledger = Ledger::parse(&json).inspect_err(|reason| {
            let file = file.display();
            tracing::warn!("the ledger of an earlier apply, {file}, cannot be read: {reason}");
        });
        ledger.ok().filter(|ledger| ledger.is_of_layer(run))
    });
    read.collect()
}

/// The directories of the layer's attempts, and the error for what could not be searched.
fn dirs_of_layer(
    state_home: Option<&Path>,
    scratch: &Scratch,
    killed: &[KilledApply],
    run: &RunKey,
) -> (Vec<PathBuf>, Option<io::Error>) {
    let layer = layer_id(run);
    let (mut left, unread) = match scratch.left_unsent(&layer) {
        Ok(left) => (left, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let killed = killed.iter().filter(|killed| killed.layer() == layer.trim());
    for dir in killed.filter_map(|killed| killed.left_unsent().ok().flatten()) {
        if !left.contains(&dir) {
            left.push(dir);
        }
    }
    (attempts(state_home, run).into_iter().chain(left).collect(), unread)
}

/// The record of the apply of a plan that waits in the state home for this datastore.
pub(crate) fn unsent_apply(
    state_home: Option<&Path>,
    run: &RunKey,
    plan: Sha256,
    datastore: &url::Url,
) -> Option<KeptRecord> {
    let mut kept = attempts(state_home, run).into_iter().filter_map(read).flatten();
    kept.find(|kept| kept.record.is_of(plan) && kept.other_datastore(datastore).is_none())
}

/// The record in a directory of unsent files, if there is one.
fn read(dir: PathBuf) -> Option<Result<KeptRecord, UnreadableRecord>> {
    let file = dir.join(APPLIED);
    let parsed = match regular::read(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => Err((Unreadable::File, reason(&error))),
        Ok(json) => match later_version(&json) {
            Some(version) => {
                let reason = format!("it has version {version}, which this runner does not know");
                Err((Unreadable::Later, reason))
            }
            None => AppliedRecord::parse(&json)
                .and_then(|record| verify(&dir, &json).map(|()| record))
                .map_err(|reason| (Unreadable::Damaged, reason)),
        },
    };
    let datastore = datastore_of(&dir);
    Some(match parsed {
        Ok(record) => Ok(KeptRecord { dir, record, datastore }),
        Err((cause, reason)) => {
            let run = named_attempt(&dir).map(|(run, _)| run.run);
            Err(UnreadableRecord { file, reason, cause, run, datastore })
        }
    })
}

/// Compares a record with its recorded digest. A directory of an older version may have none.
fn verify(dir: &Path, json: &[u8]) -> Result<(), String> {
    let sums = directory::sums(dir).map_err(|error| format!("{SUMS}: {}", reason(&error)))?;
    match sums.map(|sums| sums.get(APPLIED).copied()) {
        None => Ok(()),
        Some(Some(recorded)) if recorded == Sha256::of(json) => Ok(()),
        Some(Some(_)) => Err(format!("its digest is not the one in {SUMS}")),
        Some(None) => Err(format!("{SUMS} has no digest of it")),
    }
}

/// The kept states of this layer: copies, and files in work directories that links of earlier versions lead to.
pub(crate) fn states(state_home: Option<&Path>, run: &RunKey) -> Vec<KeptState> {
    let found = attempts(state_home, run);
    let found = found.iter().flat_map(|attempt| states::kept(attempt));
    let found = found.filter_map(|name| match leads_to(&name) {
        LeadsTo::State(file) => Some(kept_state(file, name)),
        LeadsTo::Removed | LeadsTo::OutOfReach(_) => None,
    });
    let mut found = found.collect::<Vec<_>>();
    // Several links may lead to one state; only one of their records is of its contents.
    found.sort_by(|a, b| (&a.file, a.record.is_none()).cmp(&(&b.file, b.record.is_none())));
    found.dedup_by(|a, b| a.file == b.file);
    found
}

/// The kept copy of a state that stays where it is, or the link that leads to it, of any layer.
pub(crate) fn copy_of(
    state_home: Option<&Path>,
    scratch: &Scratch,
    original: &Path,
) -> Option<KeptState> {
    let mut kept = of_any_layer(state_home, scratch).into_iter();
    kept.find(|state| state.is_of(original))
}

/// The kept versions of a state, of any layer: the same code may be applied under several names.
pub(crate) fn versions_of(
    state_home: Option<&Path>,
    scratch: &Scratch,
    state: Sha256,
) -> Vec<KeptState> {
    let kept = of_any_layer(state_home, scratch).into_iter();
    kept.filter(|kept| kept.is_version_of(Some(state))).collect()
}

/// The kept states of all layers.
fn of_any_layer(state_home: Option<&Path>, scratch: &Scratch) -> Vec<KeptState> {
    let mut level = state_home.map(|home| home.join(ROOT)).into_iter().collect::<Vec<_>>();
    // Namespace, layer, run and attempt.
    for _ in 0..4 {
        level = level.iter().flat_map(|dir| below(dir)).collect();
    }
    let names = level.iter().flat_map(|dir| states::kept(dir)).chain(scratch.left_copies());
    let kept = names.filter_map(|name| match leads_to(&name) {
        LeadsTo::State(file) => Some(kept_state(file, name)),
        LeadsTo::Removed | LeadsTo::OutOfReach(_) => None,
    });
    kept.collect()
}

/// The state of this name, which may be a link to the file.
pub(super) fn kept_state(file: PathBuf, name: PathBuf) -> KeptState {
    if file == name { read_copy(name) } else { KeptState::read(file, &name) }
}

/// The links of this layer to states whose directories are missing or empty.
pub(crate) fn missing_states(state_home: Option<&Path>, run: &RunKey) -> Vec<MissingState> {
    let found = attempts(state_home, run);
    let links = found.iter().flat_map(|attempt| states::kept(attempt));
    let missing = links.filter_map(|link| match leads_to(&link) {
        LeadsTo::OutOfReach(state) => {
            let source = states::source_beside(&link);
            Some(MissingState { link, state, source, is_killed: false })
        }
        LeadsTo::State(_) | LeadsTo::Removed => None,
    });
    missing.collect()
}

/// What the name of a kept state leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeadsTo {
    /// The state is in this file, or the file cannot be looked at now.
    State(PathBuf),
    /// The link's file was removed, as after a push.
    Removed,
    /// The directory of the link's file is missing or empty: it may have been moved, or is not mounted now.
    OutOfReach(PathBuf),
}

/// Follows the name of a kept state, if it is a link.
pub(super) fn leads_to(name: &Path) -> LeadsTo {
    let Ok(file) = fs::read_link(name) else { return LeadsTo::State(name.to_owned()) };
    match fs::metadata(&file) {
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => {}
        // A disk that answers with an error may still have the state.
        Ok(_) | Err(_) => return LeadsTo::State(file),
    }
    let first = file.parent().and_then(|dir| fs::read_dir(dir).ok()?.next());
    if let Some(Ok(_)) = first { LeadsTo::Removed } else { LeadsTo::OutOfReach(file) }
}

/// Why a directory of the layer, of its runs or of their attempts cannot be listed, if it exists. What earlier runs have left there is not found then.
pub(crate) fn unreadable(state_home: Option<&Path>, run: &RunKey) -> Option<io::Error> {
    let layer = of_layer(state_home?, run);
    let dirs = [vec![layer.clone()], below(&layer), attempts(state_home, run)].concat();
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    let mut errors = dirs.iter().filter_map(|dir| fs::read_dir(dir).err());
    errors.find(|error| !missing.contains(&error.kind()))
}

/// The directories of the layer's attempts.
pub(super) fn attempts(state_home: Option<&Path>, run: &RunKey) -> Vec<PathBuf> {
    let runs = state_home.into_iter().flat_map(|home| below(&of_layer(home, run)));
    runs.flat_map(|run| below(&run)).collect()
}

/// The attempts of a run whose files wait in the state home for `runner upload` to this datastore. An attempt whose runner
/// works now is left out.
pub(crate) fn waiting(
    state_home: Option<&Path>,
    run: &RunKey,
    datastore: &url::Url,
) -> Vec<(Attempt, PathBuf)> {
    let ours = directory::recorded_url(datastore);
    let is_waiting = |dir: &Path| {
        has_record(dir)
            && datastore_of(dir).is_none_or(|theirs| theirs == ours)
            && matches!(directory::lock(dir), Ok(Locking::Locked(_)))
    };
    let found = attempts(state_home, run).into_iter().filter_map(|dir| {
        let (of, attempt) = named_attempt(&dir)?;
        (of.run == run.run && is_waiting(&dir)).then_some((attempt, dir))
    });
    let mut found = found.collect::<Vec<_>>();
    found.sort();
    found
}

/// The attempts of a layer whose files wait for `runner upload` to this datastore.
pub(super) fn waiting_of_layer(
    state_home: &Path,
    run: &RunKey,
    datastore: &url::Url,
) -> Vec<PathBuf> {
    let ours = directory::recorded_url(datastore);
    let mut found = attempts(Some(state_home), run);
    found.retain(|dir| has_record(dir) && datastore_of(dir).is_none_or(|theirs| theirs == ours));
    found.sort();
    found
}

/// The attempts of all layers whose files wait for `runner upload`, and those of which only states are left.
pub(super) fn waiting_below(state_home: &Path) -> Vec<PathBuf> {
    let mut found = vec![state_home.join(ROOT)];
    // Namespace, layer, run and attempt.
    for _ in 0..4 {
        found = found.iter().flat_map(|dir| below(dir)).collect();
    }
    found.retain(|dir| has_record(dir) || !states::kept(dir).is_empty());
    found.sort();
    found
}

/// Whether a directory holds files of an attempt.
fn has_record(dir: &Path) -> bool {
    [APPLIED, FAILED].iter().any(|name| dir.join(name).exists())
}

/// The first directory of an attempt below one of the directories of all attempts.
pub(super) fn first_attempt(dir: &Path) -> Option<PathBuf> {
    if !dir.ancestors().any(|dir| dir.ends_with(ROOT)) {
        return None;
    }
    let mut level = below(dir);
    // Namespace, layer, run and attempt.
    for _ in 0..4 {
        level.sort();
        if let Some(found) = level.iter().find(|dir| has_record(dir)) {
            return Some(found.clone());
        }
        level = level.iter().flat_map(|dir| below(dir)).collect();
    }
    None
}

/// The attempt whose files a directory of this name would hold.
pub(super) fn named_attempt(dir: &Path) -> Option<(RunKey, Attempt)> {
    let parts = dir.ancestors().take(4).map(|dir| dir.file_name()?.to_str());
    let [attempt, run, layer, namespace] = parts.collect::<Option<Vec<_>>>()?[..] else {
        return None;
    };
    if !dir.ancestors().nth(4)?.ends_with(ROOT) {
        return None;
    }
    let number = attempt.split_once('-').map_or(attempt, |(number, _)| number);
    let (namespace, layer) = (namespace.parse().ok()?, layer.parse().ok()?);
    Some((RunKey { namespace, layer, run: run.parse().ok()? }, number.parse().ok()?))
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The layer in the scratch directory of its run ([`Scratch::record_apply`]).
pub(crate) fn layer_id(RunKey { namespace, layer, .. }: &RunKey) -> String {
    format!("{namespace}/{layer}\n")
}

/// The directory of a layer's runs.
pub(super) fn of_layer(state_home: &Path, run: &RunKey) -> PathBuf {
    // A name is one segment of a path, and neither `.` nor `..`.
    let RunKey { namespace, layer, .. } = run;
    state_home.join(ROOT).join(namespace.as_ref()).join(layer.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_that_cannot_be_looked_at_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let link_to = |target: &Path| {
            let link = dir.path().join("link");
            drop(fs::remove_file(&link));
            fs::os::unix::fs::symlink(target, &link).unwrap();
            leads_to(&link)
        };
        let code = dir.path().join("code");
        let file = code.join("errored.tfstate");
        assert_eq!(link_to(&file), LeadsTo::OutOfReach(file.clone()));
        fs::create_dir(&code).unwrap();
        assert_eq!(link_to(&file), LeadsTo::OutOfReach(file.clone()));
        fs::write(code.join("main.tf"), "").unwrap();
        assert_eq!(link_to(&file), LeadsTo::Removed);
        fs::write(&file, "{}").unwrap();
        assert_eq!(link_to(&file), LeadsTo::State(file.clone()));
        // The directory lists, but the file cannot be looked at.
        fs::remove_file(&file).unwrap();
        fs::os::unix::fs::symlink(&file, &file).unwrap();
        assert_eq!(link_to(&file), LeadsTo::State(file.clone()));
        assert_eq!(leads_to(&code), LeadsTo::State(code));
    }

    #[test]
    fn attempt_of_a_directory_is_known_from_its_name() {
        for name in ["0", "0-2"] {
            let dir = Path::new("/home/plancha/unsent/default/vpc/a").join(name);
            let (run, attempt) = named_attempt(&dir).unwrap();
            assert_eq!((run.to_string(), attempt), ("default/vpc/a".to_owned(), Attempt(0)));
        }
        for dir in ["/", "/plancha/unsent/default/vpc/a", "/other/default/vpc/a/0", "unsent"] {
            assert_eq!(named_attempt(Path::new(dir)), None, "{dir}");
        }
    }
}
