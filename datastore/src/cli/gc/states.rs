//! `gc`: deletes expired versions of states, and what is left of states that were deleted.
//!
//! The datastore may serve meanwhile. A version is never changed, and one that is not the state never becomes it again, so
//! it is deleted without a lock. Only the entry of a deleted state in its control object needs the right to change that.

mod select;

use std::collections::{BTreeMap, HashMap, HashSet};

use datastore_api::state::{Migration, StateKind, StateVersion, ToolRecord};
use datastore_api::{Attempt, File, HumanDuration, Name, RunKey, StateKey, VersionId};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::gc::context::{Context, Swept, failed};
use crate::cli::gc::states::select::{Expired, Reason, Stored, age};
use crate::kind::Kind;
use crate::store::{
    KeptState, Key, LayerKey, Object, StateError, StateObject, StateSettings, Store, StoreError,
    description_path,
};

/// Descriptions that are read at the same time.
const PARALLEL_READS: usize = 16;
/// The record beside the files of a run whose apply has succeeded.
pub(super) const APPLIED: &str = "applied.json";

/// The states of one layer.
struct Layer<'a> {
    context: &'a Context<'a>,
    /// Reads beside a process that serves states.
    store: Store,
    key: LayerKey,
    /// By workspace.
    states: BTreeMap<String, Stored>,
    /// The entries of the control object.
    entries: BTreeMap<String, KeptState>,
    /// The backups of migrations, by workspace.
    backups: HashMap<String, VersionId>,
    /// When each snapshot was stored last, by the path of its entry.
    hashes: HashMap<String, Timestamp>,
    documents: HashSet<String>,
}

impl Context<'_> {
    /// The layers that have states.
    pub(super) async fn layers_with_states(&self) -> Result<Vec<LayerKey>, CommandError> {
        self.store.layers_with_states().await.map_err(failed("list the states"))
    }

    /// Sweeps the states of a layer.
    pub(super) async fn sweep_states(&self, key: LayerKey) -> Result<Swept, CommandError> {
        let store = self.store.with_states(StateSettings::read_only());
        let mut swept = Swept::default();
        // The control object comes first: what it does not name now and has no description later was never the state.
        match store.layer_states(&key).await {
            Ok(states) => {
                let layer = Layer {
                    context: self,
                    store,
                    key,
                    states: BTreeMap::new(),
                    entries: states.states,
                    backups: backups(states.tool),
                    hashes: HashMap::new(),
                    documents: HashSet::new(),
                };
                let layer = layer.listed().await?;
                match layer.sweep(&mut swept).await {
                    // The version whose description is damaged may be one that is kept.
                    Err(CommandError::State(
                        error @ (StateError::Damaged(_) | StateError::DamagedDescription(_)),
                    )) => {
                        swept.keep_states(&layer.key, &error);
                    }
                    result => result?,
                }
            }
            Err(StateError::Store(error)) => {
                return Err(CommandError::Storage("read the control object of a layer", error));
            }
            Err(error) => swept.keep_states(&key, &error),
        }
        Ok(swept)
    }
}

impl Swept {
    /// Records a layer whose states cannot be read.
    fn keep_states(&mut self, LayerKey { namespace, layer }: &LayerKey, error: &StateError) {
        self.line(&format!("kept the states of {namespace}/{layer}: {error}"));
        self.damaged_states.insert(format!("{namespace}/{layer}"));
    }
}

