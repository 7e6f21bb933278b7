//! Objects by their plain keys, for those who tend the storage: list, read, delete.

use bytes::Bytes;
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

use super::get::{ByteStream, Meta};
use super::{APPLIED, Store, StoreError, parse, record_path, timestamp};

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
    /// Every object below `prefix`, which ends at a `/` or is empty; in the backend's order.
    ///
    /// It is a stream, page by page: a bucket may hold millions.
    pub fn list(
        &self,
        prefix: &str,
    ) -> Result<BoxStream<'static, Result<Object, StoreError>>, StoreError> {
        let prefix = parse(prefix.trim_end_matches('/'))?;
        let prefix = (!prefix.as_ref().is_empty()).then_some(&prefix);
        let found = self.objects.list(prefix).map_err(super::backend).map_ok(|meta| Object {
            key: meta.location.to_string(),
            size: meta.size,
            modified: timestamp(&meta),
        });
        Ok(Box::pin(found))
    }

    /// Opens the object that lies at `key`, as [`Store::open_whole`] does.
    pub async fn open_key(&self, key: &str) -> Result<(Meta, ByteStream), StoreError> {
        self.open_path(&parse(key)?).await
    }

    /// Removes the object that lies at `key`, and the record of its digest. One that is not there
    /// is no error.
    pub async fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = parse(key)?;
        let _turn = self.turn(&path).await;
        self.delete_now(&path).await
    }

    /// Does so if it is still the object that a listing showed; whether it was. One that is not there is.
    pub async fn delete_unchanged(&self, object: &Object) -> Result<bool, StoreError> {
        let path = parse(&object.key)?;
        let _turn = self.turn(&path).await;
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

    async fn delete_now(&self, path: &Path) -> Result<(), StoreError> {
        self.remove(path).await?;
        // Of all that lies there, only records of applied plans have a digest.
        if path.as_ref().starts_with(".plancha/") && !path.as_ref().starts_with(APPLIED) {
            return Ok(());
        }
        // Another process may have put it anew, and its record.
        match self.objects.head(path).await {
            Err(object_store::Error::NotFound { .. }) => self.remove(&record_path(path)?).await,
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
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
