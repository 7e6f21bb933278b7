//! `gc`: lists, lets [`Rules`] choose, lists again, and deletes.
//!
//! It is safe beside traffic. What is selected is listed a second time right before it is deleted, and a run that
//! has changed since stays. An upload that begins in that moment writes an object of its own, and its run's
//! entry in the index is younger than any that is deleted.
//!
//! In a bucket several layers and repositories are swept at once, and one request deletes many objects. What is
//! printed keeps the order of the keys.

mod claims;
mod owner;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::gc::select::{Item, Reason, Rules};
use crate::cli::gc::sweep::claims::sweep_layers_without_artifacts;
use crate::cli::gc::sweep::owner::{Concurrency, Owner, Summary, failed};
use crate::store::{INDEX, Key, Object, RunSet, Store};
use crate::transport::limits::Size;

/// An entry of a run without any object may be that of an upload in progress; none takes longer.
const UPLOADING: Duration = Duration::from_hours(24);

/// What is selected below one directory: of one run, or of one ref.
type Selected<'a> = (&'a str, Vec<(&'a Item, Reason)>);

pub(in crate::cli) async fn sweep(
    store: &Store,
    rules: &Rules,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let now = store.now().await.map_err(failed("read the storage's clock"))?;
    let concurrency = if store.is_bucket() { Concurrency::BUCKET } else { Concurrency::DIRECTORY };
    let mut total = Summary::default();
    for root in ["layers/", "repositories/"] {
        let owners = owners(store, root)?.map(async |items| {
            let items = items?;
            let path = items.first().map_or("", |first| owner(&first.path));
            Owner { store, rules, now, concurrency, path, items: &items }.sweep_owner().await
        });
        let mut swept = std::pin::pin!(owners.buffered(concurrency.owners));
        while let Some(swept) = swept.try_next().await? {
            out.write_all(swept.text.as_bytes())?;
            total.add(Summary { text: String::new(), removed_runs: HashSet::new(), ..swept });
        }
    }
    let beside = sweep_layers_without_artifacts(store, rules, now, &total.layers).await?;
    out.write_all(beside.text.as_bytes())?;
    total.add(beside);
    let verb = if rules.dry_run { "would be deleted" } else { "deleted" };
    let Summary { seen, deleted, bytes, failed, .. } = total;
    writeln!(out, "{deleted} of {seen} artifacts {verb}, {}", Size(bytes))?;
    if failed > 0 { Err(CommandError::Undeleted(failed)) } else { Ok(()) }
}

/// The artifacts of each layer or repository below a root.
fn owners(
    store: &Store,
    root: &str,
) -> Result<impl Stream<Item = Result<Vec<Item>, CommandError>>, CommandError> {
    let objects = store.list(root).map_err(failed("list"))?.fuse();
    Ok(stream::try_unfold((objects, None), async |(mut objects, first)| {
        let mut items = Vec::<Item>::from_iter(first);
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            let Some(item) = item(object) else { continue };
            if items.first().is_some_and(|first| owner(&first.path) != owner(&item.path)) {
                return Ok(Some((items, (objects, Some(item)))));
            }
            items.push(item);
        }
        Ok((!items.is_empty()).then_some((items, (objects, None))))
    }))
}

