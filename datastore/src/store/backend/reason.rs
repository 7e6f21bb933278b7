//! Why a storage failed, in words that any caller may read.
//!
//! The full error goes to the log: it can name a path of the server, or the URL of a bucket.

use std::error::Error;
use std::io;

use crate::store::backend::cloud::document::WrongDocument;
use crate::store::backend::cloud::object_answer::WrongAnswer;
use crate::store::backend::directory::beneath::Outside;
use crate::store::backend::directory::dirs::SilentDirectory;
use crate::store::backend::directory::files::Irregular;
use crate::store::backend::directory::jobs::Hung;
use crate::store::backend::directory::root::RootLost;
use crate::store::backend::directory::walk::Silent;
use crate::store::backend::metered::NoAnswer;
use crate::store::backend::panicked::Panicked;
use crate::store::backend::response::{Denied, refusal, status};

const MISSING: &str = "its bucket or directory is missing";

/// The reason, without any name of the server. Where it is unknown, it points to the log.
pub(crate) fn reason(error: &(dyn Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(now) = cause {
        let within = now.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(irregular) = within.and_then(|error| error.downcast_ref::<Irregular>()) {
            return irregular.to_string();
        }
        if within.and_then(|error| error.downcast_ref::<Outside>()).is_some() {
            return "a symbolic link leads out of its directory; the datastore's log has the details".to_owned();
        }
        if let Some(lost) = within.and_then(|error| error.downcast_ref::<RootLost>()) {
            return lost.reason().to_owned();
        }
        if let Some(error) = now.downcast_ref::<io::Error>()
            && error.kind() != io::ErrorKind::Other
        {
            return io_reason(error.kind());
        }
        if let Some(denied) = now.downcast_ref::<Denied>() {
            return denied.to_string();
        }
        if let Some(object_store::Error::NotFound { .. }) = now.downcast_ref() {
            return MISSING.to_owned();
        }
        if let Some(hung) = now.downcast_ref::<Hung>() {
            return hung.to_string();
        }
        if let Some(wrong) = now.downcast_ref::<WrongDocument>() {
            return wrong.to_string();
        }
        match now.downcast_ref::<WrongAnswer>() {
            Some(WrongAnswer::NoBucket(_)) => return MISSING.to_owned(),
            Some(wrong) => return wrong.to_string(),
            None => {}
        }
        if let Some(panicked) = now.downcast_ref::<Panicked>() {
            return panicked.text().to_owned();
        }
        if now.is::<NoAnswer>() || now.is::<Silent>() || now.is::<SilentDirectory>() {
            return "it does not answer".to_owned();
        }
        cause = now.source();
    }
    let text = datastore_api::chain(error);
    if let Some(words) = refusal(&text) {
        return format!("{words}; the datastore's log has the details");
    }
    match status(&text) {
        Some(403) => "it denies access; the datastore's log has the details".to_owned(),
        Some(404) => MISSING.to_owned(),
        Some(507) => io_reason(io::ErrorKind::StorageFull),
        Some(status) => format!("it answers {status}; the datastore's log has the details"),
        None => "the datastore's log has the details".to_owned(),
    }
}

fn io_reason(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "no space is left; free some, or delete old runs with `datastore gc`".to_owned()
        }
        kind => format!("{kind}; the datastore's log has the details"),
    }
}

