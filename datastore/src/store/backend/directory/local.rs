//! A directory as an `ObjectStore`, for the datastore's own files: claims, entries of the index, objects of probes.
//!
//! Artifacts do not pass through here: they use [`Disk`] itself. Every call to the file system is a job of the directory
//! ([`Jobs`](crate::store::backend::directory::jobs::Jobs)), so a hung file system blocks at most as many threads as there
//! are places for jobs.

use std::fmt;
use std::time::SystemTime;

use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions,
    PutPayload, PutResult, Result,
};

use crate::store::backend::directory::disk::{Disk, Locking};
use crate::store::backend::directory::walk;

/// Deletions in flight.
const DELETIONS: usize = 10;

/// A directory as an `ObjectStore`.
#[derive(Debug)]
pub(in crate::store) struct Local(pub(in crate::store) Disk);

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a directory")
    }
}

#[async_trait]
impl ObjectStore for Local {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let create_only = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => return Err(unsupported("an update")),
        };
        self.0.put_internal(location, payload, create_only).await?;
        Ok(PutResult { e_tag: None, version: None, extensions: Extensions::default() })
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("an upload in parts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let opened = self.0.open(location, !options.head, Locking::None).await?;
        options.check_preconditions(&opened.meta)?;
        let meta = opened.meta;
        let range = match &options.range {
            Some(range) => range
                .as_range(meta.size)
                .map_err(|source| Error::Generic { store: "file", source: source.into() })?,
            None => 0..meta.size,
        };
        let bytes = if options.head {
            stream::empty().boxed()
        } else {
            let (disk, part) = (self.0.clone(), range.clone());
            let part = async move { disk.part(opened.content, part).await };
            stream::once(part).boxed()
        };
        let payload = GetResultPayload::Stream(bytes);
        let attributes = Attributes::default();
        Ok(GetResult { payload, meta, range, attributes, extensions: Extensions::default() })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let disk = self.0.clone();
        let deletions = locations.map(move |location| {
            let disk = disk.clone();
            async move {
                let location = location?;
                disk.delete(&location, None).await?;
                Ok(location)
            }
        });
        deletions.buffered(DELETIONS).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (disk, prefix) = (self.0.clone(), prefix.cloned().unwrap_or_default());
        let listed = async move {
            // A file in the place of a directory is an error, not an empty listing.
            disk.try_directory(&prefix).await?;
            let found = walk::objects(disk, prefix.as_ref()).and_then(async |object| {
                let last_modified = SystemTime::from(object.modified).into();
                let (location, size) = (Path::parse(&object.key)?, object.size);
                Ok(ObjectMeta { location, last_modified, size, e_tag: None, version: None })
            });
            Ok::<_, Error>(found)
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(unsupported("a listing of one level"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(unsupported("a copy"))
    }
}

fn unsupported(what: &str) -> Error {
    Error::NotSupported { source: format!("{what} in a directory").into() }
}
