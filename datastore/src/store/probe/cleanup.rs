//! Tries what the cleanup of abandoned uploads needs: to list uploads in parts, and to abort one.
//!
//! `check` tries it, and no other probe: a serving datastore works without it.

use std::error::Error;

use object_store::ObjectStoreExt as _;
use tokio::time::timeout;

use crate::store::backend::panicked::caught;
use crate::store::backend::reason::concise;
use crate::store::backend::response::Denied;
use crate::store::error::BoxError;
use crate::store::handle::Store;
use crate::store::probe::health::one_line;
use crate::store::probe::steps::STEP_TIMEOUT;

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The storage has done it.
    Done,
    /// A right is missing; the error names it.
    Denied(String),
    /// It failed for another reason.
    Failed(String),
}

impl Store {
    /// Tries each step on an upload below the objects of probes. Empty where no upload can be left, or none can be started.
    pub async fn try_cleanup(&self) -> Vec<(&'static str, Tried)> {
        let Some(abandoned) = &self.abandoned else { return Vec::new() };
        let Ok(path) = self.path() else { return Vec::new() };
        let Ok(Ok(mut upload)) = timeout(STEP_TIMEOUT, self.objects.put_multipart(&path)).await
        else {
            return Vec::new();
        };
        let prefix = format!("{}{path}", self.prefix());
        let listed = timeout(STEP_TIMEOUT, caught(abandoned.try_list(&prefix))).await;
        let aborted = timeout(STEP_TIMEOUT, upload.abort()).await;
        vec![
            ("multipart_list", tried(listed.map_err(BoxError::from).flatten())),
            ("multipart_abort", tried(aborted.map_err(BoxError::from).and_then(|done| Ok(done?)))),
        ]
    }
}

fn tried(result: Result<(), BoxError>) -> Tried {
    let Err(error) = result else { return Tried::Done };
    let text = concise(&one_line(&*error));
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(now) = cause {
        if now.is::<Denied>() {
            return Tried::Denied(text);
        }
        cause = now.source();
    }
    Tried::Failed(text)
}