/// A text in which the XML document of a cloud's answer is reduced to its code and message. A document has several lines.
pub(crate) fn concise(text: &str) -> String {
    let Some(start) = text.find("<?xml").or_else(|| text.find("<Error>")) else {
        return text.to_owned();
    };
    let (before, document) = text.split_at(start);
    let (document, after) =
        document.split_at(document.rfind('>').map_or(document.len(), |end| end + 1));
    let element = |name: &str| {
        let (_, content) = document.split_once(&format!("<{name}>"))?;
        Some(content.split_once('<')?.0.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let parts = ["Code", "Message"].into_iter().filter_map(element).collect::<Vec<_>>();
    let answer = if parts.is_empty() { "an XML document".to_owned() } else { parts.join(": ") };
    format!("{before}{answer}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::response::name_right;
    use crate::store::error::{BoxError, StoreError, backend_error};

    #[test]
    fn an_xml_document_is_reduced_to_its_code_and_message() {
        let text = "status code: 403: <?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code>\n<Message>Access\n \
                    Denied.</Message><RequestId>1</RequestId></Error>\nhint: do it";
        assert_eq!(concise(text), "status code: 403: AccessDenied: Access Denied.\nhint: do it");
        assert_eq!(concise("cut off: <?xml ver"), "cut off: an XML document");
        assert_eq!(concise("no document"), "no document");
    }

    #[test]
    fn a_reason_names_neither_path_nor_url() {
        let of = |source: BoxError| {
            let error = object_store::Error::Generic { store: "S3", source };
            reason(&backend_error(error))
        };
        let path = "/srv/secret/plan.bin";
        let full = io::Error::new(io::ErrorKind::StorageFull, path);
        assert!(of(full.into()).starts_with("no space is left"));
        let read_only = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, path);
        insta::assert_snapshot!(of(read_only.into()), @"read-only filesystem or storage medium; the datastore's log has the details");
        let failed = "PUT http://10.0.0.1/bucket/key: Server returned status code: 503";
        insta::assert_snapshot!(of(failed.into()), @"it answers 503; the datastore's log has the details");
        insta::assert_snapshot!(of("http://10.0.0.1".into()), @"the datastore's log has the details");
        let denied = "POST http://10.0.0.1/bucket: Server returned status code: 403";
        let named = |text: &str| {
            let error = object_store::Error::Generic { store: "S3", source: text.into() };
            reason(&backend_error(name_right(error, "s3:PutObject")))
        };
        insta::assert_snapshot!(named(denied), @"it denies access; the datastore's credentials need the right s3:PutObject");
        insta::assert_snapshot!(named(&format!("{denied}: ExpiredToken")), @"it does not accept the datastore's credentials; the datastore's log has the details");
        let answer = |text: &str| format!("{denied}: <Error><Code>{text}</Message></Error>");
        insta::assert_snapshot!(named(&answer("AccountProblem</Code><Message>unpaid")), @"it denies access; the datastore's log has the details");
        // Azure answers this if its firewall refuses the caller.
        insta::assert_snapshot!(named(&answer("AuthorizationFailure</Code><Message>no")), @"it denies access; the datastore's log has the details");
        insta::assert_snapshot!(named(&answer("AuthorizationPermissionMismatch</Code><Message>no")), @"it denies access; the datastore's credentials need the right s3:PutObject");
        // S3 answers this to a signed URL if the clocks differ.
        insta::assert_snapshot!(named(&answer("AccessDenied</Code><Message>Request has expired")), @"it refuses the time of this machine's clock: set the clock, by NTP for example; the datastore's log has the details");
        insta::assert_snapshot!(named(&answer("SlowDown</Code><Message>no")), @"it limits the rate of requests: try again later; the datastore's log has the details");
        let kms = "AccessDenied</Code><Message>User: arn:aws:iam::1:user/a is not authorized to perform: \
                   kms:GenerateDataKey on resource: arn:aws:kms:x";
        insta::assert_snapshot!(named(&answer(kms)), @"it denies access; the datastore's credentials need the right kms:GenerateDataKey");
        let expired = answer("ExpiredToken</Code><Message>expired").replace("403", "400");
        insta::assert_snapshot!(named(&expired), @"it does not accept the datastore's credentials; the datastore's log has the details");
        let missing = object_store::Error::NotFound { path: path.into(), source: path.into() };
        assert_eq!(
            reason(&StoreError::Backend(missing.into())),
            "its bucket or directory is missing"
        );
    }
}
