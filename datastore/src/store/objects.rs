//! Objects by their plain keys, for those who tend the storage: list, read, delete.

use std::collections::HashSet;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use super::get::{ByteStream, Meta};
use super::{APPLIED, RECORDS, Store, StoreError, parse, record_path, timestamp, walk};

/// Deletions in flight, where the backend deletes objects one by one.
const DELETIONS: usize = 16;

/// An object as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Where it lies, from the root of the storage.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
    /// When it was put, by the backend's clock.
    pub modified: jiff::Timestamp,
}

impl Store {
    /// Every object below `prefix`, which ends at a `/` or is empty, in the order of the keys.
    ///
    /// It is a stream, page by page: a bucket may hold millions.
    pub fn list(
        &self,
        prefix: &str,
    ) -> Result<BoxStream<'static, Result<Object, StoreError>>, StoreError> {
        let prefix = parse(prefix.trim_end_matches('/'))?;
        if let Some(root) = &self.traits.root {
            return Ok(walk::objects(root.clone(), prefix.as_ref()));
        }
        let prefix = (!prefix.as_ref().is_empty()).then_some(&prefix);
        let found = self.objects.list(prefix).map_err(super::backend);
        Ok(found.map_ok(|meta| object(&meta)).boxed())
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
        if self.traits.root.is_some() || directories.len() == 1 {
            let mut objects = Vec::new();
            for directory in directories {
                objects.append(&mut self.list(directory)?.try_collect().await?);
            }
            return Ok(objects);
        }
        let (prefix, offset) = (parse(owner)?, parse(first.trim_end_matches('/'))?);
        let mut found = self.objects.list_with_offset(Some(&prefix), &offset);
        let mut objects = Vec::new();
        while let Some(meta) = found.try_next().await.map_err(super::backend)? {
            let object = object(&meta);
            if directories.iter().any(|directory| object.key.starts_with(directory)) {
                objects.push(object);
            } else if object.key.as_str() > *last {
                break;
            }
        }
        Ok(objects)
    }

    /// Opens the object that lies at `key`, as [`Store::open_whole`] does.
    pub async fn open_key(&self, key: &str) -> Result<(Meta, ByteStream), StoreError> {
        self.open_path(&parse(key)?).await
    }

    /// Removes the object at `key`, and the record of its digest. One that is not there is no error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = parse(key)?;
        let _turn = self.turn(&path).await;
        self.delete_now(&path).await
    }

    /// Does so if it is still the object that a listing showed; whether it was. One that is not there is.
    pub async fn delete_unchanged(&self, object: &Object) -> Result<bool, StoreError> {
        let path = parse(&object.key)?;
        let _turn = self.turn(&path).await;
        if let Some(disk) = &self.disk {
            return Ok(disk.delete(&path, Some(object)).await?);
        }
        match self.objects.head(&path).await.map_err(StoreError::from) {
            // The answer to a HEAD has no fractions of a second.
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

    /// Removes these objects and the records of their digests, and says of each, in this order, whether it was
    /// removed: `false` if it has changed since it was listed. `owner` is the directory that all are below.
    ///
    /// A bucket deletes many objects by one request, without looking at each again: list them right before.
    pub async fn delete_listed(
        &self,
        owner: &str,
        objects: &[Object],
    ) -> Vec<Result<bool, StoreError>> {
        if self.traits.root.is_some() {
            let deletions = stream::iter(objects).map(|object| self.delete_unchanged(object));
            return deletions.buffered(DELETIONS).collect().await;
        }
        let mut deleted = self.delete_many(objects.iter().map(|object| &*object.key)).await;
        let gone = objects.iter().zip(&deleted).filter(|(_, deleted)| deleted.is_ok());
        let gone = gone.map(|(object, _)| &*object.key).collect::<HashSet<_>>();
        if let Err(error) = self.remove_records(owner, &gone).await
            && let Some(last) = deleted.iter_mut().rfind(|deleted| deleted.is_ok())
        {
            // The objects are gone; what is left is named by an error all the same.
            *last = Err(error);
        }
        deleted.into_iter().map(|deleted| deleted.map(|()| true)).collect()
    }

    /// Removes objects by as few requests as the backend takes. One that is not there is no error.
    pub async fn delete_many<'a>(
        &self,
        keys: impl Iterator<Item = &'a str>,
    ) -> Vec<Result<(), StoreError>> {
        let paths = keys.map(parse).collect::<Vec<_>>();
        let known = paths.iter().flatten().cloned().map(Ok).collect::<Vec<_>>();
        let mut gone = HashSet::new();
        let mut deletions = self.objects.delete_stream(stream::iter(known).boxed());
        while let Some(deleted) = deletions.next().await {
            // An error does not always name its object: whatever is left is tried again below.
            gone.extend(deleted);
        }
        let deletions = stream::iter(paths).map(async |path| match path {
            Ok(path) if gone.contains(&path) => Ok(()),
            Ok(path) => self.remove(&path).await,
            Err(error) => Err(error),
        });
        deletions.buffered(DELETIONS).collect().await
    }

    /// Removes the digest records of objects that were deleted, unless another process has stored an object
    /// anew. Few objects of a bucket have one.
    async fn remove_records(&self, owner: &str, gone: &HashSet<&str>) -> Result<(), StoreError> {
        let records = record_path(&parse(owner)?)?;
        let mut found = self.objects.list(Some(&records));
        while let Some(meta) = found.try_next().await.map_err(super::backend)? {
            let key = meta.location.as_ref().strip_prefix(RECORDS);
            if let Some(key) = key.filter(|key| gone.contains(key)) {
                self.remove_record(&parse(key)?).await?;
            }
        }
        Ok(())
    }

    /// Removes the digest record of an object, if the object is gone.
    async fn remove_record(&self, path: &Path) -> Result<(), StoreError> {
        // Another process may have put it anew, and its record.
        match self.objects.head(path).await {
            Err(object_store::Error::NotFound { .. }) => self.remove(&record_path(path)?).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_now(&self, path: &Path) -> Result<(), StoreError> {
        // Of all that the datastore keeps for itself, only records of applied plans have a digest.
        if path.as_ref().starts_with(".plancha/") && !path.as_ref().starts_with(APPLIED) {
            return self.remove(path).await;
        }
        if let Some(disk) = &self.disk {
            disk.delete(path, None).await?;
            return Ok(());
        }
        self.remove(path).await?;
        self.remove_record(path).await
    }

    /// Whether it is a bucket, and no directory or memory.
    pub fn is_bucket(&self) -> bool {
        self.traits.provider.is_some()
    }

    /// The backend's clock.
    pub async fn now(&self) -> Result<jiff::Timestamp, StoreError> {
        let path = parse(&format!(".plancha/probe/clock-{:016x}", super::random()))?;
        self.put_own(&path, Bytes::new()).await?;
        let now = self.objects.head(&path).await.map(|meta| timestamp(&meta));
        self.remove(&path).await?;
        Ok(now?)
    }

    pub(super) async fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.objects.delete(path).await {
            Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn object(meta: &object_store::ObjectMeta) -> Object {
    Object { key: meta.location.to_string(), size: meta.size, modified: timestamp(meta) }
}
