//! Pages of namespaces, and of the layers of a namespace.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use datastore_api::{Name, RunKey};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};

use crate::store::error::StoreError;
use crate::store::handle::Store;
use crate::store::key::{DOCUMENTS, INDEX, parse};
use crate::store::run_index::layers::names::FoundName;
use crate::store::run_index::layers::refresh::{Listed, MAX_SUMMARY, StoredSummary, summary_key};
use crate::store::run_index::layers::summary::Summary;

/// The most requests to a bucket for one page of layers.
const MAX_REQUESTS: usize = 60;
/// The most requests for what is known of a layer without a summary.
const READ: usize = 9;
/// The requests that show whether a run without a result still works.
const LIVE: usize = 2;
/// Layers that are read at the same time.
const PARALLEL: usize = 8;
/// How many bytes of statuses a page has, but for the last of them: it is built in memory.
const MAX_PAGE: usize = 1 << 20;
/// Namespaces of one request.
const NAMESPACES: usize = 1000;

/// A page.
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// The last name that was read, if there are more.
    pub(crate) next: Option<Name>,
}

/// A layer of a page.
struct LayerToRead<'a> {
    namespace: &'a Name,
    name: &'a Name,
    has_documents: bool,
}

/// Requests that are left.
struct Requests(AtomicUsize);

impl Requests {
    fn take(&self, number: usize) -> bool {
        let left = |left: usize| left.checked_sub(number);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}

impl Store {
    /// A page of the namespaces for which `is_shown` holds, in the order of their keys.
    pub(crate) async fn namespaces(
        &self,
        after: Option<Name>,
        limit: usize,
        is_shown: impl Fn(&Name) -> bool,
    ) -> Result<Page<Name>, StoreError> {
        let roots = ["layers", INDEX, DOCUMENTS].map(|root| root.trim_end_matches('/').to_owned());
        let mut names = self.names_below(roots, after, NAMESPACES);
        let mut page = Page { items: Vec::new(), next: None };
        while let Some(FoundName { name, .. }) = names.next().await? {
            if !is_shown(&name) || !self.has_any(&name).await? {
                continue;
            }
            if page.items.len() == limit {
                page.next = page.items.last().cloned();
                break;
            }
            page.items.push(name);
        }
        Ok(page)
    }

    /// Whether there is anything in a namespace that was listed. A directory may be empty.
    async fn has_any(&self, namespace: &Name) -> Result<bool, StoreError> {
        if self.disk.is_none() {
            return Ok(true);
        }
        for root in ["layers/", INDEX, DOCUMENTS] {
            if self.has_objects(&parse(&format!("{root}{namespace}"))?).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A page of the layers of a namespace that have a run or a status, in the order of their keys. It is shorter than asked
    /// for where it would need more than [`MAX_REQUESTS`] to a bucket.
    pub(crate) async fn layers(
        &self,
        namespace: &Name,
        after: Option<Name>,
        limit: usize,
    ) -> Result<Page<(Name, Summary)>, StoreError> {
        let roots = ["layers/", INDEX, DOCUMENTS].map(|root| format!("{root}{namespace}"));
        // No page of a bucket has more.
        let limit = if self.pages.is_some() { limit.min(MAX_REQUESTS) } else { limit };
        let mut names = self.names_below(roots, after, limit + 2);
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(name) = names.next().await?
        {
            found.push(name);
        }
        let mut has_more = names.next().await?.is_some();
        let mut used = names.requests;
        let mut listed = HashMap::new();
        if let (Some(first), Some(last)) = (found.first(), found.last()) {
            let (of_layers, requests) =
                self.listed_summaries(namespace, &first.name, &last.name).await?;
            listed.extend(of_layers);
            used += requests;
        }
        let left = MAX_REQUESTS.saturating_sub(used).max(READ + LIVE);
        let left = Requests(AtomicUsize::new(left));
        let mut reads = Vec::with_capacity(found.len());
        for FoundName { name, is_below } in &found {
            let has_documents = is_below.get(2).copied().unwrap_or_default();
            let layer = LayerToRead { namespace, name, has_documents };
            let listed = listed.get(name).cloned().unwrap_or_default();
            reads.push(self.layer_summary(layer, listed, &left).boxed());
        }
        // The first layer is read alone: the others could use up its requests, and an empty page would end the listing.
        let mut reads = reads.into_iter();
        let first = match reads.next() {
            Some(read) => Some(read.await?),
            None => None,
        };
        let others = stream::iter(reads).buffered(PARALLEL);
        let mut reads = std::pin::pin!(stream::iter(first.map(Ok)).chain(others));
        let (mut items, mut last, mut size) = (Vec::new(), None, 0);
        for FoundName { name, .. } in &found {
            if size >= MAX_PAGE {
                has_more = true;
                break;
            }
            let Some(Some(summary)) = reads.try_next().await? else {
                has_more = true;
                break;
            };
            size += summary.size;
            last = Some(name.clone());
            if !summary.is_empty() {
                items.push((name.clone(), summary));
            }
        }
        Ok(Page { items, next: last.filter(|_| has_more) })
    }

    /// What is known of a layer; `None` if too few requests are left.
    async fn layer_summary(
        &self,
        layer: LayerToRead<'_>,
        listed: Listed,
        left: &Requests,
    ) -> Result<Option<Summary>, StoreError> {
        let LayerToRead { namespace, name, has_documents } = layer;
        if self.pages.is_none() {
            return self.read_summary(namespace, name, has_documents).await.map(Some);
        }
        let mut stored = None;
        if let (Some(changed), true) = (&listed.changed, listed.has_summary) {
            if !left.take(1) {
                return Ok(None);
            }
            let read = self.small(&summary_key(namespace, name), MAX_SUMMARY).await;
            stored = match read {
                Ok(json) => json.and_then(|json| StoredSummary::parse(&json, changed)),
                Err(error) if error.is_of_object() || matches!(error, StoreError::NotFound) => None,
                Err(error) => return Err(error),
            };
        }
        if let Some(summary) = stored {
            return self.with_live_state(namespace, name, summary, left).await;
        }
        if !left.take(READ) {
            return Ok(None);
        }
        if listed.changed.is_none() {
            // Of another program, or an earlier version. Its summary can be stored once this version is listed.
            self.mark_changed(namespace, name).await?;
        }
        let summary = self.read_summary(namespace, name, has_documents).await?;
        if let Some(changed) = listed.changed {
            self.store_summary(namespace, name, changed, &summary).await?;
        }
        Ok(Some(summary))
    }

    /// A stored summary, with what changes by itself: whether a run without a result works.
    async fn with_live_state(
        &self,
        namespace: &Name,
        layer: &Name,
        mut summary: Summary,
        left: &Requests,
    ) -> Result<Option<Summary>, StoreError> {
        let Some(last) = summary.last_run.as_mut().filter(|last| last.live.is_some()) else {
            return Ok(Some(summary));
        };
        if !left.take(LIVE) {
            return Ok(None);
        }
        if let Ok(run) = last.run.parse() {
            let run = RunKey { namespace: namespace.clone(), layer: layer.clone(), run };
            last.live = self.live_state(&run, last.attempt).await?;
        }
        Ok(Some(summary))
    }
}
