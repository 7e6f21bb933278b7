//! `gc`: lists, lets [`Rules`] choose, lists again, and deletes.
//!
//! It is safe beside traffic. What is chosen is listed a second time right before it is deleted, and a run that
//! has changed since stays. An upload that begins in that moment writes an object of its own, and its run's
//! entry in the index is younger than any that is deleted.
//!
//! In a bucket several layers and repositories are swept at once, and one request deletes many objects. What is
//! printed keeps the order of the keys.

mod claims;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::time::Duration;

use datastore_api::chain;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;

use crate::cli::commands::CommandError;
use crate::cli::gc::select::{Item, Reason, Rules};
use crate::store::{INDEX, Key, KnownRuns, Object, Store, StoreError};
use crate::transport::limits::Size;

/// An entry of a run without any object may be that of an upload in progress; none takes longer.
const UPLOADING: Duration = Duration::from_hours(24);
/// How much is done at once.
#[derive(Clone, Copy)]
struct Pace {
    /// Layers and repositories.
    owners: usize,
    /// Batches of one of them.
    batches: usize,
    /// Objects in a batch, unless one directory has more.
    batch: usize,
}

impl Pace {
    /// A bucket answers slowly, and deletes many objects by one request.
    const BUCKET: Self = Self { owners: 8, batches: 4, batch: 1000 };
    /// A directory is listed again at no cost right before it is emptied. Each deletion waits for the disk and for
    /// another thread, so many are under way.
    const DIRECTORY: Self = Self { owners: 1, batches: 8, batch: 1 };
}

/// What the command has done so far.
#[derive(Default)]
struct Swept {
    /// What is printed.
    text: String,
    seen: usize,
    gone: usize,
    bytes: u64,
    failed: usize,
    /// Directories of which nothing is left.
    emptied: HashSet<String>,
    /// The layers that had artifacts: `<namespace>/<layer>`.
    layers: HashSet<String>,
}

