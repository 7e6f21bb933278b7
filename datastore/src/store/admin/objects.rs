//! Lists, reads and deletes objects by their paths, for maintenance.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use datastore_api::chain;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use tokio::time::timeout;

use crate::store::backend::directory::links::Link;
use crate::store::backend::directory::walk;
use crate::store::backend::metered::STAT_TIMEOUT;
use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::random;
use crate::store::key::{Key, PROBES, RECORDS, is_own, parse, record_path};
use crate::store::object::object;
use crate::store::object::{ByteStream, Meta, Object, timestamp};

/// Deletions in flight, where the backend deletes objects one by one.
const DELETIONS: usize = 16;

impl Store {
    /// Every object below `prefix`, which ends at a `/` or is empty, in the order of the keys.
    ///
    /// It is a stream, page by page: a bucket may hold millions.
    pub fn list(
        &self,
        prefix: &str,
    ) -> Result<BoxStream<'static, Result<Object, StoreError>>, StoreError> {
        let prefix = parse(prefix.trim_end_matches('/'))?;
        if let Some(disk) = &self.disk {
            let found = walk::objects(disk.clone(), prefix.as_ref());
            return Ok(found.map_err(backend_error).boxed());
        }
        let prefix = (!prefix.as_ref().is_empty()).then_some(&prefix);
        let found = self.objects.list(prefix).map_err(backend_error);
        Ok(found.map_ok(|meta| object(&meta)).boxed())
    }

    /// The symbolic links that listings of a directory have met so far, by their paths.
    pub fn links(&self) -> Vec<(String, Link)> {
        self.disk.as_ref().map(|disk| disk.links().all()).unwrap_or_default()
    }

    /// Whether a listing has found an object through a symbolic link.
    pub fn is_linked(&self, key: &str) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.links().lead_to(key))
    }

    /// The objects below these directories, which all are below `owner` and in the order of the keys. Each ends
    /// with `/`.
    ///
    /// A bucket is listed from the first directory to the last, which takes fewer requests than a listing of
    /// each.
    pub async fn list_directories(
        &self,
        owner: &str,
        directories: &[&str],
    ) -> Result<Vec<Object>, StoreError> {
        let (Some(first), Some(last)) = (directories.first(), directories.last()) else {
            return Ok(Vec::new());
        };
        if self.backend.root.is_some() || directories.len() == 1 {
            let mut objects = Vec::new();
            for directory in directories {
                objects.append(&mut self.list(directory)?.try_collect().await?);
            }
            return Ok(objects);
        }
        let (prefix, offset) = (parse(owner)?, parse(first.trim_end_matches('/'))?);
        let mut found = self.objects.list_with_offset(Some(&prefix), &offset);
        let mut objects = Vec::new();
        while let Some(meta) = found.try_next().await.map_err(backend_error)? {
            let object = object(&meta);
            if directories.iter().any(|directory| object.key.starts_with(directory)) {
                objects.push(object);
            } else if object.key.as_str() > *last {
                break;
            }
        }
        Ok(objects)
    }

    /// Opens the object at `key`, as [`Store::open_whole`] does.
    pub async fn open_key(&self, key: &str) -> Result<(Meta, ByteStream), StoreError> {
        self.open_path(&parse(key)?).await
    }

    /// Deletes the object at `key` and its digest record. A missing object is not an error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = parse(key)?;
        let _key_lock = self.key_lock(&path).await;
        self.delete_now(&path).await
    }

    /// Deletes an object if it still is what a listing showed; returns whether it was. A missing object counts as
    /// deleted.
    pub async fn delete_unchanged(&self, object: &Object) -> Result<bool, StoreError> {
        let path = parse(&object.key)?;
        let _key_lock = self.key_lock(&path).await;
        if let Some(disk) = &self.disk {
            return Ok(disk.delete(&path, Some(object)).await?);
        }
        match self.objects.head(&path).await.map_err(StoreError::from) {
            // The response to a HEAD has no fractions of a second.
            Ok(now)
                if now.size != object.size
                    || timestamp(&now).as_second() != object.modified.as_second() =>
            {
                return Ok(false);
            }
            Ok(_) | Err(StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
        self.delete_now(&path).await?;
        Ok(true)
    }

    /// Deletes these objects and their digest records. Returns for each, in order, whether it was deleted: `false` if
    /// it has changed since it was listed. All are below the directory `owner`, which had the objects `known`: digest
    /// records of others, which an interrupted deletion has left in a bucket, are removed as well.
    ///
    /// A bucket deletes many objects by one request without checking each: list them right before.
    pub async fn delete_listed(
        &self,
        owner: &str,
        objects: &[Object],
        known: impl Fn(&str) -> bool,
    ) -> Vec<Result<bool, StoreError>> {
        if self.backend.root.is_some() {
            let deletions = stream::iter(objects).map(|object| self.delete_unchanged(object));
            return deletions.buffered(DELETIONS).collect().await;
        }
        let mut deleted = self.delete_many(objects.iter().map(|object| &*object.key)).await;
        let gone = objects.iter().zip(&deleted).filter(|(_, deleted)| deleted.is_ok());
        let gone = gone.map(|(object, _)| &*object.key).collect::<HashSet<_>>();
        // An error reports a digest record that could not be removed.
        let mut left = self.remove_records(owner, &gone, known).await;
        for (object, deleted) in objects.iter().zip(&mut deleted) {
            if let Some(error) = left.remove(&object.key) {
                *deleted = Err(error);
            }
        }
        deleted.into_iter().map(|deleted| deleted.map(|()| true)).collect()
    }

    /// Deletes objects with as few requests as the backend allows. A missing object is not an error.
    pub async fn delete_many<'a>(
        &self,
        keys: impl Iterator<Item = &'a str>,
    ) -> Vec<Result<(), StoreError>> {
        let paths = keys.map(parse).collect::<Vec<_>>();
        let known = paths.iter().flatten().cloned().map(Ok).collect::<Vec<_>>();
        let mut gone = HashSet::new();
        let mut deletions = self.objects.delete_stream(stream::iter(known).boxed());
        while let Some(deleted) = deletions.next().await {
            // An error does not always name its object: the rest is retried one by one.
            gone.extend(deleted);
        }
        let deletions = stream::iter(paths).map(async |path| match path {
            Ok(path) if gone.contains(&path) => Ok(()),
            Ok(path) => self.remove(&path).await,
            Err(error) => Err(error),
        });
        deletions.buffered(DELETIONS).collect().await
    }

    /// Removes the digest records of deleted objects, unless another process has stored the object again. Returns the
    /// objects whose record may remain. Few objects of a bucket have one.
    async fn remove_records(
        &self,
        owner: &str,
        gone: &HashSet<&str>,
        known: impl Fn(&str) -> bool,
    ) -> HashMap<String, StoreError> {
        if gone.is_empty() {
            return HashMap::new();
        }
        let is_left = |key: &str| gone.contains(key) || !known(key);
        let keys = match self.records_of(owner, is_left).await {
            Ok(keys) => keys,
            Err(error) => {
                let text = format!("the digest records could not be listed: {}", chain(&error));
                let left = gone
                    .iter()
                    .map(|key| ((*key).to_owned(), StoreError::RecordLeft(text.clone().into())));
                return left.collect();
            }
        };
        let removals = stream::iter(keys).map(async |key| {
            let path = parse(&key);
            let removed = match path {
                Ok(path) => self.remove_record(&path).await,
                Err(error) => Err(error),
            };
            removed.err().map(|error| (key, error))
        });
        removals.buffer_unordered(DELETIONS).filter_map(std::future::ready).collect().await
    }

    /// The objects below `owner` for which this holds, and which have a digest record.
    async fn records_of(
        &self,
        owner: &str,
        is_left: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, StoreError> {
        let records = record_path(&parse(owner)?)?;
        let found = self.objects.list(Some(&records)).map_err(StoreError::from);
        let keys = found.map_ok(|meta| {
            meta.location.as_ref().strip_prefix(RECORDS).unwrap_or_default().to_owned()
        });
        keys.try_filter(|key| std::future::ready(is_left(key))).try_collect().await
    }

    /// Removes the digest record of an object, if the object is gone. Fails with [`StoreError::RecordLeft`] only.
    async fn remove_record(&self, path: &Path) -> Result<(), StoreError> {
        // Another process may have stored the object again.
        let removed = match self.objects.head(path).await {
            Err(object_store::Error::NotFound { .. }) => match record_path(path) {
                Ok(record) => self.remove(&record).await,
                Err(error) => Err(error),
            },
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        };
        removed.map_err(|error| StoreError::RecordLeft(error.into()))
    }

    async fn delete_now(&self, path: &Path) -> Result<(), StoreError> {
        // Among the datastore's own objects, only artifacts have a digest.
        if is_own(path.as_ref()) && Key::from_path(path.as_ref()).is_none() {
            return self.remove(path).await;
        }
        if let Some(disk) = &self.disk {
            disk.delete(path, None).await?;
            return Ok(());
        }
        self.remove(path).await?;
        self.remove_record(path).await
    }

    /// Whether the storage is a bucket.
    pub fn is_bucket(&self) -> bool {
        self.backend.provider.is_some()
    }

    /// The backend's clock.
    pub async fn now(&self) -> Result<jiff::Timestamp, StoreError> {
        let path = parse(&format!("{PROBES}clock-{:016x}", random()))?;
        self.put_internal(&path, Bytes::new()).await?;
        let now = self.objects.head(&path).await.map(|meta| timestamp(&meta));
        self.remove(&path).await?;
        Ok(now?)
    }

    pub(in crate::store) async fn remove(&self, path: &Path) -> Result<(), StoreError> {
        let error = match self.objects.delete(path).await {
            Err(object_store::Error::NotFound { .. }) | Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // A failed deletion may have succeeded on the server.
        match timeout(STAT_TIMEOUT, self.objects.head(path)).await {
            Ok(Err(object_store::Error::NotFound { .. })) => Ok(()),
            _ => Err(error.into()),
        }
    }
}
