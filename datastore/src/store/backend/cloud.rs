//! S3, Google Cloud Storage and Azure Blob Storage: how they are named, and how they are opened.
//!
//! Credentials come from each cloud's default chain, told by the variables that the cloud's own
//! programs read. It does not read the environment: [`crate::config`] does, and hands over what it
//! found of [`Provider::variables`].

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
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
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::store::backend::abandoned::{Abandoned, Bucket};
use crate::store::backend::connector::Connector;
use crate::store::{BoxError, MAX_PREFIX};

/// Who keeps the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Amazon S3, and what speaks like it.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

/// A bucket, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloud {
    /// Who keeps it.
    pub provider: Provider,
    /// The bucket's name; on Azure the container's.
    pub bucket: String,
    /// Everything lies below this, without slashes at its ends; may be empty.
    pub prefix: String,
    /// What the environment says of credentials, endpoints and limits.
    pub variables: Variables,
}

/// Variables of a cloud, some of them secret.
#[derive(Clone, Debug, Default)]
pub struct Variables(BTreeMap<&'static str, SecretString>);

/// A cloud that was opened.
pub(in crate::store) struct Opened {
    pub(in crate::store) objects: Arc<dyn ObjectStore>,
    pub(in crate::store) pages: Arc<dyn PaginatedListStore>,
    /// None where requests are not signed.
    pub(in crate::store) credentials: Option<Credentials>,
    /// Where uploads that were left behind can be listed.
    pub(in crate::store) abandoned: Option<Abandoned>,
}

/// Asks whether credentials can be had at all.
pub(in crate::store) type Credentials =
    Arc<dyn Fn() -> BoxFuture<'static, object_store::Result<()>> + Send + Sync>;

const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
const BASE_URL: &str = "GOOGLE_BASE_URL";
/// Connections kept for later: a few for each of some hundred requests at once.
const IDLE_CONNECTIONS: usize = 256;

const S3: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_S3_EXPRESS",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
    "AWS_IMDSV1_FALLBACK",
    "AWS_SKIP_SIGNATURE",
    "AWS_UNSIGNED_PAYLOAD",
    "AWS_CHECKSUM_ALGORITHM",
    "AWS_REQUEST_PAYER",
    "AWS_SERVER_SIDE_ENCRYPTION",
    "AWS_SSE_KMS_KEY_ID",
    "AWS_SSE_BUCKET_KEY_ENABLED",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "AWS_DISABLE_BULK_DELETE",
    "AWS_CONNECT_TIMEOUT",
    "AWS_READ_TIMEOUT",
    "AWS_PROXY_URL",
    "AWS_PROXY_CA_CERTIFICATE",
    "AWS_PROXY_EXCLUDES",
    "AWS_ALLOW_INVALID_CERTIFICATES",
];
const GCS: &[&str] = &[
    EMULATOR,
    "SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_BEARER_TOKEN",
    BASE_URL,
    "GOOGLE_SKIP_SIGNATURE",
    "GOOGLE_ALLOW_HTTP",
    "GOOGLE_CONNECT_TIMEOUT",
    "GOOGLE_READ_TIMEOUT",
    "GOOGLE_PROXY_URL",
    "GOOGLE_PROXY_CA_CERTIFICATE",
    "GOOGLE_PROXY_EXCLUDES",
];
const AZURE: &[&str] = &[
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURE_STORAGE_CLIENT_ID",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_STORAGE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_TENANT_ID",
    "AZURE_AUTHORITY_HOST",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_USE_AZURE_CLI",
    "AZURE_CREDENTIAL_TYPE",
    "AZURE_MSI_ENDPOINT",
    "AZURE_IDENTITY_ENDPOINT",
    "IDENTITY_ENDPOINT",
    "AZURE_OBJECT_ID",
    "AZURE_MSI_RESOURCE_ID",
    "AZURE_SKIP_SIGNATURE",
    "AZURE_ALLOW_HTTP",
    "AZURE_CONNECT_TIMEOUT",
    "AZURE_READ_TIMEOUT",
    "AZURE_PROXY_URL",
    "AZURE_PROXY_CA_CERTIFICATE",
    "AZURE_PROXY_EXCLUDES",
];

