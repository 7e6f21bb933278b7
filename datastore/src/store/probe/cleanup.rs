//! Tries what large uploads and their cleanup need: to begin an upload in parts, to list such uploads, and to abort one.
//!
//! `check` tries it, and no other probe: a serving datastore works without the cleanup.

use std::error::Error;

use object_store::ObjectStoreExt as _;

use crate::store::backend::metered::in_time;
use crate::store::backend::panicked::caught;
use crate::store::backend::reason::concise;
use crate::store::backend::response::{Denied, code, is_permanent, status};
use crate::store::error::BoxError;
use crate::store::handle::Store;
use crate::store::probe::health::{ProbeResults, one_line};
use crate::store::probe::steps::STEP_TIMEOUT;

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The storage has done it.
    Done,
    /// A right is missing; the error names it.
    Denied(String),
    /// The storage does not support it.
    Unsupported(String),
    /// It failed for a reason that may pass, such as refused credentials.
    Unknown(String),
    /// It was not tried, because of this.
    NotTried(String),
}

/// The step that large artifacts need; the others are for the cleanup.
pub const BEGIN: &str = "multipart_begin";
const LIST: &str = "multipart_list";
const ABORT: &str = "multipart_abort";

impl Store {
    /// Tries each step on an upload below the objects of probes, after a probe with these results.
    pub async fn try_cleanup(&self, probe: &ProbeResults) -> [(&'static str, Tried); 3] {
        let none =
            |why: String| [BEGIN, LIST, ABORT].map(|step| (step, Tried::NotTried(why.clone())));
        let Some(abandoned) = &self.abandoned else {
            let why = if self.is_azure() {
                "Azure removes parts of abandoned uploads after a week"
            } else {
                "this storage has no uploads in parts"
            };
            return none(why.to_owned());
        };
        if let Some(why) = probe.why_not_tried() {
            return none(why);
        }
        let path = match self.path() {
            Ok(path) => path,
            Err(error) => return none(one_line(&*error)),
        };
        let begun =
            in_time(STEP_TIMEOUT, "begin an upload in parts", self.objects.put_multipart(&path));
        let mut upload = match begun.await.map_err(BoxError::from).and_then(|begun| Ok(begun?)) {
            Ok(upload) => upload,
            Err(error) => {
                let rest = Tried::NotTried("no upload in parts could be begun".to_owned());
                return [(BEGIN, tried(Err(error))), (LIST, rest.clone()), (ABORT, rest)];
            }
        };
        let prefix = format!("{}{path}", self.prefix());
        let listed = caught(abandoned.try_list(&prefix));
        let listed = in_time(STEP_TIMEOUT, "list uploads in parts", listed).await;
        let aborted = in_time(STEP_TIMEOUT, "abort an upload in parts", upload.abort()).await;
        [
            (BEGIN, Tried::Done),
            (LIST, tried(listed.map_err(BoxError::from).flatten())),
            (ABORT, tried(aborted.map_err(BoxError::from).and_then(|done| Ok(done?)))),
        ]
    }
}

fn tried(result: Result<(), BoxError>) -> Tried {
    let Err(error) = result else { return Tried::Done };
    let full = one_line(&*error);
    let text = concise(&full);
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(now) = cause {
        if now.is::<Denied>() {
            return Tried::Denied(text);
        }
        cause = now.source();
    }
    if is_permanent(status(&full), code(&full)) {
        Tried::Unsupported(text)
    } else {
        Tried::Unknown(text)
    }
}
