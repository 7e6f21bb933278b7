//! Whether the answer of a cloud is the document that was asked for.
//!
//! `object_store` reads any XML as a listing, and takes one without objects for an empty bucket: with a page of a proxy, no
//! object would exist. It takes an answer without errors for the deletion of all objects in the same way.

use axum::http::Method;
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use quick_xml::Reader;
use quick_xml::events::Event;

/// The answer is another document, or the rest of it cannot be asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it answers {what} instead of {expected}: check the endpoint, and whether a proxy answers in the place of the storage"
)]
pub(in crate::store) struct WrongDocument {
    what: String,
    expected: &'static str,
}

impl WrongDocument {
    /// Whether the answer is one of S3, though to another request: the server ignores a part of the query.
    pub(in crate::store) fn is_listing(&self) -> bool {
        self.what == element(LISTING)
    }
}

/// The most characters of an element's name that an error shows.
const MAX_NAME: usize = 40;

/// The root element of a listing of objects on S3 and Google Cloud Storage.
const LISTING: &str = "ListBucketResult";

/// The root element of the answer to such a request, if it is one whose answer must be checked.
pub(super) fn expected_root(method: &Method, query: &str) -> Option<&'static str> {
    let has = |parameter: &str| query.split('&').any(|found| found == parameter);
    if *method == Method::GET && has("list-type=2") {
        Some(LISTING)
    } else if *method == Method::GET && has("comp=list") {
        Some("EnumerationResults")
    } else if *method == Method::POST && (has("delete") || has("delete=")) {
        Some("DeleteResult")
    } else {
        None
    }
}

/// The same answer, if it is a refusal or has this root element.
pub(super) async fn check_document(
    expected: &'static str,
    response: HttpResponse,
) -> Result<HttpResponse, HttpError> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let body = body.bytes().await?;
    let checked = check_root(expected, &body).and_then(|()| check_rest(expected, &body));
    checked.map_err(|wrong| HttpError::new(HttpErrorKind::Decode, wrong))?;
    Ok(HttpResponse::from_parts(parts, body.into()))
}

/// Fails if a document has another root element.
pub(super) fn check_root(expected: &'static str, document: &[u8]) -> Result<(), WrongDocument> {
    let mut reader = Reader::from_reader(document);
    let what = loop {
        match reader.read_event() {
            Ok(Event::Start(root) | Event::Empty(root)) => {
                let name = root.local_name();
                if name.as_ref() == expected.as_bytes() {
                    return Ok(());
                }
                break element(&String::from_utf8_lossy(name.as_ref()));
            }
            Ok(Event::Text(text)) if !text.trim_ascii().is_empty() => break "no XML".to_owned(),
            Ok(Event::Eof) if document.trim_ascii().is_empty() => break "nothing".to_owned(),
            Ok(Event::Eof) | Err(_) => break "no XML".to_owned(),
            Ok(_) => {}
        }
    };
    Err(WrongDocument { what, expected })
}

/// Fails if a listing is cut off and does not say how it continues, as from servers that know only the first version of
/// the request.
fn check_rest(expected: &'static str, document: &[u8]) -> Result<(), WrongDocument> {
    if expected != LISTING {
        return Ok(());
    }
    let text = String::from_utf8_lossy(document);
    if text.contains("<IsTruncated>true<") && !text.contains("<NextContinuationToken>") {
        let what = "a part of a listing without the token for the rest".to_owned();
        return Err(WrongDocument { what, expected });
    }
    Ok(())
}

/// A root element as an error shows it.
fn element(name: &str) -> String {
    let shown = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '?' };
    format!("a document `{}`", name.chars().take(MAX_NAME).map(shown).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_document_with_the_expected_root_is_accepted() {
        let of = |document: &str| {
            let checked = check_root(LISTING, document.as_bytes());
            checked.and_then(|()| check_rest(LISTING, document.as_bytes())).map_err(|e| e.what)
        };
        for good in [
            "<ListBucketResult/>",
            "\n<?xml version=\"1.0\"?>\n<!-- c -->\n<ListBucketResult xmlns=\"http://x/\"><Name/></ListBucketResult>",
            "<s3:ListBucketResult></s3:ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
        ] {
            assert_eq!(of(good), Ok(()), "{good}");
        }
        for (bad, expected) in [
            ("<!DOCTYPE html>\n<html><body><br></body></html>", "a document `html`"),
            ("<HTML><p>", "a document `HTML`"),
            ("<ListAllMyBucketsResult/>", "a document `ListAllMyBucketsResult`"),
            ("{\"message\": \"ok\"}", "no XML"),
            ("<", "no XML"),
            ("<?xml version=\"1.0\"?>", "no XML"),
            ("", "nothing"),
            (
                "<ListBucketResult><IsTruncated>true</IsTruncated><NextMarker>k</NextMarker></ListBucketResult>",
                "a part of a listing without the token for the rest",
            ),
        ] {
            assert_eq!(of(bad), Err(expected.to_owned()), "{bad}");
        }
        let long = format!("<{}\u{1b}/>", "a".repeat(100));
        assert!(of(&long).unwrap_err().len() < 60);
    }

    #[test]
    fn only_answers_that_the_client_would_misunderstand_are_checked() {
        let of = |method: Method, query: &str| expected_root(&method, query);
        assert_eq!(of(Method::GET, "list-type=2&prefix=a"), Some("ListBucketResult"));
        assert_eq!(of(Method::GET, "restype=container&comp=list"), Some("EnumerationResults"));
        assert_eq!(of(Method::POST, "delete"), Some("DeleteResult"));
        assert_eq!(of(Method::GET, ""), None);
        assert_eq!(of(Method::GET, "uploads=&prefix=list-type=2"), None);
        assert_eq!(of(Method::PUT, "partNumber=1&uploadId=delete"), None);
    }
}
