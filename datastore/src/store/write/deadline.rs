//! When a small upload is answered at the latest, whatever the storage does.
//!
//! A put asks the storage several times: for the entry in the index, for the object, and for their results. Each
//! has a limit, and together they would take too long. So the answer has a limit of its own; the upload goes on
//! without it, and what it leaves is cleaned up.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::store::backend::metered::{Silent, patience};
use crate::store::write::put::LOOK;
use crate::store::write::upload::ToItsEnd;
use crate::store::{MIB, StoreError, backend};

/// A body that was received whole and is small enough to be put in one piece: how many bytes it has.
#[derive(Clone, Default)]
pub(in crate::store) struct WholeBody(Arc<(OnceLock<usize>, Notify)>);

impl WholeBody {
    pub(in crate::store) fn received(&self, bytes: usize) {
        let (size, notify) = &*self.0;
        if size.set(bytes).is_ok() {
            notify.notify_one();
        }
    }

    /// How long the upload may take after the body was received.
    async fn limit(&self) -> Duration {
        let (size, notify) = &*self.0;
        notify.notified().await;
        match size.get() {
            Some(bytes) if *bytes > MIB => patience(*bytes) + LOOK,
            _ => patience(0) + LOOK,
        }
    }
}

/// The result of an upload, or an error after the limit. The upload then continues in the background.
pub(in crate::store) async fn in_time<T: Send + 'static>(
    mut upload: ToItsEnd<Result<T, StoreError>>,
    whole: WholeBody,
) -> Result<T, StoreError> {
    let limit = tokio::select! {
        biased;
        done = &mut upload => return done,
        limit = whole.limit() => limit,
    };
    let done = timeout(limit, upload).await;
    done.unwrap_or_else(|_| Err(backend(Silent(limit))))
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use bytes::Bytes;
    use futures::stream::{self, BoxStream};
    use futures::{StreamExt as _, TryStreamExt as _};
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{
        CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
        PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    };
    use tokio::time::Instant;

    use crate::store::Calls;

    use super::*;
    use crate::store::write::put::Terms;
    use crate::store::{Inner, Key, Provider, Store, Traits};

    /// A storage that may stop answering.
    #[derive(Debug, Default)]
    struct Stopped {
        behind: InMemory,
        is_stopped: Arc<AtomicBool>,
    }

    impl Stopped {
        async fn answers(is_stopped: Arc<AtomicBool>) {
            while is_stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    impl fmt::Display for Stopped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("stopped")
        }
    }

    #[async_trait]
    impl ObjectStore for Stopped {
        async fn put_opts(
            &self,
            path: &Path,
            payload: PutPayload,
            options: PutOptions,
        ) -> Result<PutResult> {
            Self::answers(Arc::clone(&self.is_stopped)).await;
            self.behind.put_opts(path, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            path: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.behind.put_multipart_opts(path, options).await
        }

        async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
            Self::answers(Arc::clone(&self.is_stopped)).await;
            self.behind.get_opts(path, options).await
        }

        fn delete_stream(
            &self,
            paths: BoxStream<'static, Result<Path>>,
        ) -> BoxStream<'static, Result<Path>> {
            self.behind.delete_stream(paths)
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            let (listed, is_stopped) = (self.behind.list(prefix), Arc::clone(&self.is_stopped));
            stream::once(Self::answers(is_stopped))
                .flat_map(|()| stream::empty())
                .chain(listed)
                .boxed()
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.behind.list_with_delimiter(prefix).await
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.behind.copy_opts(from, to, options).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_put_over_a_silent_storage_is_answered_within_20_s() {
        for create in [false, true] {
            let is_stopped = Arc::<AtomicBool>::default();
            let silent = Stopped { is_stopped: Arc::clone(&is_stopped), ..Stopped::default() };
            let traits = Traits { provider: Some(Provider::S3), ..Traits::memory() };
            let store = Store(Arc::new(Inner::new(Arc::new(silent), traits, Calls::default())));
            let put = async |file: &str, content: &'static [u8]| {
                let key = Key::at(&format!("layers/a/b/c/0/{file}")).unwrap();
                let body = stream::iter([Ok(Bytes::from_static(content))]);
                store.put(&key, Terms { create, ..Terms::default() }, body).await
            };
            put("run.log", b"before").await.unwrap();
            is_stopped.store(true, Ordering::Relaxed);
            let began = Instant::now();
            // The second waits for the first, and the third has no entry in the index.
            let (first, second) = tokio::join!(put("plan.json", b"{}"), put("plan.json", b"{}"));
            first.unwrap_err();
            second.unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
            is_stopped.store(false, Ordering::Relaxed);
            put("plan.json", b"{}").await.unwrap();
            store.uploads.close();
            store.uploads.wait().await;
            assert!(
                store.list("layers").unwrap().try_collect::<Vec<_>>().await.unwrap().len() == 2
            );
        }
    }
}
