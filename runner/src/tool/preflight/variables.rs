//! The variables by which providers and backends get credentials.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

/// Their names.
const NAMES: [&str; 62] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_CREDENTIALS_EXPIRATION",
    "AWS_SESSION_EXPIRATION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_STS",
    "AWS_STS_ENDPOINT",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "ARM_CLIENT_ID",
    "ARM_TENANT_ID",
    "ARM_CLIENT_ID_FILE_PATH",
    "AZURE_CLIENT_ID",
    "AZURE_TENANT_ID",
    "ARM_CLIENT_SECRET",
    "ARM_CLIENT_SECRET_FILE_PATH",
    "ARM_CLIENT_CERTIFICATE",
    "ARM_CLIENT_CERTIFICATE_PATH",
    "ARM_USE_OIDC",
    "ARM_USE_AKS_WORKLOAD_IDENTITY",
    "ARM_OIDC_TOKEN",
    "ARM_OIDC_TOKEN_FILE_PATH",
    "ARM_ACCESS_KEY",
    "ARM_SAS_TOKEN",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CREDENTIALS",
    "GOOGLE_CLOUD_KEYFILE_JSON",
    "GCLOUD_KEYFILE_JSON",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "GOOGLE_BACKEND_CREDENTIALS",
    "KUBE_TOKEN",
    "KUBE_USER",
    "KUBE_PASSWORD",
    "KUBE_CLIENT_CERT_DATA",
    "KUBE_CLIENT_KEY_DATA",
    "KUBE_CONFIG_PATH",
    "KUBE_CONFIG_PATHS",
    "KUBE_CTX_AUTH_INFO",
    "VAULT_ADDR",
    "VAULT_TOKEN",
    "VAULT_NAMESPACE",
    "VAULT_CACERT",
    "VAULT_CAPATH",
    "VAULT_CACERT_BYTES",
    "VAULT_SKIP_VERIFY",
    "VAULT_CLIENT_CERT",
    "VAULT_TLS_SERVER_NAME",
];

/// The values of the variables, as `read` finds them.
pub(crate) fn credentials(read: impl Fn(&'static str) -> Option<SecretString>) -> Credentials {
    NAMES.into_iter().filter_map(|name| Some((name, read(name)?))).collect()
}

/// Their values, which may be secret.
pub(crate) type Credentials = BTreeMap<&'static str, SecretString>;

/// The value of a variable. One that is set to nothing counts as unset, as for the SDKs.
pub(super) fn text<'a>(credentials: &'a Credentials, name: &str) -> Option<&'a str> {
    let value = credentials.get(name)?.expose_secret();
    Some(value).filter(|value| !value.is_empty())
}
