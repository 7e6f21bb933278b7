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
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;
    use futures::{FutureExt as _, TryStreamExt as _, stream};
    use object_store::memory::InMemory;
    use tokio::time::Instant;

    use super::*;
    use crate::store::write::double::{Call, Hooked};
    use crate::store::write::put::Terms;
    use crate::store::{Calls, Inner, Key, Provider, Store, Traits};

    async fn answers(is_stopped: Arc<AtomicBool>) -> object_store::Result<()> {
        while is_stopped.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_put_over_a_silent_storage_is_answered_within_20_s() {
        for create in [false, true] {
            let is_stopped = Arc::<AtomicBool>::default();
            let stopped = Arc::clone(&is_stopped);
            let before = move |_: Call<'_>| answers(Arc::clone(&stopped)).boxed();
            let silent = Hooked { inner: InMemory::new(), before };
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