impl Owner<'_> {
    async fn sweep_owner(&self) -> Result<Summary, CommandError> {
        let mut total = Summary { seen: self.items.len(), ..Summary::default() };
        let mut selected = BTreeMap::<&str, Vec<(&Item, Reason)>>::new();
        for (item, reason) in self.rules.select(self.items, self.now) {
            selected.entry(group(item)).or_default().push((item, reason));
        }
        let known = self.items.iter().map(|item| (&*item.path, item.modified)).collect();
        let batches = batches(selected, self.concurrency.batch);
        let mut swept = stream::iter(&batches)
            .map(|batch| self.sweep_batch(batch, &known))
            .buffered(self.concurrency.batches);
        while let Some(swept) = swept.try_next().await? {
            total.add(swept);
        }
        if let Some(layer) = self.path.strip_prefix("layers/") {
            total.layers.insert(layer.to_owned());
            self.delete_entries(layer, &mut total).await?;
            self.delete_claims(layer, &mut total).await?;
            self.delete_applied(layer, &mut total).await?;
        }
        Ok(total)
    }

    /// Deletes what is selected below some directories, if it has not changed since it was listed.
    async fn sweep_batch(
        &self,
        batch: &[Selected<'_>],
        known: &HashMap<&str, Timestamp>,
    ) -> Result<Summary, CommandError> {
        let directories = batch.iter().map(|(directory, _)| *directory).collect::<Vec<_>>();
        let listed = self.store.list_directories(self.path, &directories).await;
        let listed = listed.map_err(failed("list"))?;
        let is_new = |object: &&Object| {
            Key::from_path(&object.key).is_some()
                && known.get(&*object.key) != Some(&object.modified)
        };
        let mut swept = Summary::default();
        let mut unchanged = Vec::new();
        for selected @ (directory, _) in batch {
            if listed.iter().any(|object| object.key.starts_with(directory) && is_new(&object)) {
                swept.line(&format!("kept {directory}: it has changed meanwhile"));
            } else {
                unchanged.push(selected);
            }
        }
        let gone = self.delete(&unchanged, &mut swept).await;
        for (directory, gone) in gone {
            let listed = listed.iter().filter(|object| object.key.starts_with(directory));
            if listed.count() == gone {
                swept.removed_runs.insert(directory.to_owned());
            }
        }
        Ok(swept)
    }

    /// Deletes these, and returns how many are gone of each directory.
    async fn delete<'b>(
        &self,
        selected: &[&Selected<'b>],
        swept: &mut Summary,
    ) -> HashMap<&'b str, usize> {
        let items = selected.iter().flat_map(|(_, items)| items).collect::<Vec<_>>();
        let objects = items.iter().map(|(item, _)| {
            let Item { path: key, size, modified, .. } = (*item).clone();
            Object { key, size, modified }
        });
        let objects = objects.collect::<Vec<_>>();
        let results = if self.rules.dry_run {
            objects.iter().map(|_| Ok(true)).collect()
        } else {
            self.store.delete_listed(self.path, &objects).await
        };
        let mut gone = HashMap::new();
        for ((item, reason), result) in items.into_iter().zip(results) {
            match result {
                Ok(false) => swept.line(&format!("kept {}: it has changed meanwhile", item.path)),
                Ok(true) => {
                    *gone.entry(group(item)).or_default() += 1;
                    swept.deleted += 1;
                    swept.bytes += item.size;
                    let verb = if self.rules.dry_run { "would delete" } else { "deleted" };
                    let reason = reason_text(self.rules, item, *reason);
                    swept.line(&format!("{verb} {} ({reason})", item.path));
                }
                Err(error) => swept.failure(&item.path, &error),
            }
        }
        gone
    }

    /// Deletes the index entries of a layer's runs that have no object any more.
    async fn delete_entries(&self, layer: &str, swept: &mut Summary) -> Result<(), CommandError> {
        let (mut kept_runs, mut removed_runs) = (RunSet::default(), RunSet::default());
        let runs = self.items.iter().map(|item| (group(item), &item.key));
        for (directory, key) in runs.collect::<HashMap<_, _>>() {
            if let Key::File(run, ..) = key {
                let runs = if swept.removed_runs.contains(directory) {
                    &mut removed_runs
                } else {
                    &mut kept_runs
                };
                runs.insert(run);
            }
        }
        let min_age = self.rules.min_age;
        let is_past = |entry: &Object| {
            // `reindex` makes young entries of old runs: an entry's name has the time of its run.
            let (started, required_age) = match entry.run_started() {
                Some(started) if removed_runs.contains(entry) => {
                    (started.min(entry.modified), min_age)
                }
                _ => (entry.modified, min_age.max(UPLOADING)),
            };
            let age = Duration::try_from(self.now.duration_since(started));
            !kept_runs.contains(entry)
                && entry.is_run_entry()
                && age.unwrap_or_default() >= required_age
        };
        let entries = self.store.list(&format!("{INDEX}{layer}/")).map_err(failed("list"))?;
        let entries = entries.try_filter(|entry| std::future::ready(is_past(entry)));
        let entries = entries.map_ok(|entry| entry.key).try_collect::<Vec<_>>().await;
        let entries = entries.map_err(failed("list"))?;
        if self.rules.dry_run {
            return Ok(());
        }
        let deleted = self.store.delete_many(entries.iter().map(String::as_str)).await;
        for (entry, deleted) in entries.iter().zip(deleted) {
            if let Err(error) = deleted {
                swept.failure(entry, &error);
            }
        }
        Ok(())
    }
}

/// Groups directories into batches of at most `max_objects` objects; a larger directory is a batch of its own.
fn batches<'a>(
    selected: BTreeMap<&'a str, Vec<(&'a Item, Reason)>>,
    max_objects: usize,
) -> Vec<Vec<Selected<'a>>> {
    let mut batches = Vec::<Vec<Selected>>::new();
    let mut objects = 0;
    for selected in selected {
        objects += selected.1.len();
        match batches.last_mut() {
            Some(batch) if objects <= max_objects => batch.push(selected),
            _ => {
                objects = selected.1.len();
                batches.push(vec![selected]);
            }
        }
    }
    batches
}

fn item(object: Object) -> Option<Item> {
    let Object { key: path, size, modified } = object;
    Some(Item { key: Key::from_path(&path)?, path, modified, size })
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

fn reason_text(rules: &Rules, item: &Item, reason: Reason) -> String {
    let max_age = rules.max_age.get(&item.key.kind()).copied().unwrap_or_default();
    match reason {
        Reason::Run => format!("its run is past the last {}", rules.keep_runs.unwrap_or_default()),
        Reason::Age => format!("it is older than {}", shown(max_age)),
    }
}

fn shown(age: Duration) -> String {
    let age = jiff::SignedDuration::try_from(age).unwrap_or(jiff::SignedDuration::MAX);
    format!("{age:#}")
}
