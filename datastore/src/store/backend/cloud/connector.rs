//! Adds a condition to the completion of a multipart upload, which `object_store` does not offer.
//!
//! A completion within [`create_only`] succeeds only if no object exists. The header is added after the request was signed,
//! because the signature need not cover it. A probe finds out whether a server honours it.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datastore_api::chain;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, Error};

use crate::store::backend::reason::status;

tokio::task_local! {
    static CREATES: ();
}

/// Connects as `object_store` does, and adds the condition.
#[derive(Clone, Debug)]
pub(in crate::store) struct Connector {
    header: &'static str,
    value: &'static str,
    /// The client, after the first connection.
    pub(in crate::store) client: Arc<OnceLock<HttpClient>>,
}

impl Connector {
    /// `If-None-Match: *`, as S3 has it.
    pub(in crate::store) fn s3() -> Self {
        Self { header: "if-none-match", value: "*", client: Arc::default() }
    }

    /// The same for Google Cloud Storage.
    pub(in crate::store) fn gcs() -> Self {
        Self { header: "x-goog-if-generation-match", value: "0", client: Arc::default() }
    }
}

/// Runs `work`, in which a multipart upload is completed only if it creates the object.
pub(in crate::store) async fn create_only<T>(work: impl Future<Output = T>) -> T {
    CREATES.scope((), work).await
}

/// Whether a completion was refused because an object exists. For Google Cloud Storage `object_store` has no error of
/// its own.
pub(in crate::store) fn is_create_rejected(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::AlreadyExists { .. })
        || status(&chain(error)) == Some(412)
}

#[derive(Debug)]
struct Conditional {
    client: HttpClient,
    connector: Connector,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let client = HttpClient::new(Conditional { client, connector: self.clone() });
        Ok(self.client.get_or_init(|| client).clone())
    }
}

#[async_trait]
impl HttpService for Conditional {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        let completes = request.method() == "POST" && query.contains("uploadId=");
        if completes
            && CREATES.try_with(|()| ()).is_ok()
            && let Ok(value) = self.connector.value.parse()
        {
            request.headers_mut().insert(self.connector.header, value);
        }
        self.client.execute(request).await
    }
}
