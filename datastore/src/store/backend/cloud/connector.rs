//! Adds a condition to the completion of a multipart upload, which `object_store` does not offer, and refuses answers that
//! `object_store` would misunderstand (`document.rs`, `object_answer.rs`).
//!
//! A completion within [`create_only`] succeeds only if no object exists, and one within [`replace_only`] only if the object
//! has that version. `object_store` signs a request before it passes it
//! to its HTTP client, which adds the header here. That is valid, because a signature need not cover this header. A probe
//! finds out whether a server honours it. Until then, a server that refuses the header itself gets the request without it:
//! the second try is here, because `object_store` completes an upload only once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use axum::http::HeaderValue;
use datastore_api::chain;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, Error, UpdateVersion};

use crate::store::backend::cloud::document::{check_document, expected_root};
use crate::store::backend::cloud::object_answer::{check_object, is_object_request};
use crate::store::backend::response::{code, is_permanent, may_be_permanent, status};

tokio::task_local! {
    /// Set while [`create_only`] or [`replace_only`] runs: `object_store` calls the HTTP client in the same task.
    static COMPLETION: Completion;
}

/// What a completion may do.
#[derive(Clone)]
enum Completion {
    Creates(Condition),
    /// This version.
    Replaces(UpdateVersion),
}

/// How a completion depends on the absence of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Condition {
    /// It fails where the server does not support the condition.
    Required,
    /// It is sent again without the condition where the server does not support it.
    IfSupported,
}

/// How S3 says that no object exists. Its condition for a version is another header.
const CREATES_S3: (&str, &str) = ("if-none-match", "*");

/// Connects as `object_store` does, and adds the condition. Clones share the client.
#[derive(Clone, Debug)]
pub(in crate::store) struct Connector {
    /// The header with its value; `None` where the signature covers it.
    condition: Option<(&'static str, &'static str)>,
    /// What is at the other end, as errors name it.
    storage: &'static str,
    client: Arc<Mutex<Option<HttpClient>>>,
    /// How many clients were made. The last one is that of the bucket.
    clients: Arc<AtomicUsize>,
}

impl Connector {
    /// `If-None-Match: *`, as S3 has it.
    pub(in crate::store) fn s3() -> Self {
        Self::new(Some(CREATES_S3), "an S3 server")
    }

    /// The same condition for Google Cloud Storage: no generation of the object exists.
    pub(in crate::store) fn gcs() -> Self {
        Self::new(Some(("x-goog-if-generation-match", "0")), "Google Cloud Storage")
    }

    /// No condition: on Azure the signature of a shared key covers the header.
    pub(in crate::store) fn azure() -> Self {
        Self::new(None, "Azure Blob Storage")
    }

    fn new(condition: Option<(&'static str, &'static str)>, storage: &'static str) -> Self {
        Self { condition, storage, client: Arc::default(), clients: Arc::default() }
    }

    /// The client of the bucket, once a builder of `object_store` has returned. A builder connects first for the
    /// credentials, with other options (the metadata service of a cloud is read over plain HTTP), and last for the
    /// bucket.
    pub(in crate::store) fn bucket_client(&self) -> Option<HttpClient> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs `work`, in which a multipart upload is completed only if it creates the object.
pub(in crate::store) async fn create_only<T>(
    condition: Condition,
    work: impl Future<Output = T>,
) -> T {
    COMPLETION.scope(Completion::Creates(condition), work).await
}

/// Runs `work`, in which a multipart upload is completed only if it replaces this version, where the server supports that.
pub(in crate::store) async fn replace_only<T>(
    version: UpdateVersion,
    work: impl Future<Output = T>,
) -> T {
    COMPLETION.scope(Completion::Replaces(version), work).await
}

/// Whether a completion was refused because an object exists, or is another version. For Google Cloud Storage, `object_store` reports this as a
/// general error with the status 412.
pub(in crate::store) fn is_create_rejected(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::AlreadyExists { .. })
        || status(&chain(error)) == Some(412)
}

/// A client that adds the header to a completion within [`create_only`], and checks answers.
#[derive(Debug)]
struct Conditional {
    client: HttpClient,
    condition: Option<(&'static str, &'static str)>,
    storage: &'static str,
    /// How many clients the connector has made, and which of them this is, from 1.
    clients: Arc<AtomicUsize>,
    number: usize,
}

impl Conditional {
    /// The header of a completion; `None` where there can be none.
    fn header(&self, completion: &Completion) -> Option<(&'static str, HeaderValue)> {
        let (header, value) = self.condition?;
        match completion {
            Completion::Creates(_) => Some((header, HeaderValue::from_static(value))),
            Completion::Replaces(UpdateVersion { e_tag, version }) => {
                let (header, value) =
                    if header == CREATES_S3.0 { ("if-match", e_tag) } else { (header, version) };
                Some((header, HeaderValue::from_str(value.as_deref()?).ok()?))
            }
        }
    }

    /// Executes a request, and fails if its answer is not what was asked for. Answers to the clients for credentials are
    /// others.
    async fn checked(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (method, query) = (request.method().clone(), request.uri().query().unwrap_or_default());
        let expected = expected_root(&method, query);
        let is_object = is_object_request(&method, query)
            && self.clients.load(Ordering::Relaxed) == self.number;
        let response = self.client.execute(request).await?;
        match expected {
            Some(expected) => check_document(expected, response).await,
            None if is_object => check_object(method, self.storage, response).await,
            None => Ok(response),
        }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let number = self.clients.fetch_add(1, Ordering::Relaxed) + 1;
        let Self { condition, storage, clients, .. } = self.clone();
        let client = HttpClient::new(Conditional { client, condition, storage, clients, number });
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }
}

#[async_trait]
impl HttpService for Conditional {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        let completes = request.method() == "POST" && query.contains("uploadId=");
        let completion = COMPLETION.try_with(Clone::clone).ok().filter(|_| completes);
        let header = completion.as_ref().and_then(|completion| self.header(completion));
        let Some((header, value)) = header else { return self.checked(request).await };
        let is_required = matches!(completion, Some(Completion::Creates(Condition::Required)));
        let without = (!is_required).then(|| request.clone());
        request.headers_mut().insert(header, value);
        let response = self.client.execute(request).await?;
        let status = response.status().as_u16();
        let Some(without) = without.filter(|_| may_be_permanent(status)) else {
            return Ok(response);
        };
        let (parts, body) = response.into_parts();
        let body = body.bytes().await?;
        if is_permanent(Some(status), code(&String::from_utf8_lossy(&body))) {
            return self.client.execute(without).await;
        }
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}
