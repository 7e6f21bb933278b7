//! Tries whether a storage replaces one version of an object and refuses to replace any other.
//!
//! A lease that a killed process has left is taken over in that way (`write/lease.rs`).

use object_store::path::Path;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutResult, UpdateVersion};

use crate::store::backend::response::{self, code, status};
use crate::store::handle::Store;

impl Store {
    /// Replaces an object's present version, and tries to replace that version once more, which must be refused. Fails
    /// if a later try may show more.
    pub(super) async fn try_update(
        &self,
        path: &Path,
        present: PutResult,
    ) -> object_store::Result<bool> {
        if self.backend.provider.is_none() {
            // In a directory and in memory no lease is needed.
            return Ok(true);
        }
        let version = UpdateVersion { e_tag: present.e_tag, version: present.version };
        let replace = async |content: &'static str| {
            let options = PutOptions::from(PutMode::Update(version.clone()));
            self.objects.put_opts(path, content.into(), options).await
        };
        // The contents differ, because an S3 server may derive the ETag from the content.
        match replace("replaced").await {
            Ok(_) => {}
            // The answer to the first try may be lost: the client's second try is then refused.
            Err(Error::Precondition { .. }) if self.has_content(path, "replaced").await? => {}
            Err(error) if is_permanent(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        match replace("replaced twice").await {
            Ok(_) => Ok(false),
            Err(Error::Precondition { .. }) => Ok(true),
            Err(error) if is_permanent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn has_content(&self, path: &Path, content: &'static str) -> object_store::Result<bool> {
        Ok(self.objects.get(path).await?.bytes().await? == content)
    }
}

/// Whether the storage would refuse the same request again. A missing right may be granted.
pub(super) fn is_permanent(error: &Error) -> bool {
    match error {
        Error::Precondition { .. } | Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            true
        }
        error => {
            let text = datastore_api::chain(error);
            response::is_permanent(status(&text), code(&text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refusal(answer: &str) -> bool {
        let text = format!("PUT http://h/b/k - Server returned non-2xx status code: {answer}");
        is_permanent(&Error::Generic { store: "S3", source: text.into() })
    }

    #[test]
    fn a_400_without_a_code_is_no_refusal() {
        for body in [
            "",
            "<html><body><h1>400 Bad Request</h1></body></html>",
            "{\"message\": \"Bad Request\"}",
            "<Error><Code></Code></Error>",
        ] {
            assert!(!is_refusal(&format!("400 Bad Request: {body}")), "{body}");
        }
        // These statuses alone say that the storage does not support the request.
        assert!(is_refusal("405 Method Not Allowed: "));
        assert!(is_refusal("501 Not Implemented: <html></html>"));
        assert!(!is_refusal("503 Service Unavailable: "));
    }

    #[test]
    fn a_400_is_a_refusal_unless_its_code_is_that_of_an_error_that_may_pass() {
        let of = |code: &str| {
            is_refusal(&format!("400 Bad Request: <?xml?><Error><Code>{code}</Code></Error>"))
        };
        for code in ["InvalidArgument", "InvalidRequest", "NotImplemented", "UnsupportedHeader"] {
            assert!(of(code), "{code}");
        }
        for code in [
            "BandwidthLimitExceeded",
            "ExpiredToken",
            "KMS.ThrottlingException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestTimeout",
            "ServerBusy",
            "SlowDown",
            "SlowDownWrite",
            "Throttling",
            "ThrottlingException",
            "TooManyRequests",
            "TooManyRequestsException",
        ] {
            assert!(!of(code), "{code}");
        }
    }
}
