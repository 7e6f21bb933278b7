//! What the value of each variable must look like.
//!
//! `object_store` panics on some values, and its errors name no variable. An error here names the variable and never its
//! value, which may be a secret. `pairs.rs` checks variables that depend on each other, `virtual_host.rs` the endpoint that
//! has the bucket in its host.

mod google;
mod pairs;
mod virtual_host;

use axum::http::Uri;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{HttpConnector as _, ReqwestConnector};
use object_store::{ClientConfigKey, ClientOptions};
use url::Url;

use crate::store::backend::cloud::bucket::Cloud;
use crate::store::backend::cloud::provider::{BASE_URL, EMULATOR, Provider};
use crate::store::backend::cloud::variables::{Variables, is_true};

/// URLs of services. A service of a cloud's own network is read over plain HTTP.
const URLS: &[&str] = &[
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    EMULATOR,
    BASE_URL,
    "AZURE_STORAGE_ENDPOINT",
    "AZURITE_BLOB_STORAGE_URL",
    "AZURE_AUTHORITY_HOST",
    "AZURE_MSI_ENDPOINT",
    "AZURE_IDENTITY_ENDPOINT",
    "IDENTITY_ENDPOINT",
];

/// The URL that may have a query.
const WITH_QUERY: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";

const BOOLEANS: &[&str] = &[
    "AWS_ALLOW_HTTP",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AWS_S3_EXPRESS",
    "AWS_IMDSV1_FALLBACK",
    "AWS_SKIP_SIGNATURE",
    "AWS_UNSIGNED_PAYLOAD",
    "AWS_SSE_BUCKET_KEY_ENABLED",
    "AWS_DISABLE_BULK_DELETE",
    "AWS_ALLOW_INVALID_CERTIFICATES",
    "GOOGLE_SKIP_SIGNATURE",
    "GOOGLE_ALLOW_HTTP",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURE_USE_AZURE_CLI",
    "AZURE_SKIP_SIGNATURE",
    "AZURE_ALLOW_HTTP",
];

/// JSON or PEM, which have several lines.
const DOCUMENTS: &[&str] = &[
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "AWS_PROXY_CA_CERTIFICATE",
    "GOOGLE_PROXY_CA_CERTIFICATE",
    "AZURE_PROXY_CA_CERTIFICATE",
];

/// Variables with one of a few values.
const CHOICES: &[(&str, &[&str])] = &[
    ("AWS_CHECKSUM_ALGORITHM", &["sha256", "crc64nvme"]),
    ("AWS_SERVER_SIDE_ENCRYPTION", &["AES256", "aws:kms", "aws:kms:dsse", SSE_C]),
    (
        CREDENTIAL_TYPE,
        &[
            "auto",
            "bearer_token",
            "access_key",
            "client_secret",
            "workload_identity",
            "sas_token",
            "azure_cli",
            "managed_identity",
        ],
    ),
];

const SSE_C: &str = "sse-c";

const CREDENTIAL_TYPE: &str = "AZURE_CREDENTIAL_TYPE";

const ACCOUNT_NAME: &str = "AZURE_STORAGE_ACCOUNT_NAME";

/// A variable that cannot be used, and why.
pub(in crate::store) type Invalid = (&'static str, String);

impl Cloud {
    /// The variable that must be set and is not.
    pub fn missing(&self) -> Option<&'static str> {
        let is_needed = self.provider == Provider::Azure
            && !self.variables.is_true("AZURE_STORAGE_USE_EMULATOR");
        (is_needed && !self.variables.is_set(ACCOUNT_NAME)).then_some(ACCOUNT_NAME)
    }

    /// Checks each variable, and those that depend on each other or on the bucket.
    pub fn check(&self) -> Result<(), Invalid> {
        self.variables.check_each()?;
        self.variables.check_scheme(self.provider)?;
        self.variables.check_pairs(self.provider)?;
        self.virtual_endpoint().map(drop)
    }
}

impl Variables {
    fn check_each(&self) -> Result<(), Invalid> {
        for name in self.names() {
            let checked = self.get(name).map_or(Ok(()), |value| check_value(name, value));
            checked.map_err(|reason| (name, reason))?;
        }
        Ok(())
    }

