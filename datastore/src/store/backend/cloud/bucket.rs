//! A bucket and how it is opened. Credentials come from the cloud's default chain, configured by [`Variables`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::gcp::{
    GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey,
};
use object_store::list::PaginatedListStore;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig,
    StaticCredentialProvider,
};
use url::Url;

use crate::store::backend::cloud::abandoned::{Abandoned, UploadLister};
use crate::store::backend::cloud::connector::Connector;
use crate::store::backend::cloud::provider::{BASE_URL, EMULATOR, Provider};
use crate::store::backend::cloud::variables::Variables;
use crate::store::error::BoxError;
use crate::store::key::MAX_PREFIX;

/// A bucket, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloud {
    /// The cloud.
    pub provider: Provider,
    /// The bucket's name; on Azure the container's.
    pub bucket: String,
    /// The prefix of all keys, without slashes at its ends; may be empty.
    pub prefix: String,
    /// The variables for credentials, endpoints and limits.
    pub variables: Variables,
}

/// An open bucket.
pub(in crate::store) struct OpenedBucket {
    pub(in crate::store) objects: Arc<dyn ObjectStore>,
    pub(in crate::store) pages: Arc<dyn PaginatedListStore>,
    /// `None` if requests are not signed.
    pub(in crate::store) credentials: Option<Credentials>,
    /// Lists abandoned uploads, where the cloud keeps them.
    pub(in crate::store) abandoned: Option<Abandoned>,
}

/// Checks whether credentials can be obtained.
pub(in crate::store) type Credentials =
    Arc<dyn Fn() -> BoxFuture<'static, object_store::Result<()>> + Send + Sync>;

/// How many idle connections to the bucket are kept for later requests. Several hundred requests may run in parallel.
const IDLE_CONNECTIONS: usize = 256;

