//! `gc`: lists the objects, selects the expired ones by [`Rules`], lists these again, and deletes them.
//!
//! The datastore may serve meanwhile. Selected objects are listed a second time right before they are deleted, and a
//! run that has changed is kept, as is one with an attempt at work. An upload that begins after that writes an object of its own, and the index entry of
//! its run is too young to be deleted.
//!
//! In a bucket, several layers and repositories are swept at the same time, and one request deletes many objects. The
//! output keeps the order of the keys.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::time::Duration;

use datastore_api::{File, HumanDuration, PlanFormat};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::gc::context::{Context, Lists, LiveObjects, Swept, failed};
use crate::cli::gc::select::{Item, Reason, Rules};
use crate::cli::gc::states::APPLIED;
use crate::store::{INDEX, Key, Object, RunSet, Store, StoreError};
use crate::transport::limits::Size;

/// The age from which the index entry of a run without objects is deleted. A younger one may belong to an upload in
/// progress.
const UNUSED_ENTRY_AGE: Duration = Duration::from_hours(24);

/// Times of encrypted objects of a layer or repository that are read at the same time.
const PARALLEL_READS: usize = 16;

/// How much is done at the same time.
#[derive(Clone, Copy)]
struct Parallelism {
    /// Layers and repositories.
    owners: usize,
    /// Batches of one layer or repository.
    batches: usize,
    /// Objects in a batch. A batch has more if one directory has more.
    batch_size: usize,
}

impl Parallelism {
    /// A bucket has high latency, and deletes many objects in one request.
    const BUCKET: Self = Self { owners: 8, batches: 4, batch_size: 1000 };
    /// Listing a directory again costs nothing. Each deletion waits for the disk and for another thread, so several
    /// are in flight.
    const DIRECTORY: Self = Self { owners: 1, batches: 8, batch_size: 1 };
}

/// The selected objects of one directory: of one run, or of one ref.
type Selected<'a> = (&'a str, Vec<(&'a Item, Reason)>);

/// One layer or repository.
struct Owner<'a> {
    context: Context<'a>,
    parallelism: Parallelism,
    /// The first three parts of the keys of its items.
    path: &'a str,
    items: &'a [Item],
}

pub(in crate::cli) async fn sweep(
    store: &Store,
    rules: &Rules,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let now = store.now().await.map_err(failed("read the storage's clock"))?;
    let parallelism = if store.is_bucket() { Parallelism::BUCKET } else { Parallelism::DIRECTORY };
    let mut total = Swept::default();
    let none = HashSet::new();
    let nothing = LiveObjects::default();
    let no_lists = Lists::default();
    let (live, lists) = (&nothing, &no_lists);
    let context =
        Context { store, rules, now, kept_records: &none, damaged_states: &none, live, lists };
    let live = context.complete_logs(&mut total).await?;
    let lists = context.lists().await?;
    let context = Context { live: &live, lists: &lists, ..context };
    // States come first: the record of an apply shows which version is good.
    let states = stream::iter(context.layers_with_states().await?);
    let swept = states.map(|layer| context.sweep_states(layer)).buffered(parallelism.owners);
    print_all(swept, &mut total, out).await?;
    let kept_records = std::mem::take(&mut total.kept_records);
    let damaged_states = std::mem::take(&mut total.damaged_states);
    let context =
        Context { kept_records: &kept_records, damaged_states: &damaged_states, ..context };
    for root in ["layers/", "repositories/"] {
        let owners = owners(store, root)?.map(async |items| {
            let items = items?;
            let path = items.first().map_or("", |first| owner(&first.path));
            Owner { context, parallelism, path, items: &items }.sweep().await
        });
        print_all(owners.buffered(parallelism.owners), &mut total, out).await?;
    }
    context.delete_approvals(&mut total).await?;
    let others = context.delete_of_layers_without_artifacts(&total.layers).await?;
    out.write_all(others.text.as_bytes())?;
    total.add(others);
    let verb = if rules.dry_run { "would be deleted" } else { "deleted" };
    let Swept { listed, deleted, bytes, failed, .. } = total;
    writeln!(out, "{deleted} of {listed} artifacts {verb}, {}", Size(bytes))?;
    match (failed, damaged_states.len()) {
        (0, 0) => Ok(()),
        (0, damaged) => Err(CommandError::DamagedStates(damaged)),
        (failed, _) => Err(CommandError::Undeleted(failed)),
    }
}

