//! Whether the answer to a request for one object is that of a storage, or that of a proxy in its place.
//!
//! `object_store` takes any answer with 200 for an object and any with 404 for a missing one. So a page of a proxy would be
//! an object, or hide one; it also takes any success with an `ETag` for a stored object. What storages send differs: an answer is theirs if it has a header of their own (AWS,
//! moto, gofakes3, Google, Azure and most others), or if it could be that of a plain server such as s3s-fs, whose HEAD has only
//! `Last-Modified`, and whose 404 only an XML document. The answer to a PUT has no body.

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use axum::http::{HeaderMap, Method, StatusCode};
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};

use crate::store::backend::response::code;

/// The answer says nothing about an object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::store) enum WrongAnswer {
    /// It is not that of a storage.
    #[error(
        "its answer {status} is not that of {storage}: check the endpoint, and whether a proxy answers in the place of the storage"
    )]
    NotStorage {
        /// Its status.
        status: u16,
        /// What it should come from.
        storage: &'static str,
    },
    /// The bucket is missing.
    #[error("it has no such bucket ({0}): create the bucket, or correct --storage")]
    NoBucket(&'static str),
}

/// The start of names of headers that only storages send.
const OWN_HEADERS: [&str; 4] = ["x-amz", "x-goog-", "x-guploader-", "x-ms-"];

/// Codes of answers with 404 where not the object is missing.
const NO_BUCKET: [&str; 5] = [
    "NoSuchBucket",
    "ContainerNotFound",
    "ContainerBeingDeleted",
    "ContainerDisabled",
    "ResourceNotFound",
];

/// The code of an answer of Azure, also to HEAD.
const AZURE_CODE: &str = "x-ms-error-code";

/// Whether a request reads or deletes one object, or writes it or a part of it, and its answer is not that of another
/// operation.
pub(super) fn is_object_request(method: &Method, query: &str) -> bool {
    let other = |parameter: &str| {
        let name = parameter.split('=').next().unwrap_or_default();
        ["uploads", "uploadId", "comp", "session", "list-type"].contains(&name)
    };
    *method == Method::PUT
        || [Method::GET, Method::HEAD, Method::DELETE].contains(method)
            && !query.split('&').any(other)
}

/// The same answer to a request for one object, if it is that of a storage. `storage` is what an error calls it.
pub(super) async fn check_object(
    method: Method,
    storage: &'static str,
    response: HttpResponse,
) -> Result<HttpResponse, HttpError> {
    let status = response.status();
    let wrong = |wrong| HttpError::new(HttpErrorKind::Decode, wrong);
    let not_storage = || wrong(WrongAnswer::NotStorage { status: status.as_u16(), storage });
    if method == Method::PUT {
        let is_storage = !status.is_success() || is_stored(response.headers());
        return if is_storage { Ok(response) } else { Err(not_storage()) };
    }
    if status.is_success() && method != Method::DELETE {
        return if is_object(response.headers()) { Ok(response) } else { Err(not_storage()) };
    }
    if status != StatusCode::NOT_FOUND {
        return Ok(response);
    }
    if let Some(code) = response.headers().get(AZURE_CODE).and_then(|code| code.to_str().ok())
        && let Some(missing) = no_bucket(code)
    {
        return Err(wrong(WrongAnswer::NoBucket(missing)));
    }
    if method == Method::HEAD {
        return if is_missing(response.headers()) { Ok(response) } else { Err(not_storage()) };
    }
    let (parts, body) = response.into_parts();
    let body = body.bytes().await?;
    match code(&String::from_utf8_lossy(&body)) {
        Some(code) => {
            if let Some(missing) = no_bucket(code) {
                return Err(wrong(WrongAnswer::NoBucket(missing)));
            }
        }
        None if is_own(&parts.headers) => {}
        None => return Err(not_storage()),
    }
    Ok(HttpResponse::from_parts(parts, body.into()))
}

fn no_bucket(code: &str) -> Option<&'static str> {
    NO_BUCKET.into_iter().find(|known| *known == code)
}

/// Whether the answer has a header that only storages send.
fn is_own(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| OWN_HEADERS.iter().any(|own| name.as_str().starts_with(own)))
}