    /// The variable with the URL of the storage, if one is set.
    fn endpoint(&self, provider: Provider) -> Option<&'static str> {
        provider.endpoints().iter().copied().find(|name| self.get(name).is_some())
    }

    /// `object_store` refuses plain HTTP at the first request, with an error that names nothing to set.
    fn check_scheme(&self, provider: Provider) -> Result<(), Invalid> {
        let sts = "AWS_ENDPOINT_URL_STS";
        if provider == Provider::S3 && self.uses_web_identity() && self.is_http(sts) {
            return Err((sts, "expected https://, because a token is sent there".to_owned()));
        }
        let allowed = match provider {
            Provider::S3 => false,
            Provider::Gcs => self.get(EMULATOR).is_some(),
            Provider::Azure => self.is_true("AZURE_STORAGE_USE_EMULATOR"),
        };
        let allow = provider.allow_http();
        match self.endpoint(provider) {
            Some(name) if self.is_http(name) && !allowed && !self.is_true(allow) => Err((
                name,
                format!(
                    "its scheme is http, which is not allowed\nhint: for a server without TLS, set {allow}=true; \
                     otherwise use https"
                ),
            )),
            _ => Ok(()),
        }
    }

    fn is_http(&self, name: &str) -> bool {
        let url = self.get(name).and_then(|value| Url::parse(value).ok());
        url.is_some_and(|url| url.scheme() == "http")
    }
}

/// Why a value cannot be used, without the value.
fn check_value(name: &str, value: &str) -> Result<(), String> {
    if DOCUMENTS.contains(&name) {
        let is_certificate = name.ends_with("_PROXY_CA_CERTIFICATE");
        return expected(!is_certificate || is_certificate_of_proxy(value), "a certificate in PEM");
    }
    check_characters(value)?;
    if URLS.contains(&name) {
        return check_url(name, value);
    }
    if let Some((_, choices)) = CHOICES.iter().find(|(variable, _)| *variable == name) {
        // `object_store` ignores the case of this one.
        let is_checksum = name == "AWS_CHECKSUM_ALGORITHM";
        let is =
            |choice: &&str| *choice == value || is_checksum && choice.eq_ignore_ascii_case(value);
        return expected(choices.iter().any(is), &choices.join(", "));
    }
    match name {
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" => {
            let is_path = value.starts_with('/') && value.parse::<Uri>().is_ok();
            expected(is_path, "a path that begins with `/`")
        }
        "AWS_REGION" | "AWS_DEFAULT_REGION" => {
            expected(is_made_of(value, b"-._"), "the name of a region, such as eu-west-1")
        }
        "AWS_REQUEST_PAYER" => expected(
            value.eq_ignore_ascii_case("requester") || is_boolean(value),
            "requester, true or false",
        ),
        "AWS_SSE_CUSTOMER_KEY_BASE64" => {
            let key = BASE64_STANDARD.decode(value);
            expected(key.is_ok_and(|key| key.len() == 32), "a key of 32 bytes in base64")
        }
        "AWS_S3_EXPRESS" if is_true(value) => Err(
            "a directory bucket lists in no order, and the runs of a layer and `gc` need the order of the keys\n\
             hint: use a general purpose bucket"
                .to_owned(),
        ),
        ACCOUNT_NAME => {
            expected(is_made_of(value, b"-._"), "the name of a storage account")
        }
        "AZURE_STORAGE_ACCOUNT_KEY" | "AZURE_STORAGE_ACCESS_KEY" => {
            expected(BASE64_STANDARD.decode(value).is_ok(), "a key in base64, as Azure shows it")
        }
        "AZURE_STORAGE_SAS_TOKEN" | "AZURE_STORAGE_SAS_KEY" => {
            expected(is_sas(value), "a SAS token, such as sv=...&sig=...")
        }
        "AZURE_TENANT_ID" | "AZURE_STORAGE_TENANT_ID" => {
            expected(is_made_of(value, b"-."), "the id or the domain of a tenant")
        }
        _ if BOOLEANS.contains(&name) => expected(is_boolean(value), "true or false"),
        _ if name.ends_with("_CONNECT_TIMEOUT") => {
            expected(configures(ClientConfigKey::ConnectTimeout, value), "a duration, such as 5s")
        }
        _ if name.ends_with("_READ_TIMEOUT") => {
            expected(configures(ClientConfigKey::ReadTimeout, value), "a duration, such as 5s")
        }
        _ if name.ends_with("_PROXY_URL") => {
            expected(configures(ClientConfigKey::ProxyUrl, value), "the URL of a proxy")
        }
        _ => Ok(()),
    }
}