/// Prints the results in their order, and adds them up.
async fn print_all(
    swept: impl Stream<Item = Result<Swept, CommandError>>,
    total: &mut Swept,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    let mut swept = std::pin::pin!(swept);
    while let Some(swept) = swept.try_next().await? {
        out.write_all(swept.text.as_bytes())?;
        let (text, removed_directories) = (String::new(), HashSet::new());
        let removed_plans = HashSet::new();
        total.add(Swept { text, removed_directories, removed_plans, ..swept });
    }
    Ok(())
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
    async fn sweep(&self) -> Result<Swept, CommandError> {
        let mut total = Swept { listed: self.items.len(), ..Swept::default() };
        let mut selected = BTreeMap::<&str, Vec<(&Item, Reason)>>::new();
        let Context { rules, now, .. } = self.context;
        // Nothing is deleted through a link: its file may be in use by another key, or not be the datastore's. Its time is that
        // of the other file, so it is not the newest of this layer, either.
        let is_own = |item: &&Item| !self.context.store.is_linked(&item.path);
        let own = if self.items.iter().all(|item| is_own(&item)) {
            Cow::Borrowed(self.items)
        } else {
            self.items.iter().filter(is_own).cloned().collect()
        };
        // Asked after the listing: an encryption may have begun since `gc` did.
        let own = if !rules.select(&own, now).is_empty() && self.has_rewritten_objects().await? {
            Cow::Owned(self.with_written_times(&own).await?)
        } else {
            own
        };
        let expired = rules.select(&own, now);
        let layer = self.path.strip_prefix("layers/");
        let working = match layer {
            Some(layer) if !expired.is_empty() => {
                self.context.working_runs(layer, self.items).await?
            }
            _ => HashSet::new(),
        };
        let has_damaged_states =
            layer.is_some_and(|layer| self.context.damaged_states.contains(layer));
        let is_kept = |item: &Item| {
            working.contains(group(item))
                || self.context.kept_records.contains(&item.path)
                || has_damaged_states && is_applied_record(item)
        };
        for (item, reason) in expired.into_iter().filter(|(item, _)| !is_kept(item)) {
            selected.entry(group(item)).or_default().push((item, reason));
        }
        let known = self.items.iter().map(|item| (&*item.path, item.modified)).collect();
        let batches = batches(selected, self.parallelism.batch_size);
        let mut swept = stream::iter(&batches)
            .map(|batch| self.sweep_batch(batch, &known))
            .buffered(self.parallelism.batches);
        while let Some(swept) = swept.try_next().await? {
            total.add(swept);
        }
        if let Some(layer) = layer {
            total.layers.insert(layer.to_owned());
            if !total.removed_directories.is_empty() {
                // An attempt may have begun since the files of its run were listed.
                let working = self.context.working_runs(layer, self.items).await?;
                total.removed_directories.retain(|directory| !working.contains(directory));
            }
            self.delete_entries(layer, &mut total).await?;
            self.context.delete_claims(layer, self.items, &mut total).await?;
            self.context.delete_applied(layer, self.items, &mut total).await?;
            self.context.delete_live(layer, self.items, &mut total).await?;
            self.context.tidy_lists(layer, self.items, &mut total).await;
        }
        Ok(total)
    }

    /// Whether encryption has replaced objects of the bucket, so that listings do not have their times.
    async fn has_rewritten_objects(&self) -> Result<bool, CommandError> {
        let found = self.context.store.has_rewritten_objects().await;
        found.map_err(failed("look for encrypted objects"))
    }

    /// The items with the times at which their contents were stored.
    async fn with_written_times(&self, items: &[Item]) -> Result<Vec<Item>, CommandError> {
        let times = stream::iter(items).map(async |item| {
            let Item { path: key, size, modified, .. } = item.clone();
            let written = self.context.store.written(&Object { key, size, modified }).await;
            let written = written.map_err(failed("read the time of an encrypted object"))?;
            Ok(Item { written, ..item.clone() })
        });
        times.buffered(PARALLEL_READS).try_collect().await
    }

    /// Deletes the selected objects of some directories, unless the directory has changed since it was listed.
    async fn sweep_batch(
        &self,
        batch: &[Selected<'_>],
        known: &HashMap<&str, Timestamp>,
    ) -> Result<Swept, CommandError> {
        let directories = batch.iter().map(|(directory, _)| *directory).collect::<Vec<_>>();
        let listed = self.context.store.list_directories(self.path, &directories).await;
        let listed = listed.map_err(failed("list"))?;
        let is_new = |object: &&Object| {
            Key::from_path(&object.key).is_some()
                && known.get(&*object.key) != Some(&object.modified)
        };
        let mut swept = Swept::default();
        let mut unchanged = Vec::new();
        for selected @ (directory, _) in batch {
            if listed.iter().any(|object| object.key.starts_with(directory) && is_new(&object)) {
                swept.line(&format!("kept {directory}: it has changed meanwhile"));
            } else {
                unchanged.push(selected);
            }
        }
        let deleted = self.delete(&unchanged, known, &mut swept).await;
        for (directory, deleted) in deleted {
            let listed = listed.iter().filter(|object| object.key.starts_with(directory));
            if listed.count() == deleted {
                swept.removed_directories.insert(directory.to_owned());
            }
        }
        Ok(swept)
    }

    /// Deletes the selected objects, and returns how many were deleted in each directory.
    async fn delete<'b>(
        &self,
        selected: &[&Selected<'b>],
        known: &HashMap<&str, Timestamp>,
        swept: &mut Swept,
    ) -> HashMap<&'b str, usize> {
        let items = selected.iter().flat_map(|(_, items)| items).collect::<Vec<_>>();
        let objects = items.iter().map(|(item, _)| {
            let Item { path: key, size, modified, .. } = (*item).clone();
            Object { key, size, modified }
        });
        let objects = objects.collect::<Vec<_>>();
        let results = if self.context.rules.dry_run {
            objects.iter().map(|_| Ok(true)).collect()
        } else {
            let known = |key: &str| known.contains_key(key);
            self.context.store.delete_listed(self.path, &objects, known).await
        };
        let mut deleted = HashMap::new();
        for ((item, reason), result) in items.into_iter().zip(results) {
            match result {
                Ok(false) => swept.line(&format!("kept {}: it has changed meanwhile", item.path)),
                Ok(true) | Err(StoreError::RecordLeft(_)) => {
                    *deleted.entry(group(item)).or_default() += 1;
                    swept.deleted += 1;
                    swept.bytes += item.size;
                    if let Key::File(run, attempt, File::Plan(PlanFormat::Json)) = &item.key {
                        swept.removed_plans.insert((run.clone(), *attempt));
                    }
                    let verb = if self.context.rules.dry_run { "would delete" } else { "deleted" };
                    let why = why(self.context.rules, item, *reason);
                    swept.line(&format!("{verb} {} ({why})", item.path));
                    if let Err(error) = &result {
                        swept.failure(&item.path, error);
                    }
                }
                Err(error) => swept.failure(&item.path, &error),
            }
        }
        deleted
    }

    /// Deletes the index entries of a layer's runs that have no objects.
    async fn delete_entries(&self, layer: &str, swept: &mut Swept) -> Result<(), CommandError> {
        let (mut kept_runs, mut removed_runs) = (RunSet::default(), RunSet::default());
        for run in self.context.live.runs(layer) {
            if !swept.removed_directories.contains(&format!("layers/{run}/")) {
                kept_runs.insert(run);
            }
        }
        let runs = self.items.iter().map(|item| (group(item), &item.key));
        for (directory, key) in runs.collect::<HashMap<_, _>>() {
            if let Key::File(run, ..) = key {
                let is_removed = swept.removed_directories.contains(directory);
                if is_removed { &mut removed_runs } else { &mut kept_runs }.insert(run);
            }
        }
        let min_age = self.context.rules.min_age;
        let is_expired = |entry: &Object| {
            // `reindex` writes new entries for old runs; the name of an entry has the time of its run.
            let (began, min_age) = match entry.run_started() {
                Some(began) if removed_runs.contains(entry) => (began.min(entry.modified), min_age),
                _ => (entry.modified, min_age.max(UNUSED_ENTRY_AGE)),
            };
            let age = Duration::try_from(self.context.now.duration_since(began));
            !kept_runs.contains(entry) && entry.is_run_entry() && age.unwrap_or_default() >= min_age
        };
        let entries =
            self.context.store.list(&format!("{INDEX}{layer}/")).map_err(failed("list"))?;
        let entries = entries.try_filter(|entry| {
            let is_deleted = is_expired(entry) && !self.context.store.is_linked(&entry.key);
            std::future::ready(is_deleted)
        });
        let entries = entries.map_ok(|entry| entry.key).try_collect::<Vec<_>>().await;
        let entries = entries.map_err(failed("list"))?;
        if self.context.rules.dry_run {
            return Ok(());
        }
        let deleted = self.context.store.delete_many(entries.iter().map(String::as_str)).await;
        for (entry, deleted) in entries.iter().zip(deleted) {
            if let Err(error) = deleted {
                swept.failure(entry, &error);
            }
        }
        Ok(())
    }
}