/// Whether an answer with 200 or 206 is an object.
fn is_object(headers: &HeaderMap) -> bool {
    let has_version = headers.contains_key(ETAG) || headers.contains_key(LAST_MODIFIED);
    is_own(headers) || has_version && !content_type(headers).starts_with("text/html")
}

/// Whether a success is the answer to a PUT.
fn is_stored(headers: &HeaderMap) -> bool {
    let is_empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    is_own(headers) || is_empty && !content_type(headers).starts_with("text/html")
}

/// Whether an answer to HEAD with 404, which has no document, is that of a storage.
fn is_missing(headers: &HeaderMap) -> bool {
    let content_type = content_type(headers);
    let is_empty = headers.get(CONTENT_LENGTH).is_some_and(|length| length == "0");
    is_own(headers) || content_type.is_empty() || content_type.contains("xml") || is_empty
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[tokio::test]
    async fn only_what_a_storage_may_answer_is_an_object_or_a_missing_one() {
        let check = async |method, status: u16, pairs: &[_], body: &'static str| {
            let mut response = HttpResponse::new(body.as_bytes().to_vec().into());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            *response.headers_mut() = headers(pairs);
            let checked = check_object(method, "an S3 server", response).await;
            checked.map(drop).map_err(|error| datastore_api::chain(&error))
        };
        let html = ("content-type", "text/html; charset=utf-8");
        let xml = ("content-type", "application/xml");
        let no_key = "<Error><Code>NoSuchKey</Code></Error>";
        for (method, status, pairs, body) in [
            (Method::GET, 200, &[("etag", "\"a\"")][..], ""),
            (Method::GET, 206, &[("etag", "\"a\""), html, ("x-amz-request-id", "1")], ""),
            // s3s-fs.
            (Method::HEAD, 200, &[("last-modified", "x"), ("content-type", "a/b")], ""),
            (Method::HEAD, 404, &[xml], ""),
            (Method::GET, 404, &[xml], no_key),
            // moto.
            (Method::HEAD, 404, &[html, ("content-length", "0"), ("x-amzn-requestid", "1")], ""),
            (Method::HEAD, 404, &[], ""),
            (Method::GET, 404, &[("x-goog-hash", "1")], "Not Found"),
            (Method::GET, 404, &[("x-ms-error-code", "BlobNotFound")], ""),
            (Method::DELETE, 204, &[], ""),
            (Method::DELETE, 404, &[xml], no_key),
            (Method::GET, 503, &[html], "<html>"),
            (Method::PUT, 200, &[("etag", "\"a\"")], ""),
            (Method::PUT, 200, &[html, ("x-amzn-requestid", "1")], ""),
            (Method::PUT, 201, &[("content-length", "0")], ""),
            (Method::PUT, 404, &[xml], ""),
        ] {
            assert_eq!(
                check(method.clone(), status, pairs, body).await,
                Ok(()),
                "{method} {pairs:?}"
            );
        }
        for (method, status, pairs, body) in [
            (Method::GET, 200, &[html][..], "<html>"),
            (Method::GET, 200, &[html, ("etag", "\"a\"")], "<html>"),
            (Method::HEAD, 200, &[("content-type", "application/json")], ""),
            (Method::GET, 404, &[html], "<html>"),
            (Method::HEAD, 404, &[html, ("content-length", "9")], ""),
            (Method::HEAD, 404, &[("content-type", "text/plain"), ("content-length", "19")], ""),
            (Method::DELETE, 404, &[html], "<html>"),
            (Method::PUT, 200, &[html, ("etag", "\"a\"")], "<html>"),
            (Method::PUT, 200, &[("etag", "\"a\""), ("content-length", "9")], "{\"a\": \"b\"}"),
        ] {
            let error = check(method.clone(), status, pairs, body).await.unwrap_err();
            let expected = format!("its answer {status} is not that of an S3 server");
            assert!(error.contains(&expected), "{method} {pairs:?}: {error}");
        }
        let no_bucket = "<Error><Code>NoSuchBucket</Code></Error>";
        let azure = ("x-ms-error-code", "ContainerNotFound");
        for (method, pairs, body) in
            [(Method::GET, &[xml][..], no_bucket), (Method::HEAD, &[azure], "")]
        {
            let error = check(method, 404, pairs, body).await.unwrap_err();
            assert!(error.contains("it has no such bucket"), "{error}");
        }
    }
}
