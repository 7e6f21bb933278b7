//! Entries for runs that were stored before there was an index, or by somebody else.

use std::collections::{HashMap, HashSet};

use datastore_api::{Attempt, Name};
use futures::TryStreamExt as _;

use super::index::{entry, parse_entry};
use super::{Object, Store, StoreError, backend, index_prefix, parse};

/// The runs of one layer, with the greatest attempt and when its first file was put.
#[derive(Default)]
struct Layer {
    namespace: String,
    name: String,
    runs: HashMap<String, (Attempt, jiff::Timestamp)>,
}

impl Store {
    /// Makes the entries that are missing, and returns how many. Each bears the time at which the
    /// first file of the run's last attempt was put; to do it again makes none.
    ///
    /// It lists everything that is stored, and holds the runs of one layer in memory.
    pub async fn reindex(&self) -> Result<u64, StoreError> {
        let mut objects = self.list("layers/")?;
        let mut layer = Layer::default();
        let mut made = 0;
        while let Some(object) = objects.try_next().await? {
            let Some((namespace, name, run, attempt)) = place(&object) else { continue };
            if (namespace, name) != (&layer.namespace, &layer.name) {
                made += self.index_layer(&layer).await?;
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                layer = Layer { namespace, name, runs: HashMap::new() };
            }
            let latest = layer.runs.entry(run.to_owned()).or_insert((attempt, object.modified));
            if attempt > latest.0 {
                *latest = (attempt, object.modified);
            } else if attempt == latest.0 {
                latest.1 = latest.1.min(object.modified);
            }
        }
        Ok(made + self.index_layer(&layer).await?)
    }

    async fn index_layer(&self, layer: &Layer) -> Result<u64, StoreError> {
        if layer.runs.is_empty() {
            return Ok(0);
        }
        let prefix = parse(&index_prefix(&layer.namespace, &layer.name))?;
        let mut indexed = HashSet::new();
        let mut found = self.objects.list(Some(&prefix));
        while let Some(meta) = found.try_next().await.map_err(backend)? {
            let Some(name) = meta.location.filename() else { continue };
            match parse_entry(name) {
                Some((_, run)) if run.starts_with('-') => {
                    indexed.insert(run[1..].to_owned());
                }
                Some(_) => indexed.extend(self.entry_content(&prefix, name).await?),
                None => {}
            }
        }
        let mut made = 0;
        for (run, (_, started)) in &layer.runs {
            if !indexed.contains(run) {
                let started = u64::try_from(started.as_millisecond()).unwrap_or_default();
                let (name, content) = entry(started, run);
                let path = parse(&format!("{prefix}/{name}"))?;
                self.put_own(&path, content.into_bytes().into()).await?;
                made += 1;
            }
        }
        Ok(made)
    }
}

/// Namespace, layer, run and attempt of a file; none if it is not one of an attempt.
fn place(object: &Object) -> Option<(&str, &str, &str, Attempt)> {
    let mut parts = object.key.strip_prefix("layers/")?.splitn(5, '/');
    let [namespace, layer, run] = [parts.next()?, parts.next()?, parts.next()?];
    let attempt = parts.next()?.parse().ok()?;
    parts.next()?;
    let named = [namespace, layer, run].iter().all(|text| text.parse::<Name>().is_ok());
    named.then_some((namespace, layer, run, attempt))
}
