//! For tests: a storage in memory that does something before each put, get and list.

use std::fmt;

use async_trait::async_trait;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// A call before which the hook runs.
pub(in crate::store) enum Call<'a> {
    Put(&'a Path, &'a PutMode),
    Get,
    List,
}

/// The storage. `before` may wait, or fail the call.
pub(in crate::store) struct Hooked<F> {
    pub(in crate::store) inner: InMemory,
    pub(in crate::store) before: F,
}

impl<F> fmt::Debug for Hooked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<F> fmt::Display for Hooked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("hooked")
    }
}

#[async_trait]
impl<F> ObjectStore for Hooked<F>
where
    F: Fn(Call<'_>) -> BoxFuture<'static, Result<()>> + Send + Sync + 'static,
{
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        (self.before)(Call::Put(path, &options.mode)).await?;
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        (self.before)(Call::Get).await?;
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let hook = stream::once((self.before)(Call::List));
        hook.try_filter_map(|()| future::ready(Ok(None))).chain(self.inner.list(prefix)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