impl Layer<'_> {
    /// Lists what is stored.
    async fn listed(mut self) -> Result<Self, CommandError> {
        for (workspace, entry) in &self.entries {
            let last = entry.last.as_ref().map(|version| version.version.clone());
            let stored = Stored { last, deleted: entry.deleted, ..Stored::default() };
            self.states.insert(workspace.clone(), stored);
        }
        for directory in self.key.state_directories() {
            let mut objects = self.store.list(&directory).map_err(failed("list the states"))?;
            while let Some(object) = objects.try_next().await.map_err(failed("list the states"))? {
                self.add(object);
            }
        }
        Ok(self)
    }

    fn add(&mut self, object: Object) {
        if let Some(Key::State(state, version)) = Key::from_path(&object.key) {
            self.documents.insert(object.key.clone());
            let stored = self.states.entry(state.workspace.to_string()).or_default();
            stored.documents.insert(version, object);
            return;
        }
        match StateObject::of(&object.key) {
            Some(StateObject::Description(workspace, kind, version)) => {
                self.states.entry(workspace).or_default().describe(kind, version);
            }
            Some(StateObject::Hash(_)) => {
                self.hashes.insert(object.key, object.modified);
            }
            Some(StateObject::Control) | None => {}
        }
    }

    async fn sweep(&self, swept: &mut Swept) -> Result<(), CommandError> {
        let Context { rules, now, .. } = *self.context;
        for (workspace, stored) in &self.states {
            swept.listed += stored.documents.len();
            let Ok(workspace) = workspace.parse::<Name>() else { continue };
            let LayerKey { namespace, layer } = self.key.clone();
            let key = StateKey { namespace, layer, workspace };
            if let Some(deleted) = stored.removable(rules, now)
                && self.remove_entry(&key, deleted, swept).await?
            {
                self.delete(&key, stored, stored.remains(rules, now, deleted), swept).await?;
                continue;
            }
            let kept = self.last_good(&key, stored, swept).await?;
            self.delete(&key, stored, stored.select(rules, now, &kept), swept).await?;
        }
        Ok(())
    }

    /// Removes the entry of a deleted state from the control object. Returns whether nobody can undelete it any more.
    async fn remove_entry(
        &self,
        key: &StateKey,
        deleted: Timestamp,
        swept: &mut Swept,
    ) -> Result<bool, CommandError> {
        if self.context.rules.dry_run {
            swept.line(&format!("would delete the state {key} (it was deleted at {deleted:.0})"));
            return Ok(true);
        }
        // The lock of a directory is held no longer than needed: a service that begins to serve states needs it.
        let store = self.context.store.with_own_lock();
        let removed = match store.probe_for_states().await {
            Ok(()) => store.forget_deleted_state(key, deleted).await,
            Err(error) => Err(StateError::Store(StoreError::Backend(error))),
        };
        match removed {
            Ok(true) => {
                swept.line(&format!("deleted the state {key} (it was deleted at {deleted:.0})"));
                Ok(true)
            }
            Ok(false) => {
                swept.line(&format!("kept the deleted state {key}: it has changed meanwhile"));
                Ok(false)
            }
            Err(StateError::Store(error)) => {
                swept.failure(&format!("the state {key}"), &error);
                Ok(false)
            }
            Err(error) => {
                swept.line(&format!("kept the deleted state {key}: {error}"));
                Ok(false)
            }
        }
    }

    /// The last versions and snapshots of applies that have succeeded. They are found if a rule deletes something of this
    /// state, or the record of such an apply, which is kept with them.
    async fn last_good(
        &self,
        key: &StateKey,
        stored: &Stored,
        swept: &mut Swept,
    ) -> Result<HashSet<VersionId>, CommandError> {
        let Context { rules, now, .. } = *self.context;
        let expired = stored.select(rules, now, &HashSet::new());
        let mut kept = HashSet::from_iter(self.backups.get(key.workspace.as_ref()).cloned());
        let deletes_runs = rules.keep_runs.is_some() || rules.max_age.contains_key(&Kind::Artifact);
        for kind in [StateKind::Head, StateKind::Snapshot] {
            if !deletes_runs && !expired.iter().any(|expired| expired.kind == Some(kind)) {
                continue;
            }
            if let Some((version, record)) = self.last_good_of(key, stored, kind).await? {
                kept.insert(version);
                swept.kept_records.insert(record);
            }
        }
        Ok(kept)
    }

    async fn last_good_of(
        &self,
        key: &StateKey,
        stored: &Stored,
        kind: StateKind,
    ) -> Result<Option<(VersionId, String)>, CommandError> {
        let entry = self.entries.get(key.workspace.as_ref());
        let last = entry.and_then(|entry| entry.last.as_ref());
        let versions = stream::iter(stored.versions(kind)).map(async |id| match last {
            Some(last) if last.version == id => Ok(Some(last.clone())),
            _ => self.store.described_version(key, kind, &id).await,
        });
        let mut versions = std::pin::pin!(versions.buffered(PARALLEL_READS));
        let mut known = HashMap::new();
        while let Some(version) = versions.next().await {
            let version = version.map_err(|error| state_error("read a description", error))?;
            let Some(StateVersion { version, run: Some(run), .. }) = version else { continue };
            let record = match known.get(&run) {
                Some(record) => Clone::clone(record),
                None => self.applied_record(&run).await?,
            };
            if let Some(record) = record {
                return Ok(Some((version, record)));
            }
            known.insert(run, None);
        }
        Ok(None)
    }

    /// The path of the record that a run, `<run>/<attempt>`, has applied, if it has.
    async fn applied_record(&self, run: &str) -> Result<Option<String>, CommandError> {
        let parsed = run.rsplit_once('/').and_then(|(run, attempt)| {
            let LayerKey { namespace, layer } = self.key.clone();
            let run = RunKey { namespace, layer, run: run.parse().ok()? };
            Some((run, attempt.parse::<Attempt>().ok()?, APPLIED.parse().ok()?))
        });
        let Some((run, attempt, name)) = parsed else { return Ok(None) };
        let key = Key::File(run, attempt, File::Other(name));
        match self.store.stat(&key).await {
            Ok(_) => Ok(key.to_path()),
            Err(StoreError::NotFound | StoreError::KeyTooLong { .. }) => Ok(None),
            Err(error) => Err(CommandError::Storage("read the record of an apply", error)),
        }
    }

    /// Deletes versions: first what finds them, then the description, and the document last.
    async fn delete(
        &self,
        key: &StateKey,
        stored: &Stored,
        expired: Vec<Expired>,
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let is_own = |expired: &Expired| {
            let document = stored.documents.get(&expired.id);
            document.is_none_or(|document| !self.context.store.is_linked(&document.key))
        };
        let expired = expired.into_iter().filter(is_own).collect();
        let (expired, hashes) = self.without_repeated(key, expired).await?;
        let mut unused = Vec::new();
        for expired in expired {
            if self.is_still_expired(key, &expired).await? {
                unused.push(expired);
            }
        }
        let mut left = HashSet::new();
        if !self.context.rules.dry_run {
            self.delete_own(&hashes, swept).await;
            let described = unused.iter().filter_map(|expired| {
                let path = description_path(key, expired.kind?, &expired.id);
                Some((path, expired.id.clone()))
            });
            let (paths, ids): (Vec<_>, Vec<_>) = described.unzip();
            let deleted = self.delete_own(&paths, swept).await;
            let failed = ids.into_iter().zip(deleted).filter(|(_, deleted)| !deleted);
            left.extend(failed.map(|(id, _)| id));
        }
        unused.retain(|expired| !left.contains(&expired.id));
        self.delete_documents(stored, &unused, swept).await;
        Ok(())
    }

    /// Without the snapshots that were stored again meanwhile; with the entries by which the others are found.
    async fn without_repeated(
        &self,
        key: &StateKey,
        expired: Vec<Expired>,
    ) -> Result<(Vec<Expired>, Vec<String>), CommandError> {
        let Context { rules, now, .. } = *self.context;
        let (mut kept, mut hashes) = (Vec::new(), Vec::new());
        for expired in expired {
            if expired.kind != Some(StateKind::Snapshot) {
                kept.push(expired);
                continue;
            }
            let entry = self.store.hash_entry(key, &expired.id).await;
            let entry = entry.map_err(|error| state_error("read a snapshot", error))?;
            let Some(path) = entry else {
                kept.push(expired);
                continue;
            };
            let age = self.hashes.get(&path).map(|stored| age(*stored, now));
            let is_repeated = age.is_none_or(|age| match expired.reason {
                Reason::Age(max_age) => age <= max_age || age < rules.min_age,
                Reason::Count(_) => age < rules.min_age,
                Reason::Unused | Reason::Deleted(_) => false,
            });
            if !is_repeated {
                hashes.push(path);
                kept.push(expired);
            }
        }
        Ok((kept, hashes))
    }

    /// Whether a document that had no description still has none.
    async fn is_still_expired(
        &self,
        key: &StateKey,
        expired: &Expired,
    ) -> Result<bool, CommandError> {
        if expired.kind.is_some() {
            return Ok(true);
        }
        match self.store.find_version(key, &expired.id).await {
            Ok(_) => Ok(false),
            Err(StateError::NoState(_)) => Ok(true),
            Err(error) => Err(state_error("read a description", error)),
        }
    }

    /// Deletes objects of the datastore's own. Returns for each whether it is gone.
    async fn delete_own(&self, paths: &[String], swept: &mut Swept) -> Vec<bool> {
        let deleted = self.context.store.delete_many(paths.iter().map(String::as_str)).await;
        let results = paths
            .iter()
            .zip(deleted)
            .map(|(path, deleted)| deleted.inspect_err(|error| swept.failure(path, error)).is_ok());
        results.collect()
    }

    async fn delete_documents(&self, stored: &Stored, expired: &[Expired], swept: &mut Swept) {
        let of =
            |expired: &Expired| Some((stored.documents.get(&expired.id)?.clone(), why(expired)));
        let (objects, reasons): (Vec<_>, Vec<_>) = expired.iter().filter_map(of).unzip();
        let results = if self.context.rules.dry_run {
            objects.iter().map(|_| Ok(true)).collect()
        } else {
            let [_, directory] = self.key.state_directories();
            let known = |key: &str| self.documents.contains(key);
            let owner = directory.trim_end_matches('/');
            self.context.store.delete_listed(owner, &objects, known).await
        };
        for ((object, why), result) in objects.iter().zip(reasons).zip(results) {
            let path = &object.key;
            match result {
                Ok(false) => swept.line(&format!("kept {path}: it has changed meanwhile")),
                Ok(true) | Err(StoreError::RecordLeft(_)) => {
                    swept.deleted += 1;
                    swept.bytes += object.size;
                    let verb = if self.context.rules.dry_run { "would delete" } else { "deleted" };
                    swept.line(&format!("{verb} {path} ({why})"));
                    if let Err(error) = &result {
                        swept.failure(path, error);
                    }
                }
                Err(error) => swept.failure(path, &error),
            }
        }
    }
}