fn expected(is_valid: bool, what: &str) -> Result<(), String> {
    if is_valid { Ok(()) } else { Err(format!("expected {what}")) }
}

fn check_characters(value: &str) -> Result<(), String> {
    if value.ends_with(['\n', '\r']) {
        return Err("it ends with a line break\nhint: write the secret without one, as \
                    `printf %s` or `echo -n` do"
            .to_owned());
    }
    if value.chars().any(char::is_control) {
        return Err("it contains a control character, such as a line break".to_owned());
    }
    if value.trim() != value {
        return Err("it begins or ends with a space".to_owned());
    }
    Ok(())
}

fn check_url(name: &str, value: &str) -> Result<(), String> {
    let is_host = name == EMULATOR && !value.contains("://");
    let url = if is_host { format!("http://{value}") } else { value.to_owned() };
    let parsed = Url::parse(&url);
    // An error of `object_store` shows the URL.
    if parsed.as_ref().is_ok_and(|url| !url.username().is_empty() || url.password().is_some()) {
        return Err("it contains a user or a password, which cannot be used there".to_owned());
    }
    let has_query = |url: &Url| url.query().is_some() && name != WITH_QUERY;
    if parsed.is_ok_and(|url| has_query(&url) || url.fragment().is_some()) {
        let what = "it contains a query (`?`) or a fragment (`#`), which cannot be used there";
        let sas = "\nhint: a SAS token belongs in AZURE_STORAGE_SAS_TOKEN";
        let hint = if name == "AZURE_STORAGE_ENDPOINT" { sas } else { "" };
        return Err(format!("{what}{hint}"));
    }
    let what = if is_host {
        "a host and a port, such as localhost:4443"
    } else {
        "a URL with http:// or https://, a host and a valid port, such as https://s3.example.com:9000"
    };
    expected(is_url(&url), what)
}

/// Whether both libraries that `object_store` uses parse the URL: it panics if one does not.
fn is_url(value: &str) -> bool {
    let url = Url::parse(value).ok();
    let is_http = url.is_some_and(|url| ["http", "https"].contains(&url.scheme()));
    is_http && value.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}

/// Whether a value has only letters, digits and these characters: it becomes a part of a URL.
fn is_made_of(value: &str, others: &[u8]) -> bool {
    value.bytes().all(|c| c.is_ascii_alphanumeric() || others.contains(&c))
}

/// Whether `object_store` parses the SAS token, and finds something in it.
fn is_sas(value: &str) -> bool {
    let azure = MicrosoftAzureBuilder::new().with_account("account").with_container_name("name");
    value.contains(|c: char| c.is_ascii_alphanumeric())
        && azure.with_config(AzureConfigKey::SasKey, value).build().is_ok()
}

/// In the spellings that `object_store` accepts.
fn is_boolean(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    ["1", "true", "on", "yes", "y", "0", "false", "off", "no", "n"].contains(&&*value)
}

/// Whether `object_store` makes a client with this option.
fn configures(key: ClientConfigKey, value: &str) -> bool {
    ReqwestConnector::default().connect(&ClientOptions::new().with_config(key, value)).is_ok()
}