/// What is chosen below one directory: of one run, or of one ref.
type Chosen<'a> = (&'a str, Vec<(&'a Item, Reason)>);

/// One layer or repository, and how it is swept.
struct Owner<'a> {
    store: &'a Store,
    rules: &'a Rules,
    now: Timestamp,
    pace: Pace,
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
    let pace = if store.is_bucket() { Pace::BUCKET } else { Pace::DIRECTORY };
    let mut total = Swept::default();
    for root in ["layers/", "repositories/"] {
        let owners = owners(store, root)?.map(async |items| {
            let items = items?;
            let path = items.first().map_or("", |first| owner(&first.path));
            Owner { store, rules, now, pace, path, items: &items }.sweep().await
        });
        let mut swept = std::pin::pin!(owners.buffered(pace.owners));
        while let Some(swept) = swept.try_next().await? {
            out.write_all(swept.text.as_bytes())?;
            total.add(Swept { text: String::new(), emptied: HashSet::new(), ..swept });
        }
    }
    let beside = claims::of_layers_without_artifacts(store, rules, now, &total.layers).await?;
    out.write_all(beside.text.as_bytes())?;
    total.add(beside);
    let verb = if rules.dry_run { "would be deleted" } else { "deleted" };
    let Swept { seen, gone, bytes, failed, .. } = total;
    writeln!(out, "{gone} of {seen} artifacts {verb}, {}", Size(bytes))?;
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
    async fn sweep(&self) -> Result<Swept, CommandError> {
        let mut total = Swept { seen: self.items.len(), ..Swept::default() };
        let mut chosen = BTreeMap::<&str, Vec<(&Item, Reason)>>::new();
        for (item, reason) in self.rules.choose(self.items, self.now) {
            chosen.entry(group(item)).or_default().push((item, reason));
        }
        let known = self.items.iter().map(|item| (&*item.path, item.modified)).collect();
        let batches = batches(chosen, self.pace.batch);
        let mut swept = stream::iter(&batches)
            .map(|batch| self.sweep_batch(batch, &known))
            .buffered(self.pace.batches);
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

    /// Deletes what is chosen below some directories, if it has not changed since it was listed.
    async fn sweep_batch(
        &self,
        batch: &[Chosen<'_>],
        known: &HashMap<&str, Timestamp>,
    ) -> Result<Swept, CommandError> {
        let directories = batch.iter().map(|(directory, _)| *directory).collect::<Vec<_>>();
        let listed = self.store.list_directories(self.path, &directories).await;
        let listed = listed.map_err(failed("list"))?;
        let is_new = |object: &&Object| {
            Key::at(&object.key).is_some() && known.get(&*object.key) != Some(&object.modified)
        };
        let mut swept = Swept::default();
        let mut unchanged = Vec::new();
        for chosen @ (directory, _) in batch {
            if listed.iter().any(|object| object.key.starts_with(directory) && is_new(&object)) {
                swept.line(&format!("kept {directory}: it has changed meanwhile"));
            } else {
                unchanged.push(chosen);
            }
        }
        let gone = self.delete(&unchanged, &mut swept).await;
        for (directory, gone) in gone {
            let listed = listed.iter().filter(|object| object.key.starts_with(directory));
            if listed.count() == gone {
                swept.emptied.insert(directory.to_owned());
            }
        }
        Ok(swept)
    }

    /// Deletes these, and returns how many are gone of each directory.
    async fn delete<'b>(
        &self,
        chosen: &[&Chosen<'b>],
        swept: &mut Swept,
    ) -> HashMap<&'b str, usize> {
        let items = chosen.iter().flat_map(|(_, items)| items).collect::<Vec<_>>();
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
                    swept.gone += 1;
                    swept.bytes += item.size;
                    let verb = if self.rules.dry_run { "would delete" } else { "deleted" };
                    let why = why(self.rules, item, *reason);
                    swept.line(&format!("{verb} {} ({why})", item.path));
                }
                Err(error) => swept.failure(&item.path, &error),
            }
        }
        gone
    }

    /// Deletes the index entries of a layer's runs that have no object any more.
    async fn delete_entries(&self, layer: &str, swept: &mut Swept) -> Result<(), CommandError> {
        let (mut left, mut emptied) = (KnownRuns::default(), KnownRuns::default());
        let runs = self.items.iter().map(|item| (group(item), &item.key));
        for (directory, key) in runs.collect::<HashMap<_, _>>() {
            if let Key::File(run, ..) = key {
                let runs = if swept.emptied.contains(directory) { &mut emptied } else { &mut left };
                runs.insert(run);
            }
        }
        let min_age = self.rules.min_age;
        let is_past = |entry: &Object| {
            // `reindex` makes young entries of old runs: an entry's name has the time of its run.
            let (began, patience) = match entry.run_began() {
                Some(began) if emptied.has(entry) => (began.min(entry.modified), min_age),
                _ => (entry.modified, min_age.max(UPLOADING)),
            };
            let age = Duration::try_from(self.now.duration_since(began));
            !left.has(entry) && entry.is_of_a_run() && age.unwrap_or_default() >= patience
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

impl Swept {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn failure(&mut self, path: &str, error: &StoreError) {
        self.failed += 1;
        self.line(&format!("could not delete {path}: {}", chain(error)));
    }

    fn add(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.seen += other.seen;
        self.gone += other.gone;
        self.bytes += other.bytes;
        self.failed += other.failed;
        self.emptied.extend(other.emptied);
        self.layers.extend(other.layers);
    }
}

/// Directories together, of at most so many objects unless one has more.
fn batches<'a>(
    chosen: BTreeMap<&'a str, Vec<(&'a Item, Reason)>>,
    most: usize,
) -> Vec<Vec<Chosen<'a>>> {
    let mut batches = Vec::<Vec<Chosen>>::new();
    let mut objects = 0;
    for chosen in chosen {
        objects += chosen.1.len();
        match batches.last_mut() {
            Some(batch) if objects <= most => batch.push(chosen),
            _ => {
                objects = chosen.1.len();
                batches.push(vec![chosen]);
            }
        }
    }
    batches
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

fn failed(what: &'static str) -> impl Fn(StoreError) -> CommandError {
    move |error| CommandError::Storage(what, error)
}