/// The copies of states that a rollback of a migration needs.
fn backups(record: Option<ToolRecord>) -> HashMap<String, VersionId> {
    let migrations = record.map(|record| record.migrations).unwrap_or_default();
    let backup =
        |(workspace, migration): (String, Migration)| Some((workspace, migration.backup?.version));
    migrations.into_iter().filter_map(backup).collect()
}

fn why(expired: &Expired) -> String {
    let (version, versions, since) = match expired.kind {
        Some(StateKind::Snapshot) => ("snapshot", "snapshots", "is older than"),
        Some(StateKind::Rejected) => ("refused write", "refused writes", "is older than"),
        Some(StateKind::Head) | None => ("version", "versions", "was replaced before the last"),
    };
    match expired.reason {
        Reason::Count(1) => format!("it is not the last {version}"),
        Reason::Count(keep) => format!("it is not one of the last {keep} {versions}"),
        Reason::Age(age) => format!("it {since} {}", HumanDuration(age)),
        Reason::Unused => "an interrupted write has left it".to_owned(),
        Reason::Deleted(deleted) => format!("its state was deleted at {deleted:.0}"),
    }
}

/// An error of the storage, or of what it has about a state.
fn state_error(action: &'static str, error: StateError) -> CommandError {
    match error {
        StateError::Store(error) => CommandError::Storage(action, error),
        error => CommandError::State(error),
    }
}