/// Whether it makes one that trusts this certificate of a proxy. It reads the certificate only if a proxy is set.
fn is_certificate_of_proxy(value: &str) -> bool {
    let proxy = ClientOptions::new().with_proxy_url("http://localhost");
    let options = proxy.with_proxy_ca_certificate(value);
    value.contains("-----BEGIN CERTIFICATE-----")
        && ReqwestConnector::default().connect(&options).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variables with their values.
    type Texts<'a> = &'a [(&'a str, &'a str)];

    fn check(provider: Provider, texts: Texts<'_>) -> Result<(), String> {
        let find = |name: &str| {
            let found = texts.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        };
        let cloud = Cloud::parse(provider, "bucket").unwrap();
        let checked = Cloud { variables: Variables::read(provider, &find), ..cloud }.check();
        checked.map_err(|(name, reason)| format!("{name}: {reason}"))
    }

    #[test]
    fn a_url_needs_a_scheme_a_host_and_a_valid_port() {
        let others = [("AWS_ALLOW_HTTP", "true"), ("AWS_SKIP_SIGNATURE", "true")];
        for name in URLS.iter().filter(|name| name.starts_with("AWS_")) {
            for valid in ["http://127.0.0.1:9000", "https://[::1]:1/", "https://s3.example.com"] {
                check(Provider::S3, &[&[(*name, valid)][..], &others].concat()).unwrap();
            }
            for invalid in [
                "127.0.0.1:29100",
                "localhost:29100",
                "minio",
                "nonsense",
                "http://",
                "http:///",
                "http://a b",
                "http://a/b c",
                "http://127.0.0.1:99999",
                "ftp://a",
            ] {
                let texts = [&[(*name, invalid)][..], &others].concat();
                let reason = check(Provider::S3, &texts).unwrap_err();
                let expected = format!("{name}: expected a URL with http:// or https://");
                assert!(reason.starts_with(&expected), "{invalid}: {reason}");
            }
        }
    }

    #[test]
    fn a_url_with_credentials_query_or_fragment_is_refused_and_not_shown() {
        let user = "a user or a password";
        let query = "a query (`?`) or a fragment (`#`)";
        for (invalid, expected) in [
            ("https://hush@a", user),
            ("https://a:hush@b", user),
            ("https://a/?x=hush", query),
            ("https://a/#hush", query),
            ("https://a?", query),
        ] {
            for name in URLS {
                let provider = match name.split('_').next() {
                    Some("AWS") => Provider::S3,
                    Some("STORAGE" | "GOOGLE") => Provider::Gcs,
                    _ => Provider::Azure,
                };
                let checked = check(provider, &[(name, invalid), ("AWS_SKIP_SIGNATURE", "true")]);
                if *name == WITH_QUERY && invalid.contains('?') {
                    checked.unwrap();
                    continue;
                }
                let reason = checked.unwrap_err();
                assert!(reason.starts_with(&format!("{name}: it contains {expected}")), "{reason}");
                assert!(!reason.contains("hush"), "{reason}");
            }
        }
        for invalid in ["a:hush@b:4443", "hush@b"] {
            let reason = check(Provider::Gcs, &[(EMULATOR, invalid)]).unwrap_err();
            assert!(reason.contains(user) && !reason.contains("hush"), "{reason}");
        }
        let sas = check(Provider::Azure, &[("AZURE_STORAGE_ENDPOINT", "https://a/?sig=hush")]);
        assert!(sas.unwrap_err().contains("hint: a SAS token belongs in AZURE_STORAGE_SAS_TOKEN"));
        check(Provider::Gcs, &[(EMULATOR, "localhost:4443")]).unwrap();
        check(Provider::Gcs, &[(EMULATOR, "localhost:99999")]).unwrap_err();
    }

    #[test]
    fn a_secret_with_a_line_break_is_named_and_not_shown() {
        for (value, expected) in [
            ("hush\n", "it ends with a line break"),
            ("hu\u{0}sh", "it contains a control character"),
            (" hush", "it begins or ends with a space"),
        ] {
            for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
                let reason = check(Provider::S3, &[(name, value)]).unwrap_err();
                assert!(reason.starts_with(&format!("{name}: {expected}")), "{reason}");
                assert!(!reason.contains("hu"), "{reason}");
            }
        }
        check_value("GOOGLE_SERVICE_ACCOUNT_KEY", "{\n\"private_key\": \"x\"}\n").unwrap();
    }

    #[test]
    fn an_invalid_option_is_named() {
        let certificate = rcgen::generate_simple_self_signed(["proxy".to_owned()]);
        let certificate = certificate.unwrap().cert.pem();
        for (name, invalid, valid) in [
            ("AWS_ALLOW_HTTP", "banana", "on"),
            ("AWS_REGION", "eu west", "eu-west-1"),
            ("AZURE_STORAGE_SAS_TOKEN", "sig=%FF", "sig=%C3%A9"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "v2", "/v2/credentials"),
            ("AWS_CONNECT_TIMEOUT", "soon", "5s"),
            ("AWS_READ_TIMEOUT", "soon", "5s"),
            ("AWS_PROXY_URL", "http://", "http://proxy:3128"),
            ("AWS_PROXY_CA_CERTIFICATE", "hush", &*certificate),
            ("AWS_REQUEST_PAYER", "me", "Requester"),
            ("AWS_CHECKSUM_ALGORITHM", "md5", "SHA256"),
            ("AWS_SERVER_SIDE_ENCRYPTION", "aes256", "AES256"),
            ("AWS_SSE_CUSTOMER_KEY_BASE64", "aHVzaA==", KEY_OF_32_BYTES),
            ("AZURE_STORAGE_ACCOUNT_NAME", "a b", "account1"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "x!", "aHVzaA=="),
            ("AZURE_STORAGE_ACCESS_KEY", "x", "aHVzaA=="),
            ("AZURE_STORAGE_SAS_TOKEN", "hush", "?sv=1&sig=2"),
            ("AZURE_STORAGE_SAS_KEY", "sv=1&hush", "sv%3D1%26sig%3D2"),
            ("AZURE_TENANT_ID", "a b", "01234567-89ab-cdef-0123-456789abcdef"),
            ("AZURE_STORAGE_TENANT_ID", "a/b", "example.com"),
            ("AZURE_CREDENTIAL_TYPE", "password", "auto"),
        ] {
            let provider = if name.starts_with("AWS_") { Provider::S3 } else { Provider::Azure };
            let reason = check(provider, &[(name, invalid)]).unwrap_err();
            assert!(reason.starts_with(&format!("{name}: expected ")), "{reason}");
            check(provider, &[(name, valid)]).unwrap();
        }
    }

    const KEY_OF_32_BYTES: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    #[test]
    fn a_variable_that_lacks_another_is_named() {
        let pairs: &[(Provider, Texts<'_>, &str)] = &[
            (Provider::S3, &[("AWS_ACCESS_KEY_ID", "a")], "it needs AWS_SECRET_ACCESS_KEY"),
            (Provider::S3, &[("AWS_SECRET_ACCESS_KEY", "a")], "it needs AWS_ACCESS_KEY_ID"),
            (
                Provider::S3,
                &[("AWS_SERVER_SIDE_ENCRYPTION", "sse-c")],
                "sse-c needs AWS_SSE_CUSTOMER_KEY_BASE64",
            ),
            (
                Provider::S3,
                &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/file"), ("AWS_ROLE_ARN", "arn")],
                "cannot read the file that it names: No such file",
            ),
            (
                Provider::S3,
                &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/dev/null")],
                "it needs AWS_ROLE_ARN",
            ),
            (
                Provider::S3,
                &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")],
                "it needs AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            ),
            (
                Provider::S3,
                &[("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/no/file")],
                "cannot read the file that it names: No such file",
            ),
            (
                Provider::Azure,
                &[("AZURE_CREDENTIAL_TYPE", "client_secret"), ("AZURE_CLIENT_ID", "a")],
                "client_secret needs AZURE_CLIENT_SECRET",
            ),
            (
                Provider::Azure,
                &[("AZURE_CREDENTIAL_TYPE", "access_key")],
                "access_key needs AZURE_STORAGE_ACCOUNT_KEY",
            ),
            (
                Provider::Azure,
                &[
                    ("AZURE_FEDERATED_TOKEN_FILE", "/no/file"),
                    ("AZURE_CLIENT_ID", "a"),
                    ("AZURE_TENANT_ID", "b"),
                ],
                "cannot read the file that it names: No such file",
            ),
        ];
        for (provider, texts, expected) in pairs {
            let reason = check(*provider, texts).unwrap_err();
            assert!(reason.starts_with(&format!("{}: {expected}", texts[0].0)), "{reason}");
        }
        // Other credentials are used.
        let key = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        let unused = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/file"), ("AWS_ROLE_ARN", "arn")];
        check(Provider::S3, &[key, unused].concat()).unwrap();
        let emulator = ("AZURE_STORAGE_USE_EMULATOR", "true");
        check(Provider::Azure, &[emulator, ("AZURE_CREDENTIAL_TYPE", "access_key")]).unwrap();
    }

    #[test]
    fn a_storage_opens_with_every_value_that_is_accepted() {
        let values = ["x! é{", "1", "sig=%FF", ""];
        for provider in [Provider::S3, Provider::Gcs, Provider::Azure] {
            let base: &[(&str, &str)] = match provider {
                Provider::S3 => &[("AWS_ALLOW_HTTP", "true")],
                Provider::Gcs => &[("GOOGLE_ALLOW_HTTP", "true"), (EMULATOR, "localhost")],
                Provider::Azure => {
                    &[("AZURE_ALLOW_HTTP", "true"), ("AZURE_STORAGE_ACCOUNT_NAME", "account")]
                }
            };
            for name in provider.variables() {
                for value in values {
                    let find = |variable: &str| match base.iter().find(|(of, _)| *of == variable) {
                        _ if variable == *name => Some(value.to_owned()),
                        found => Some(found?.1.to_owned()),
                    };
                    let cloud = Cloud::parse(provider, "bucket").unwrap();
                    let variables = Variables::read(provider, &find);
                    let cloud = Cloud { variables, ..cloud };
                    if cloud.missing().is_none()
                        && cloud.check().is_ok()
                        && let Err(error) = cloud.open()
                    {
                        panic!("{name}={value}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_no_bucket_can_be_used_with_is_named() {
        let reason = check(Provider::S3, &[("AWS_S3_EXPRESS", "yes")]).unwrap_err();
        assert!(reason.starts_with("AWS_S3_EXPRESS: a directory bucket lists"), "{reason}");
        check(Provider::S3, &[("AWS_S3_EXPRESS", "no")]).unwrap();
        let missing = |provider, texts: Texts<'_>| {
            let find = |name: &str| {
                let found = texts.iter().find(|(variable, _)| *variable == name)?;
                Some(found.1.to_owned())
            };
            let cloud = Cloud::parse(provider, "bucket").unwrap();
            Cloud { variables: Variables::read(provider, &find), ..cloud }.missing()
        };
        assert_eq!(missing(Provider::Azure, &[]), Some(ACCOUNT_NAME));
        assert_eq!(missing(Provider::Azure, &[(ACCOUNT_NAME, "a")]), None);
        assert_eq!(missing(Provider::Azure, &[("AZURE_STORAGE_USE_EMULATOR", "true")]), None);
        assert_eq!((missing(Provider::S3, &[]), missing(Provider::Gcs, &[])), (None, None));
    }

    #[test]
    fn plain_http_must_be_allowed() {
        for (provider, name, allow) in [
            (Provider::S3, "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"),
            (Provider::S3, "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"),
            (Provider::Gcs, BASE_URL, "GOOGLE_ALLOW_HTTP"),
            (Provider::Azure, "AZURE_STORAGE_ENDPOINT", "AZURE_ALLOW_HTTP"),
        ] {
            for refused in ["", "false"] {
                let texts = [(name, "http://server:9000"), (allow, refused)];
                let reason = check(provider, &texts).unwrap_err();
                assert!(reason.starts_with(&format!("{name}: its scheme is http")), "{reason}");
                assert!(reason.contains(&format!("set {allow}=true")), "{reason}");
            }
            check(provider, &[(name, "http://server:9000"), (allow, "true")]).unwrap();
            check(provider, &[(name, "https://server:9000")]).unwrap();
        }
        // The endpoint of S3 is used, not the common one.
        let texts =
            [("AWS_ENDPOINT_URL", "http://a"), ("AWS_ENDPOINT_URL_S3", "https://s3.example.com")];
        check(Provider::S3, &texts).unwrap();
        let sts = ("AWS_ENDPOINT_URL_STS", "http://a");
        check(Provider::S3, &[sts]).unwrap();
        let role = [sts, ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn")];
        let reason = check(Provider::S3, &role).unwrap_err();
        assert!(reason.starts_with("AWS_ENDPOINT_URL_STS: expected https://"), "{reason}");
    }
}
