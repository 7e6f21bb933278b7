//! Keeps the summaries of layers in a bucket.
//!
//! Each write that outdates a summary replaces an object beside it, before it is answered. A summary names the version of that
//! object that was there before its sources were read, so one that was made meanwhile, or by another replica, is never taken for
//! a newer one. An outdated summary is made again by the replica that took the write, a second later, or by a reader.

use bytes::Bytes;
use datastore_api::document::STATUS;
use datastore_api::{DocumentKey, File, Name, PlanFormat, RunKey, chain};
use futures::stream;
use object_store::list::PaginatedListOptions;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{Key, SUMMARIES, parse, random};
use crate::store::run_index::layers::summary::{RECORD, Summary};
use crate::store::write::conditions::PutConditions;

/// The names of a summary, and of the object that changes with each write.
pub(super) const SUMMARY: &str = "summary.json";
pub(super) const CHANGED: &str = "changed";
/// The version of the format of a summary.
const VERSION: u32 = 1;
/// The largest summary that is read.
pub(super) const MAX_SUMMARY: u64 = 512 << 10;

/// A stored summary.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredSummary {
    version: u32,
    /// The version of the object beside it when its sources were read.
    changed: String,
    summary: Summary,
}

/// What a listing shows beside the summary of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    /// The version of the object that changes with each write.
    pub(super) changed: Option<String>,
    pub(super) has_summary: bool,
}

impl StoredSummary {
    /// The summary in these bytes, if it is of this version of the object beside it.
    pub(super) fn parse(json: &[u8], changed: &str) -> Option<Summary> {
        let stored = serde_json::from_slice::<Self>(json).ok()?;
        let is_current = stored.version == VERSION && stored.changed == changed;
        is_current.then_some(Summary { size: json.len(), ..stored.summary })
    }
}

/// The key of the summary of a layer.
pub(super) fn summary_key(namespace: &Name, layer: &Name) -> Key {
    Key::Summary(namespace.clone(), layer.clone())
}

impl Store {
    /// Records that an object was stored or deleted, if a summary shows it.
    pub(in crate::store) async fn note_change(&self, key: &Key) -> Result<(), StoreError> {
        match key {
            Key::File(run, _, File::Plan(PlanFormat::Short)) => {
                self.layer_changed(&run.namespace, &run.layer).await
            }
            Key::File(run, _, File::Other(name)) if name.as_ref() == RECORD => {
                self.layer_changed(&run.namespace, &run.layer).await
            }
            Key::Document(DocumentKey { namespace, layer, name }) if name.as_ref() == STATUS => {
                self.layer_changed(namespace, layer).await
            }
            _ => Ok(()),
        }
    }

    /// Records that a run of a layer was added or removed. Its summary is made again when it has a result, or by a reader.
    pub(in crate::store) async fn note_run(&self, run: &RunKey) -> Result<(), StoreError> {
        self.mark_changed(&run.namespace, &run.layer).await
    }

    /// Records that a page shows something else of a layer from now on.
    async fn layer_changed(&self, namespace: &Name, layer: &Name) -> Result<(), StoreError> {
        self.mark_changed(namespace, layer).await?;
        if self.pages.is_some() {
            self.refresh_later(namespace, layer);
        }
        Ok(())
    }

    /// The same, for a process that makes no summary.
    pub(crate) async fn mark_changed(
        &self,
        namespace: &Name,
        layer: &Name,
    ) -> Result<(), StoreError> {
        if self.pages.is_none() {
            return Ok(());
        }
        let path = parse(&format!("{SUMMARIES}{namespace}/{layer}/{CHANGED}"))?;
        // Different content has a different version everywhere.
        let content = format!("{:016x}{:016x}", random(), random());
        self.put_internal(&path, Bytes::from(content)).await
    }

    fn refresh_later(&self, namespace: &Name, layer: &Name) {
        let key = (namespace.clone(), layer.clone());
        if !self.refreshing.add(&key) {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            sleep(store.refreshing.delay).await;
            let _permit = store.refreshing.begin(&key).await;
            let (namespace, layer) = key;
            if let Err(error) = store.refresh(&namespace, &layer).await {
                let error = chain(&error);
                tracing::debug!(%namespace, %layer, error, "the summary of a layer is made by its next reader");
            }
        });
    }

    /// Makes the summary of a layer again.
    async fn refresh(&self, namespace: &Name, layer: &Name) -> Result<(), StoreError> {
        let listed = self.listed_summaries(namespace, layer, layer).await?;
        let Some(Listed { changed: Some(changed), .. }) =
            listed.0.into_iter().next().map(|of| of.1)
        else {
            return Ok(());
        };
        let summary = self.read_summary(namespace, layer, true).await?;
        self.store_summary(namespace, layer, changed, &summary).await
    }

    pub(super) async fn store_summary(
        &self,
        namespace: &Name,
        layer: &Name,
        changed: String,
        summary: &Summary,
    ) -> Result<(), StoreError> {
        let stored = StoredSummary { version: VERSION, changed, summary: summary.clone() };
        let json = Bytes::from(serde_json::to_vec(&stored).map_err(backend_error)?);
        let body = stream::iter([Ok(json)]);
        let key = summary_key(namespace, layer);
        self.put(&key, PutConditions::default(), body).await.map(drop)
    }

    /// What is stored beside the layers from `first` to `last`, in the order of keys, and how many requests it took.
    pub(super) async fn listed_summaries(
        &self,
        namespace: &Name,
        first: &Name,
        last: &Name,
    ) -> Result<(Vec<(Name, Listed)>, usize), StoreError> {
        let Some(pages) = &self.pages else { return Ok((Vec::new(), 0)) };
        let full = format!("{}{SUMMARIES}{namespace}/", self.prefix());
        let (offset, end) = (format!("{full}{first}/"), format!("{full}{last}0"));
        let (mut listed, mut token, mut requests) = (Vec::<(Name, Listed)>::new(), None, 0);
        loop {
            let options = PaginatedListOptions {
                offset: Some(offset.clone()),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let found = pages.list_paginated(Some(&full), options).await.map_err(backend_error)?;
            requests += 1;
            let mut objects = found.result.objects;
            objects.sort_by(|a, b| a.location.cmp(&b.location));
            let is_past = objects.last().is_some_and(|last| last.location.as_ref() > end.as_str());
            for meta in objects.iter().filter(|meta| meta.location.as_ref() < end.as_str()) {
                let below = meta.location.as_ref().strip_prefix(&full);
                let Some((layer, name)) = below.and_then(|below| below.split_once('/')) else {
                    continue;
                };
                let Ok(layer) = layer.parse::<Name>() else { continue };
                if listed.last().is_none_or(|(last, _)| *last != layer) {
                    listed.push((layer, Listed::default()));
                }
                let Some((_, listed)) = listed.last_mut() else { continue };
                match name {
                    CHANGED => listed.changed.clone_from(&meta.e_tag),
                    SUMMARY => listed.has_summary = true,
                    _ => {}
                }
            }
            token = found.page_token;
            if is_past || token.is_none() {
                return Ok((listed, requests));
            }
        }
    }
}