impl Provider {
    /// The provider that a URL of this scheme means.
    pub fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" => Some(Self::S3),
            "gs" => Some(Self::Gcs),
            "az" => Some(Self::Azure),
            _ => None,
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }

    /// The variables that tell how to reach it.
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Self::S3 => S3,
            Self::Gcs => GCS,
            Self::Azure => AZURE,
        }
    }

    /// Where its credentials are looked for, for people who have none.
    pub(in crate::store) fn way_out(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role is given \
                 (IRSA, EKS Pod Identity, ECS, EC2); AWS_REGION and AWS_ENDPOINT_URL_S3 say where \
                 the bucket is. Profiles of ~/.aws are not read"
            }
            Self::Gcs => {
                "set GOOGLE_APPLICATION_CREDENTIALS or run `gcloud auth application-default login`, \
                 or run where a service account is given (GKE Workload Identity, GCE)"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or \
                 AZURE_STORAGE_SAS_TOKEN, or run where an identity is given (workload identity, \
                 managed identity)"
            }
        }
    }
}

impl Cloud {
    /// The bucket and prefix that `rest` of a URL names: `bucket[/prefix]`.
    pub fn parse(provider: Provider, rest: &str) -> Result<Self, String> {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let scheme = provider.scheme();
        let named = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
        if bucket.is_empty() || bucket.len() > 222 || !bucket.bytes().all(named) {
            return Err(format!(
                "names no bucket: write {scheme}://bucket or {scheme}://bucket/prefix"
            ));
        }
        let prefix = prefix.trim_end_matches('/');
        let plain = prefix.bytes().all(|c| named(c) || c == b'/') && prefix.len() <= MAX_PREFIX;
        let whole = prefix.is_empty()
            || prefix.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        if !plain || !whole {
            return Err(
                "has a prefix that is no path of letters, digits, `-`, `.` and `_`, of at most 60 \
                 bytes"
                    .to_owned(),
            );
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Ok(Self { provider, bucket, prefix, variables: Variables::default() })
    }

    pub(in crate::store) fn open(&self) -> Result<Opened, BoxError> {
        match self.provider {
            Provider::S3 if self.variables.is_true("AWS_S3_EXPRESS") => Err(
                "AWS_S3_EXPRESS: a directory bucket lists in no order, and the runs of a layer and `gc` \
                 need one: use a general purpose bucket"
                    .into(),
            ),
            Provider::S3 => {
                let connector = Connector::s3();
                let s3 = Arc::new(self.s3(&connector)?);
                let credentials = Arc::clone(s3.credentials());
                let client = connector.client.get().cloned();
                let bucket = Bucket::S3(Arc::clone(&s3));
                let abandoned = client.map(|client| Abandoned { bucket, client });
                Ok(Opened { abandoned, ..self.opened(&s3, asking(credentials)) })
            }
            Provider::Gcs => {
                let connector = Connector::gcs();
                let gcs = Arc::new(self.gcs(&connector)?);
                let credentials = Arc::clone(gcs.credentials());
                let client = connector.client.get().cloned();
                let (url, signs) = (self.gcs_url()?, !self.variables.skip_signature());
                let bucket = Bucket::Gcs { gcs: Arc::clone(&gcs), url, signs };
                let abandoned = client.map(|client| Abandoned { bucket, client });
                Ok(Opened { abandoned, ..self.opened(&gcs, asking(credentials)) })
            }
            Provider::Azure => {
                let azure = Arc::new(self.azure()?);
                let credentials = Arc::clone(azure.credentials());
                Ok(self.opened(&azure, asking(credentials)))
            }
        }
    }

    fn opened<T>(&self, store: &Arc<T>, credentials: Credentials) -> Opened
    where
        T: ObjectStore + PaginatedListStore,
    {
        let objects: Arc<dyn ObjectStore> = if self.prefix.is_empty() {
            Arc::clone(store) as _
        } else {
            Arc::new(PrefixStore::new(Arc::clone(store) as Arc<dyn ObjectStore>, &*self.prefix))
        };
        let credentials = Some(credentials).filter(|_| !self.variables.skip_signature());
        Opened { objects, pages: Arc::clone(store) as _, credentials, abandoned: None }
    }

    fn s3(&self, connector: &Connector) -> object_store::Result<AmazonS3> {
        let http = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
            .iter()
            .find_map(|name| self.variables.get(name))
            .is_some_and(|url| url.starts_with("http://"));
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(connector.clone())
            .with_retry(retry())
            .with_client_options(client())
            // TLS protects the body already, and our own sha256 stays with the object.
            .with_unsigned_payload(!http);
        for (key, value) in self.variables.typed::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
        builder.with_bucket_name(&self.bucket).build()
    }

    /// The URL of the bucket, for what `object_store` does not ask of it.
    fn gcs_url(&self) -> Result<Url, BoxError> {
        let base = self.emulator().or_else(|| self.variables.get(BASE_URL).map(str::to_owned));
        let base = base.unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
        Ok(Url::parse(&format!("{}/{}", base.trim_end_matches('/'), self.bucket))?)
    }

    /// The URL of an emulator, if it is one.
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
            let nobody = GcpCredential { bearer: String::new() };
            builder = builder
                .with_base_url(&url)
                .with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true")
                .with_credentials(Arc::new(StaticCredentialProvider::new(nobody)));
        }
        builder.with_bucket_name(&self.bucket).build()
    }

    fn azure(&self) -> object_store::Result<MicrosoftAzure> {
        let mut builder =
            MicrosoftAzureBuilder::new().with_retry(retry()).with_client_options(client());
        for (key, value) in self.variables.typed::<AzureConfigKey>() {
            builder = builder.with_config(key, value);
        }
        builder.with_container_name(&self.bucket).build()
    }
}

