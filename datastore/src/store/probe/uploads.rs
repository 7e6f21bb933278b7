//! Tries each step that large uploads and their cleanup need: to start an upload in parts, to upload a part, to complete
//! the upload, to list such uploads, and to abort one.
//!
//! `check` tries it, and no other probe: a serving datastore works without the cleanup.

use std::error::Error;

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _};

use crate::store::backend::cloud::abandoned::{Abandoned, Unlisted};
use crate::store::backend::cloud::document::WrongDocument;
use crate::store::backend::metered::in_time;
use crate::store::backend::panicked::caught;
use crate::store::backend::response::{Denied, code, is_permanent, status};
use crate::store::error::BoxError;
use crate::store::handle::Store;
use crate::store::probe::failure::Differs;
use crate::store::probe::health::{ProbeResults, in_words, one_line};
use crate::store::probe::steps::{FIRST_TIMEOUT, STEP_TIMEOUT};
use crate::store::write::parts::abort;

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

/// The steps that large artifacts need; the others are for the cleanup.
pub const NEEDED: [&str; 3] = [BEGIN, PART, COMPLETE];
const BEGIN: &str = "multipart_begin";
const PART: &str = "multipart_part";
const COMPLETE: &str = "multipart_complete";
const LIST: &str = "multipart_list";
const ABORT: &str = "multipart_abort";

/// The content of the object that is uploaded in parts.
const CONTENT: &str = "parts";

/// The results of the steps, in their order.
type Results = [(&'static str, Tried); 5];

impl Store {
    /// Tries each step below the objects of probes, after a probe with these results: one upload is completed, another
    /// one is listed and aborted.
    pub async fn try_uploads(&self, probe: &ProbeResults) -> Results {
        let none = |why: String| {
            [BEGIN, PART, COMPLETE, LIST, ABORT].map(|step| (step, Tried::NotTried(why.clone())))
        };
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
        let upload = match self.begin(&path).await {
            Ok(upload) => upload,
            Err(error) => {
                let mut results = none("no upload in parts could be started".to_owned());
                results[0].1 = tried(Err(error));
                return results;
            }
        };
        let (part, completed) = self.try_completed_upload(&path, upload).await;
        let (listed, aborted) = self.try_abandoned_upload(&path, abandoned).await;
        [
            (BEGIN, Tried::Done),
            (PART, part),
            (COMPLETE, completed),
            (LIST, listed),
            (ABORT, aborted),
        ]
    }

    async fn begin(&self, path: &Path) -> Result<Box<dyn MultipartUpload>, BoxError> {
        let started = self.objects.put_multipart(path);
        Ok(in_time(STEP_TIMEOUT, "start an upload in parts", started).await??)
    }

    /// Uploads a part, completes the upload, and reads the object.
    async fn try_completed_upload(
        &self,
        path: &Path,
        mut upload: Box<dyn MultipartUpload>,
    ) -> (Tried, Tried) {
        let part = in_time(STEP_TIMEOUT, "upload a part", upload.put_part(CONTENT.into())).await;
        let part = tried(part.map_err(BoxError::from).and_then(|done| Ok(done?)));
        if part != Tried::Done {
            abort(&mut *upload).await;
            return (part, Tried::NotTried("no part could be uploaded".to_owned()));
        }
        let completed = in_time(FIRST_TIMEOUT, "complete an upload in parts", async {
            upload.complete().await?;
            let found = self.objects.get(path).await?.bytes().await?;
            self.remove(path).await?;
            if found == CONTENT { Ok(()) } else { Err(BoxError::from(Differs)) }
        });
        let completed = tried(completed.await.map_err(BoxError::from).flatten());
        if completed != Tried::Done {
            abort(&mut *upload).await;
        }
        (part, completed)
    }

    /// Begins another upload, lists it, and aborts it.
    async fn try_abandoned_upload(&self, path: &Path, abandoned: &Abandoned) -> (Tried, Tried) {
        let mut upload = match self.begin(path).await {
            Ok(upload) => upload,
            Err(error) => {
                let tried = tried(Err(error));
                return (tried.clone(), tried);
            }
        };
        let key = format!("{}{path}", self.prefix());
        let listed = caught(abandoned.try_list(&key));
        let listed = in_time(STEP_TIMEOUT, "list uploads in parts", listed).await;
        let aborted = in_time(STEP_TIMEOUT, "abort an upload in parts", upload.abort()).await;
        (
            tried(listed.map_err(BoxError::from).flatten()),
            tried(aborted.map_err(BoxError::from).and_then(|done| Ok(done?))),
        )
    }
}

fn tried(result: Result<(), BoxError>) -> Tried {
    let Err(error) = result else { return Tried::Done };
    let full = one_line(&*error);
    let text = in_words(&full);
    let mut cause: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(now) = cause {
        if now.is::<Denied>() {
            return Tried::Denied(text);
        }
        let ignores_request =
            now.downcast_ref::<WrongDocument>().is_some_and(WrongDocument::is_listing);
        if ignores_request || now.is::<Unlisted>() {
            return Tried::Unsupported(text);
        }
        cause = now.source();
    }
    if is_permanent(status(&full), code(&full)) {
        Tried::Unsupported(text)
    } else {
        Tried::Unknown(text)
    }
}
