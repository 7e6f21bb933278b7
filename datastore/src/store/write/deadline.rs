//! Limits when a small upload is answered, even if the storage does not respond.
//!
//! A put calls the storage several times: for the entry in the index, for the object, and to check the result. Each call has
//! a timeout, and their sum would be too long. So the answer has its own; the upload continues without it, and cleans up.

use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinError, JoinHandle};

use crate::store::backend::metered::{STAT_TIMEOUT, in_time, put_timeout};
use crate::store::backend::storage::MIB;
use crate::store::error::{StoreError, backend_error};

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
            Some(bytes) if *bytes > MIB => put_timeout(*bytes) + STAT_TIMEOUT,
            _ => put_timeout(0) + STAT_TIMEOUT,
        }
    }
}

/// The result of an upload, or an error after the limit. The upload then continues in the background.
pub(in crate::store) async fn with_deadline<T: Send + 'static>(
    mut upload: JoinHandle<Result<T, StoreError>>,
    whole: WholeBody,
) -> Result<T, StoreError> {
    let limit = tokio::select! {
        biased;
        done = &mut upload => return joined(done),
        limit = whole.limit() => limit,
    };
    match in_time(limit, "store the upload", upload).await {
        Ok(done) => joined(done),
        Err(late) => Err(backend_error(late)),
    }
}

/// The result of an upload's task. A panic continues in the caller.
fn joined<T>(done: Result<Result<T, StoreError>, JoinError>) -> Result<T, StoreError> {
    match done.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(cancelled)) => Err(backend_error(cancelled)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;
    use futures::{FutureExt as _, TryStreamExt as _, stream};
    use object_store::memory::InMemory;
    use tokio::time::Instant;

    use super::*;
    use crate::store::backend::cloud::provider::Provider;
    use crate::store::backend::metered::Calls;
    use crate::store::backend::storage::Backend;
    use crate::store::handle::{Inner, Store};
    use crate::store::key::Key;
    use crate::store::write::conditions::PutConditions;
    use crate::store::write::double::{Call, Hooked};

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
            let no_answer = Hooked { inner: InMemory::new(), before };
            let backend = Backend { provider: Some(Provider::S3), ..Backend::memory() };
            let store = Store(Arc::new(Inner::new(Arc::new(no_answer), backend, Calls::default())));
            let put = async |file: &str, content: &'static [u8]| {
                let key = Key::from_path(&format!("layers/a/b/c/0/{file}")).unwrap();
                let body = stream::iter([Ok(Bytes::from_static(content))]);
                store.put(&key, PutConditions { create, ..PutConditions::default() }, body).await
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