/// No limit on a whole transfer. How long a step may take is [`Metered`](crate::store::backend::metered::Metered)'s to say: the
/// client's own limit on silence also runs while a body is on its way to the backend.
fn client() -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(3))
        .with_pool_max_idle_per_host(IDLE_CONNECTIONS)
}

/// A few tries within a time that a caller still waits for.
fn retry() -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(20) }
}

fn asking<C: Send + Sync + 'static>(
    provider: Arc<dyn object_store::CredentialProvider<Credential = C>>,
) -> Credentials {
    Arc::new(move || {
        let provider = Arc::clone(&provider);
        Box::pin(async move { provider.get_credential().await.map(drop) })
    })
}

impl Variables {
    /// What `environment` says of a provider; an empty variable is none.
    pub fn read(provider: Provider, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let found = provider.variables().iter().filter_map(|name| {
            let value = environment(name).filter(|value| !value.is_empty())?;
            Some((*name, SecretString::from(value)))
        });
        Self(found.collect())
    }

    /// The names of those that are set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(ExposeSecret::expose_secret)
    }

    /// Whether requests go out without a signature: to a server that everybody may use.
    fn skip_signature(&self) -> bool {
        ["AWS_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE", "AZURE_SKIP_SIGNATURE"]
            .iter()
            .any(|name| self.is_true(name))
    }

    /// As the builders read it.
    fn is_true(&self, name: &str) -> bool {
        let text = self.get(name).unwrap_or_default().to_ascii_lowercase();
        ["1", "true", "on", "yes", "y"].contains(&&*text)
    }

    /// Those that a builder knows.
    fn typed<K: FromStr>(&self) -> impl Iterator<Item = (K, &str)> {
        self.0.iter().filter_map(|(name, value)| {
            Some((name.to_ascii_lowercase().parse().ok()?, value.expose_secret()))
        })
    }
}

impl PartialEq for Variables {
    fn eq(&self, other: &Self) -> bool {
        let all = |variables: &Self| {
            variables.0.iter().map(|(k, v)| (*k, v.expose_secret().to_owned())).collect::<Vec<_>>()
        };
        all(self) == all(other)
    }
}

impl Eq for Variables {}

impl fmt::Display for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.provider.scheme(), self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}
