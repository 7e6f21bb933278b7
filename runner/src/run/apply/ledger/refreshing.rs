//! A stored ledger that is refreshed while a run plans with imports that the state has already: so other runs see that it works.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use datastore_api::chain;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::report::ledger::Ledger;
use crate::run::artifacts::Artifacts;

/// Between two refreshments. A ledger that is not refreshed for [`WATCH`] is that of a run that has ended.
const REFRESH: Duration = Duration::from_secs(2);
pub(in crate::run::apply) const WATCH: Duration = Duration::from_secs(15);

/// The thread that refreshes a ledger.
#[derive(Debug)]
pub(super) struct Refreshing {
    /// Ends it when it is dropped, also in the middle of an upload.
    cancel: Option<oneshot::Sender<()>>,
    /// Ends it after an upload.
    stop: oneshot::Sender<()>,
    has_ended: oneshot::Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Refreshing {
    pub(super) fn start(artifacts: Artifacts, ledger: Arc<Mutex<Ledger>>) -> io::Result<Self> {
        let ((cancel, cancelled), (stop, stopped)) = (oneshot::channel(), oneshot::channel());
        let (ended, has_ended) = oneshot::channel();
        let runtime = Handle::current();
        let thread = thread::Builder::new().spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = cancelled => {}
                    () = refresh(artifacts, ledger, stopped) => {}
                }
            });
            // The run may have ended already.
            let _sent = ended.send(());
        })?;
        Ok(Self { cancel: Some(cancel), stop, has_ended, thread: Some(thread) })
    }

    /// Ends it. What it stores does not come after this.
    pub(super) async fn end(&mut self) {
        let (stop, _) = oneshot::channel();
        drop(std::mem::replace(&mut self.stop, stop));
        // After a panic of the thread nothing more is stored.
        let _ended = (&mut self.has_ended).await;
    }
}

impl Drop for Refreshing {
    fn drop(&mut self) {
        drop(self.cancel.take());
        if let Some(thread) = self.thread.take() {
            // It ends at once, and must do so before the runtime.
            let _panicked = thread.join();
        }
    }
}

async fn refresh(
    artifacts: Artifacts,
    ledger: Arc<Mutex<Ledger>>,
    mut stopped: oneshot::Receiver<()>,
) {
    while tokio::time::timeout(REFRESH, &mut stopped).await.is_err() {
        let current = {
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            ledger.touch();
            ledger.clone()
        };
        if let Err(error) = artifacts.try_put_ledger_of(&current).await {
            tracing::debug!("the ledger is not refreshed: {}", chain(&error));
        }
    }
}
