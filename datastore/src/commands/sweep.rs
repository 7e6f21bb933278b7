//! `gc`: lists, lets [`Rules`] choose, looks again, and deletes.
//!
//! Safe beside traffic: what is chosen is listed a second time right before it goes, and whatever has
//! changed since makes its run stay. An upload that begins in that moment writes an object of its own,
//! and its run's entry in the index is younger than any that goes.

mod claims;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use super::CommandError;
use crate::error::chain;
use crate::gc::{Item, Reason, Rules};
use crate::limits::Size;
use crate::store::{INDEX, Key, KnownRuns, Object, Store, StoreError};

/// An entry of a run without any object may be that of an upload under way; none takes longer.
const UPLOADING: Duration = Duration::from_hours(24);
/// Objects deleted at once.
const AT_ONCE: usize = 8;

/// What has become of everything so far.
struct Sweep<'a> {
    store: &'a Store,
    rules: &'a Rules,
    now: Timestamp,
    seen: usize,
    gone: usize,
    bytes: u64,
    failed: usize,
    /// The layers that had artifacts: `<namespace>/<layer>`.
    layers: HashSet<String>,
}

/// What is chosen below one directory: of one run, or of one ref.
type Doomed<'a> = BTreeMap<&'a str, Vec<(&'a Item, Reason)>>;

pub(super) async fn sweep(
    store: &Store,
    rules: &Rules,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let now = store.now().await.map_err(failed("ask the storage for the time"))?;
    let layers = HashSet::new();
    let mut sweep = Sweep { store, rules, now, seen: 0, gone: 0, bytes: 0, failed: 0, layers };
    for root in ["layers/", "repositories/"] {
        let mut objects = store.list(root).map_err(failed("list"))?;
        let mut items = Vec::<Item>::new();
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            let Some(item) = item(object) else { continue };
            if items.first().is_some_and(|first| owner(&first.path) != owner(&item.path)) {
                sweep.owned(&std::mem::take(&mut items), out).await?;
            }
            items.push(item);
        }
        sweep.owned(&items, out).await?;
    }
    sweep.of_layers_without_artifacts(out).await?;
    let verb = if rules.dry_run { "would be deleted" } else { "deleted" };
    let Sweep { seen, gone, bytes, failed, .. } = sweep;
    writeln!(out, "{gone} of {seen} artifacts {verb}, {}", Size(bytes))?;
    if failed > 0 { Err(CommandError::Undeleted(failed)) } else { Ok(()) }
}

