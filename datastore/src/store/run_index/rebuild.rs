//! Writes missing index entries of runs, for example of runs that another program has stored.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write as _};

use datastore_api::{Attempt, Name};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use object_store::path::Path;

use crate::store::backend::directory::dirs::make_parents;
use crate::store::backend::directory::files::open_file;
use crate::store::backend::metered::COMPLETION_TIMEOUT;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{index_prefix, parse, random};
use crate::store::object::Object;
use crate::store::run_index::entry::{entry, parse_entry};

/// Layers in parallel.
const LAYERS: usize = 8;
/// Entries of a layer in parallel.
const ENTRIES: usize = 16;

/// The runs of a layer: the greatest attempt, and when its first file was stored.
#[derive(Default)]
struct Layer {
    namespace: String,
    name: String,
    runs: HashMap<String, (Attempt, jiff::Timestamp)>,
}

impl Store {
    /// Writes missing entries, and returns how many. An entry has the time of the first file of the run's last
    /// attempt. A second call writes none.
    ///
    /// It lists the whole storage, and holds the runs of [`LAYERS`] layers in memory.
    pub async fn reindex(&self) -> Result<u64, StoreError> {
        let made = layers(self.list("layers/")?.fuse())
            .map(async |layer| self.index_layer(&layer?).await)
            .buffer_unordered(LAYERS);
        made.try_fold(0, async |sum, made| Ok(sum + made)).await
    }

    async fn index_layer(&self, layer: &Layer) -> Result<u64, StoreError> {
        let prefix = parse(&index_prefix(&layer.namespace, &layer.name))?;
        let mut indexed = HashSet::new();
        let mut named_by_content = Vec::new();
        let mut found = self.objects.list(Some(&prefix));
        while let Some(meta) = found.try_next().await.map_err(backend_error)? {
            let Some(name) = meta.location.filename() else { continue };
            match parse_entry(name) {
                Some((_, run)) if run.starts_with('-') => {
                    indexed.insert(run[1..].to_owned());
                }
                Some(_) => named_by_content.push(name.to_owned()),
                None => {}
            }
        }
        let mut runs = stream::iter(&named_by_content)
            .map(|name| self.entry_content(&prefix, name))
            .buffer_unordered(ENTRIES);
        while let Some(run) = runs.try_next().await? {
            indexed.extend(run);
        }
        let missing = layer.runs.iter().filter(|(run, _)| !indexed.contains(*run));
        let missing = missing.collect::<Vec<_>>();
        // Asked after the listing: the marker is written before the first object is replaced.
        let has_rewritten = !missing.is_empty() && self.has_rewritten_objects().await?;
        let entries = stream::iter(missing).map(async |(run, (attempt, listed))| {
            let written =
                if has_rewritten { self.began(layer, run, *attempt).await? } else { None };
            let started = written.unwrap_or(*listed).as_millisecond();
            Ok::<_, StoreError>(entry(u64::try_from(started).unwrap_or_default(), run))
        });
        let entries = entries.buffered(ENTRIES).try_collect::<Vec<_>>().await?;
        let made = entries.len() as u64;
        self.put_entries(&prefix, entries).await?;
        if made > 0
            && let (Ok(namespace), Ok(name)) = (layer.namespace.parse(), layer.name.parse())
        {
            self.mark_changed(&namespace, &name).await?;
        }
        Ok(made)
    }

    /// When the first file of an attempt was stored, also if it was encrypted later; `None` if it has none any more.
    async fn began(
        &self,
        Layer { namespace, name, .. }: &Layer,
        run: &str,
        attempt: Attempt,
    ) -> Result<Option<jiff::Timestamp>, StoreError> {
        let mut first = None;
        let mut files = self.list(&format!("layers/{namespace}/{name}/{run}/"))?;
        while let Some(file) = files.try_next().await? {
            if parse_path(&file).is_some_and(|(.., of)| of == attempt) {
                let written = self.written(&file).await?;
                first = Some(first.map_or(written, |first| written.min(first)));
            }
        }
        Ok(first)
    }

    async fn put_entries(
        &self,
        prefix: &Path,
        entries: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        if let Some(disk) = &self.disk {
            let location = prefix.clone();
            let write = move |root: &std::path::Path| {
                write_entries(root, &root.join(location.as_ref()), &entries)
            };
            return disk
                .run_job("put", COMPLETION_TIMEOUT, prefix, write)
                .await
                .map_err(backend_error);
        }
        let puts = stream::iter(entries).map(async |(name, content)| {
            self.put_internal(&parse(&format!("{prefix}/{name}"))?, content.into_bytes().into())
                .await
        });
        puts.buffer_unordered(ENTRIES).try_collect().await
    }
}

/// Groups a listing, in the order of its keys, by layer.
fn layers(
    objects: impl Stream<Item = Result<Object, StoreError>> + Unpin,
) -> impl Stream<Item = Result<Layer, StoreError>> {
    stream::try_unfold((objects, None::<Object>), async |(mut objects, mut first)| {
        let mut layer = Layer::default();
        loop {
            let object = match first.take() {
                Some(object) => object,
                None => match objects.try_next().await? {
                    Some(object) => object,
                    None => break,
                },
            };
            let Some((namespace, name, run, attempt)) = parse_path(&object) else { continue };
            if layer.runs.is_empty() {
                (layer.namespace, layer.name) = (namespace.to_owned(), name.to_owned());
            } else if (namespace, name) != (&layer.namespace, &layer.name) {
                return Ok(Some((layer, (objects, Some(object)))));
            }
            let latest = layer.runs.entry(run.to_owned()).or_insert((attempt, object.modified));
            if attempt > latest.0 {
                *latest = (attempt, object.modified);
            } else if attempt == latest.0 {
                latest.1 = latest.1.min(object.modified);
            }
        }
        Ok((!layer.runs.is_empty()).then_some((layer, (objects, None))))
    })
}

/// Writes entries into a directory with a single `fsync`: the next `reindex` writes what a power failure takes. An
/// entry with content is renamed when it is complete.
fn write_entries(
    root: &std::path::Path,
    directory: &std::path::Path,
    entries: &[(String, String)],
) -> io::Result<()> {
    make_parents(root, &directory.join("entry"))?;
    for (name, content) in entries {
        let path = directory.join(name);
        if content.is_empty() {
            open_file(&path, std::fs::File::options().write(true).create(true).truncate(true))?;
            continue;
        }
        let staged = directory.join(format!("{name}#{}", random()));
        let mut file = std::fs::File::create(&staged)?;
        file.write_all(content.as_bytes())?;
        file.sync_data()?;
        std::fs::rename(staged, path)?;
    }
    std::fs::File::open(directory)?.sync_all()
}

/// Namespace, layer, run and attempt of a file; `None` if it does not belong to an attempt.
fn parse_path(object: &Object) -> Option<(&str, &str, &str, Attempt)> {
    let mut parts = object.key.strip_prefix("layers/")?.splitn(5, '/');
    let [namespace, layer, run] = [parts.next()?, parts.next()?, parts.next()?];
    let attempt = parts.next()?.parse().ok()?;
    parts.next()?;
    let named = [namespace, layer, run].iter().all(|text| text.parse::<Name>().is_ok());
    named.then_some((namespace, layer, run, attempt))
}
