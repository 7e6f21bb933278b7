//! Documents of layers, and the statuses among them. It knows what a status must look like, and not what it means.

use bytes::Bytes;
use datastore_api::document::STATUS;
use datastore_api::status::LayerStatus;
use datastore_api::{DocumentKey, Name};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};

use crate::store::error::{StoreError, backend_error};
use crate::store::handle::Store;
use crate::store::key::{DOCUMENTS, Key};

/// The largest status that is read, in bytes.
const MAX_STATUS: u64 = 256 << 10;
/// How many documents are read at the same time.
const PARALLEL_READS: usize = 8;
/// How often a document is read again that is replaced meanwhile.
const TRIES: usize = 4;
/// The version of the format of a status.
const VERSION: u32 = 1;

/// The status of a layer, or why it cannot be read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadStatus {
    /// The layer.
    pub layer: Name,
    /// Its status.
    pub status: Result<LayerStatus, String>,
    /// How many bytes were read.
    pub size: usize,
}

impl Store {
    /// Deletes a document of a layer. A missing one is not an error.
    pub(crate) async fn delete_document(&self, key: &DocumentKey) -> Result<(), StoreError> {
        let key = Key::Document(key.clone());
        self.delete(key.object_path()?.as_ref()).await?;
        self.note_change(&key).await
    }

    /// The layers of a namespace that have a status, in the order of their names.
    pub(crate) async fn layers_with_status(
        &self,
        namespace: &Name,
    ) -> Result<Vec<Name>, StoreError> {
        let objects = self.list(&format!("{DOCUMENTS}{namespace}/"))?;
        let layers = objects.try_filter_map(async |object| {
            Ok(match Key::from_path(&object.key) {
                Some(Key::Document(key)) if key.name.as_ref() == STATUS => Some(key.layer),
                _ => None,
            })
        });
        let mut layers = layers.try_collect::<Vec<_>>().await?;
        // The order of the keys is that of the names only where no name begins with another one.
        layers.sort_unstable();
        Ok(layers)
    }

    /// The statuses of these layers, in their order. A layer whose status is deleted meanwhile is left out.
    pub(crate) fn statuses<'a>(
        &'a self,
        namespace: &'a Name,
        layers: Vec<Name>,
    ) -> impl Stream<Item = Result<ReadStatus, StoreError>> + Send + 'a {
        let reads = stream::iter(layers).map(move |layer| self.status(namespace, layer));
        reads.buffered(PARALLEL_READS).try_filter_map(async |status| Ok(status))
    }

    /// The status of a layer; `None` if it has none. An error is one of the storage, after which nothing is known.
    pub(in crate::store) async fn status(
        &self,
        namespace: &Name,
        layer: Name,
    ) -> Result<Option<ReadStatus>, StoreError> {
        let name = STATUS.parse().map_err(backend_error)?;
        let key = DocumentKey { namespace: namespace.clone(), layer: layer.clone(), name };
        let mut size = 0;
        let status = match self.small(&Key::Document(key.clone()), MAX_STATUS).await {
            Err(StoreError::NotFound) => return Ok(None),
            Err(error) if error.is_of_object() => Err(error.to_string()),
            Err(error) => return Err(error),
            Ok(None) => Err(format!("it has more than {MAX_STATUS} bytes")),
            Ok(Some(bytes)) => {
                size = bytes.len();
                parse(&bytes)
            }
        };
        if let Err(reason) = &status {
            tracing::warn!(document = %key, reason, "the status of a layer cannot be read");
        }
        Ok(Some(ReadStatus { layer, status, size }))
    }

    /// The bytes of a small object, verified; `None` if it has more than `max`.
    pub(in crate::store) async fn small(
        &self,
        key: &Key,
        max: u64,
    ) -> Result<Option<Bytes>, StoreError> {
        let mut tries = 1..TRIES;
        loop {
            let read = async {
                let (meta, bytes) = self.open_whole(key).await?;
                if meta.size > max {
                    return Ok(None);
                }
                Ok(Some(bytes.try_collect::<Vec<_>>().await?.concat().into()))
            };
            match read.await {
                Err(StoreError::Replaced) if tries.next().is_some() => {}
                read => return read,
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Result<LayerStatus, String> {
    let status: LayerStatus = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if status.version != VERSION {
        return Err(format!("its format has the version {}, and not {VERSION}", status.version));
    }
    Ok(status)
}