impl Sweep<'_> {
    /// Everything of one layer, or of one repository.
    async fn owned(&mut self, items: &[Item], out: &mut impl Write) -> Result<(), CommandError> {
        let Some(first) = items.first() else { return Ok(()) };
        self.seen += items.len();
        let mut doomed = Doomed::new();
        for (item, reason) in self.rules.choose(items, self.now) {
            doomed.entry(group(item)).or_default().push((item, reason));
        }
        let known =
            items.iter().map(|item| (&*item.path, item.modified)).collect::<HashMap<_, _>>();
        let (mut left, mut emptied) = (KnownRuns::default(), KnownRuns::default());
        let mut emptied_runs = HashSet::new();
        let mut runs = items.iter().map(|item| (group(item), &item.key)).collect::<HashMap<_, _>>();
        for (directory, chosen) in doomed {
            let there = self.look_again(directory, &known).await?;
            let Some(there) = there else {
                writeln!(out, "kept {directory}: it has changed meanwhile")?;
                continue;
            };
            let gone = self.delete(&chosen, out).await?;
            if gone == there
                && let Some(Key::File(run, ..)) = runs.remove(directory)
            {
                emptied.insert(run);
                emptied_runs.insert(run.to_string());
            }
        }
        for key in runs.into_values() {
            if let Key::File(run, ..) = key {
                left.insert(run);
            }
        }
        let Some(layer) = owner(&first.path).strip_prefix("layers/") else { return Ok(()) };
        self.layers.insert(layer.to_owned());
        self.entries(layer, &left, &emptied, out).await?;
        self.claims(layer, items, &emptied_runs, out).await?;
        self.applied(layer, items, out).await
    }

    /// How many objects there are in a directory; `None` if one of them was not there before.
    async fn look_again(
        &self,
        directory: &str,
        known: &HashMap<&str, Timestamp>,
    ) -> Result<Option<usize>, CommandError> {
        let objects = self.store.list(directory).map_err(failed("list"))?;
        let objects = objects.try_collect::<Vec<_>>().await.map_err(failed("list"))?;
        let is_new = |object: &Object| {
            Key::at(&object.key).is_some() && known.get(&*object.key) != Some(&object.modified)
        };
        Ok((!objects.iter().any(is_new)).then_some(objects.len()))
    }

    /// Deletes what was chosen, and returns how many are gone.
    async fn delete(
        &mut self,
        chosen: &[(&Item, Reason)],
        out: &mut impl Write,
    ) -> Result<usize, CommandError> {
        let Self { store, rules, .. } = *self;
        let mut deletions = stream::iter(chosen)
            .map(async |(item, reason)| {
                let Item { path: key, size, modified, .. } = (*item).clone();
                let done = if rules.dry_run {
                    Ok(true)
                } else {
                    store.delete_unchanged(&Object { key, size, modified }).await
                };
                (item, reason, done)
            })
            .buffered(AT_ONCE);
        let mut gone = 0;
        while let Some((item, reason, done)) = deletions.next().await {
            match done {
                Ok(false) => writeln!(out, "kept {}: it has changed meanwhile", item.path)?,
                Ok(true) => {
                    gone += 1;
                    self.bytes += item.size;
                    let verb = if rules.dry_run { "would delete" } else { "deleted" };
                    writeln!(out, "{verb} {} ({})", item.path, why(rules, item, *reason))?;
                }
                Err(error) => {
                    self.failed += 1;
                    writeln!(out, "could not delete {}: {}", item.path, chain(&error))?;
                }
            }
        }
        self.gone += gone;
        Ok(gone)
    }

    /// The entries of a layer's runs that have no object any more.
    async fn entries(
        &mut self,
        layer: &str,
        left: &KnownRuns,
        emptied: &KnownRuns,
        out: &mut impl Write,
    ) -> Result<(), CommandError> {
        let Self { store, rules, now, .. } = *self;
        let mut entries = store.list(&format!("{INDEX}{layer}/")).map_err(failed("list"))?;
        while let Some(entry) = entries.try_next().await.map_err(failed("list"))? {
            let patience =
                if emptied.has(&entry) { rules.min_age } else { rules.min_age.max(UPLOADING) };
            let age = Duration::try_from(now.duration_since(entry.modified)).unwrap_or_default();
            if left.has(&entry) || !entry.is_of_a_run() || age < patience {
                continue;
            }
            let done = if rules.dry_run { Ok(()) } else { store.delete(&entry.key).await };
            if let Err(error) = done {
                self.failed += 1;
                writeln!(out, "could not delete {}: {}", entry.key, chain(&error))?;
            }
        }
        Ok(())
    }
}

fn item(object: Object) -> Option<Item> {
    let Object { key: path, size, modified } = object;
    Some(Item { key: Key::at(&path)?, path, modified, size })
}

/// The layer, or the repository: the first three parts of a path.
fn owner(path: &str) -> &str {
    path.match_indices('/').nth(2).map_or(path, |(end, _)| &path[..end])
}

/// The directory of a run with its `/`, or that of a ref.
fn group(item: &Item) -> &str {
    let end = match item.key {
        Key::File(..) => item.path.match_indices('/').nth(3),
        Key::Bundle(_) | Key::Applied(_) => item.path.rmatch_indices('/').next(),
    };
    end.map_or(&item.path, |(end, _)| &item.path[..=end])
}

fn why(rules: &Rules, item: &Item, reason: Reason) -> String {
    let max_age = rules.max_age.get(&(&item.key).into()).copied().unwrap_or_default();
    match reason {
        Reason::Run => format!("its run is past the last {}", rules.keep_runs.unwrap_or_default()),
        Reason::Age => format!("it is older than {}", shown(max_age)),
    }
}

fn shown(age: Duration) -> String {
    let age = jiff::SignedDuration::try_from(age).unwrap_or(jiff::SignedDuration::MAX);
    format!("{age:#}")
}

fn failed(what: &'static str) -> impl Fn(StoreError) -> CommandError {
    move |error| CommandError::Storage(what, error)
}