impl Cloud {
    /// The bucket and prefix that `rest` of a URL names: `bucket[/prefix]`.
    pub fn parse(provider: Provider, rest: &str) -> Result<Self, String> {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let scheme = provider.scheme();
        let named = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
        if bucket.is_empty() || bucket.len() > 222 || !bucket.bytes().all(named) {
            return Err(format!("expected {scheme}://BUCKET or {scheme}://BUCKET/PREFIX"));
        }
        let prefix = prefix.trim_end_matches('/');
        let plain = prefix.bytes().all(|c| named(c) || c == b'/') && prefix.len() <= MAX_PREFIX;
        let whole = prefix.is_empty()
            || prefix.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if !plain || !whole {
            return Err(
                "expected a prefix of letters, digits, `-`, `.`, `_` and single `/`, without `.` or `..` as \
                 names, of at most 60 bytes"
                    .to_owned(),
            );
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Ok(Self { provider, bucket, prefix, variables: Variables::default() })
    }

    pub(in crate::store) fn open(&self) -> Result<OpenedBucket, BoxError> {
        match self.provider {
            Provider::S3 => {
                let connector = Connector::s3();
                let s3 = Arc::new(self.s3(&connector)?);
                let credentials = Arc::clone(s3.credentials());
                let client = connector.bucket_client();
                let lister = UploadLister::S3(Arc::clone(&s3));
                let abandoned = client.map(|client| Abandoned { lister, client });
                Ok(OpenedBucket { abandoned, ..self.opened(&s3, credential_check(credentials)) })
            }
            Provider::Gcs => {
                let connector = Connector::gcs();
                let gcs = Arc::new(self.gcs(&connector)?);
                let credentials = Arc::clone(gcs.credentials());
                let client = connector.bucket_client();
                let (url, signs) = (self.gcs_url()?, !self.variables.skip_signature());
                let lister = UploadLister::Gcs { gcs: Arc::clone(&gcs), url, signs };
                let abandoned = client.map(|client| Abandoned { lister, client });
                Ok(OpenedBucket { abandoned, ..self.opened(&gcs, credential_check(credentials)) })
            }
            Provider::Azure => {
                let azure = Arc::new(self.azure(&Connector::azure())?);
                let credentials = Arc::clone(azure.credentials());
                Ok(self.opened(&azure, credential_check(credentials)))
            }
        }
    }

    fn opened<T>(&self, store: &Arc<T>, credentials: Credentials) -> OpenedBucket
    where
        T: ObjectStore + PaginatedListStore,
    {
        let objects: Arc<dyn ObjectStore> = if self.prefix.is_empty() {
            Arc::clone(store) as _
        } else {
            Arc::new(PrefixStore::new(Arc::clone(store) as Arc<dyn ObjectStore>, &*self.prefix))
        };
        let credentials = Some(credentials).filter(|_| !self.variables.skip_signature());
        OpenedBucket { objects, pages: Arc::clone(store) as _, credentials, abandoned: None }
    }

    fn s3(&self, connector: &Connector) -> Result<AmazonS3, BoxError> {
        let http = Provider::S3
            .endpoints()
            .iter()
            .find_map(|name| self.variables.get(name))
            .is_some_and(|url| url.starts_with("http://"));
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(connector.clone())
            .with_retry(retry())
            .with_client_options(client())
            // TLS protects the body, and the object carries our own digest.
            .with_unsigned_payload(!http);
        for (key, value) in self.variables.typed::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
        let endpoint = self.virtual_endpoint().map_err(|(name, why)| format!("{name}: {why}"))?;
        if let Some(endpoint) = endpoint {
            builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        Ok(builder.with_bucket_name(&self.bucket).build()?)
    }

    /// The URL of the bucket, for requests that `object_store` does not offer.
    fn gcs_url(&self) -> Result<Url, BoxError> {
        let base = self.emulator().or_else(|| self.variables.get(BASE_URL).map(str::to_owned));
        let base = base.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        Ok(Url::parse(&format!("{}/{}", base.trim_end_matches('/'), self.bucket))?)
    }

    /// The URL of the emulator of Google Cloud Storage, if one is set. `object_store` does not read this variable.
    fn emulator(&self) -> Option<String> {
        let host = self.variables.get(EMULATOR)?;
        Some(if host.contains("://") { host.to_owned() } else { format!("http://{host}") })
    }

    fn gcs(&self, connector: &Connector) -> object_store::Result<GoogleCloudStorage> {
        let mut builder = GoogleCloudStorageBuilder::new()
            .with_http_connector(connector.clone())
            .with_retry(retry())
            .with_client_options(client());
        for (key, value) in self.variables.typed::<GoogleConfigKey>() {
            builder = builder.with_config(key, value);
        }
        if let Some(url) = self.emulator() {
            let anonymous = GcpCredential { bearer: String::new() };
            builder = builder
                .with_base_url(&url)
                .with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true")
                .with_credentials(Arc::new(StaticCredentialProvider::new(anonymous)));
        }
        builder.with_bucket_name(&self.bucket).build()
    }

    fn azure(&self, connector: &Connector) -> object_store::Result<MicrosoftAzure> {
        let mut builder = MicrosoftAzureBuilder::new()
            .with_http_connector(connector.clone())
            .with_retry(retry())
            .with_client_options(client());
        for (key, value) in self.variables.typed::<AzureConfigKey>() {
            builder = builder.with_config(key, value);
        }
        builder.with_container_name(&self.bucket).build()
    }
}

/// No timeout for a whole transfer, and none without progress: the client's own timeout without progress would also end an
/// upload while its body is being sent. [`Metered`](crate::store::backend::metered::Metered) has a timeout for each step.
fn client() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(3))
        .with_pool_max_idle_per_host(IDLE_CONNECTIONS)
}

/// A few retries, which end before a caller gives up.
fn retry() -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(20) }
}

fn credential_check<C: Send + Sync + 'static>(
    provider: Arc<dyn object_store::CredentialProvider<Credential = C>>,
) -> Credentials {
    Arc::new(move || {
        let provider = Arc::clone(&provider);
        Box::pin(async move { provider.get_credential().await.map(drop) })
    })
}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.provider.scheme(), self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}