/// Groups directories into batches of at most `batch_size` objects. A directory with more is a batch of its own.
fn batches<'a>(
    selected: BTreeMap<&'a str, Vec<(&'a Item, Reason)>>,
    batch_size: usize,
) -> Vec<Vec<Selected<'a>>> {
    let mut batches = Vec::<Vec<Selected>>::new();
    let mut objects = 0;
    for directory in selected {
        objects += directory.1.len();
        match batches.last_mut() {
            Some(batch) if objects <= batch_size => batch.push(directory),
            _ => {
                objects = directory.1.len();
                batches.push(vec![directory]);
            }
        }
    }
    batches
}

fn item(object: Object) -> Option<Item> {
    let Object { key: path, size, modified } = object;
    Some(Item { key: Key::from_path(&path)?, path, modified, written: modified, size })
}

/// The layer, or the repository: the first three parts of a path.
fn owner(path: &str) -> &str {
    path.match_indices('/').nth(2).map_or(path, |(end, _)| &path[..end])
}

/// The directory of a run with its `/`, or that of a ref.
fn group(item: &Item) -> &str {
    let end = match item.key {
        Key::File(..) => item.path.match_indices('/').nth(3),
        _ => item.path.rmatch_indices('/').next(),
    };
    end.map_or(&item.path, |(end, _)| &item.path[..=end])
}

/// Whether it is the record beside the files of a run that its apply has succeeded.
fn is_applied_record(item: &Item) -> bool {
    matches!(&item.key, Key::File(.., file) if file.name() == APPLIED)
}

fn why(rules: &Rules, item: &Item, reason: Reason) -> String {
    let max_age = rules.max_age.get(&item.key.kind()).copied().unwrap_or_default();
    match reason {
        Reason::Run => {
            format!("its run is not one of the last {}", rules.keep_runs.unwrap_or_default())
        }
        Reason::Age => format!("it is older than {}", HumanDuration(max_age)),
    }
}
