//! What the value of each variable must look like.
//!
//! `object_store` panics on some values, and its errors name no variable. An error here names the variable and never its
//! value, which may be a secret.

use axum::http::Uri;
use object_store::client::{HttpConnector as _, ReqwestConnector};
use object_store::{ClientConfigKey, ClientOptions};
use url::Url;

use crate::store::backend::cloud::provider::{BASE_URL, EMULATOR, Provider};
use crate::store::backend::cloud::variables::Variables;

/// URLs of services. A service of a cloud's own network is read over plain HTTP.
const URLS: &[&str] = &[
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_METADATA_ENDPOINT",
    BASE_URL,
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_AUTHORITY_HOST",
    "AZURE_MSI_ENDPOINT",
    "AZURE_IDENTITY_ENDPOINT",
    "IDENTITY_ENDPOINT",
];

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

/// A variable that cannot be used, and why.
type Invalid = (&'static str, String);

impl Variables {
    /// Checks each value, and whether plain HTTP is allowed where it is used.
    pub fn check(&self, provider: Provider) -> Result<(), Invalid> {
        for name in self.names() {
            let checked = self.get(name).map_or(Ok(()), |value| check_value(name, value));
            checked.map_err(|reason| (name, reason))?;
        }
        self.check_scheme(provider)
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
        let used = provider.endpoints().iter().find(|name| self.get(name).is_some());
        match used {
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

    /// Whether the credentials come from IRSA, as `object_store` decides.
    fn uses_web_identity(&self) -> bool {
        let is_set = |name| self.get(name).is_some();
        ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"].into_iter().all(is_set)
            && !["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].into_iter().any(is_set)
    }
}

/// Why a value cannot be used, without the value.
fn check_value(name: &str, value: &str) -> Result<(), String> {
    if DOCUMENTS.contains(&name) {
        return Ok(());
    }
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
    let expected = |is_valid: bool, what: &str| {
        if is_valid { Ok(()) } else { Err(format!("expected {what}")) }
    };
    let url = "a URL with http:// or https://, a host and a valid port, such as https://s3.example.com:9000";
    match name {
        // An error of `object_store` shows the URL.
        _ if (name == EMULATOR || URLS.contains(&name)) && has_password(value) => {
            Err("it contains a user or a password, which cannot be used there".to_owned())
        }
        EMULATOR if !value.contains("://") => expected(
            is_url(&format!("http://{value}")),
            "a host and a port, such as localhost:4443",
        ),
        EMULATOR => expected(is_url(value), url),
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" => {
            let is_path = value.starts_with('/') && value.parse::<Uri>().is_ok();
            expected(is_path, "a path that begins with `/`")
        }
        "AWS_REGION" | "AWS_DEFAULT_REGION" => {
            let is_region = value.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c));
            expected(is_region, "the name of a region, such as eu-west-1")
        }
        _ if URLS.contains(&name) => expected(is_url(value), url),
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

/// Whether both libraries that `object_store` uses parse the URL: it panics if one does not.
fn is_url(value: &str) -> bool {
    let url = Url::parse(value).ok();
    let is_http = url.is_some_and(|url| ["http", "https"].contains(&url.scheme()));
    is_http && value.parse::<Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}

fn has_password(value: &str) -> bool {
    let url = if value.contains("://") {
        Url::parse(value)
    } else {
        Url::parse(&format!("http://{value}"))
    };
    url.is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(provider: Provider, texts: &[(&str, &str)]) -> Result<(), String> {
        let find = |name: &str| {
            let found = texts.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        };
        let checked = Variables::read(provider, &find).check(provider);
        checked.map_err(|(name, reason)| format!("{name}: {reason}"))
    }

    #[test]
    fn a_url_needs_a_scheme_a_host_and_a_valid_port() {
        let allow = ("AWS_ALLOW_HTTP", "true");
        for name in URLS.iter().filter(|name| name.starts_with("AWS_")) {
            for valid in ["http://127.0.0.1:9000", "https://[::1]:1/", "https://s3.example.com"] {
                check(Provider::S3, &[(name, valid), allow]).unwrap();
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
                let reason = check(Provider::S3, &[(name, invalid), allow]).unwrap_err();
                let expected = format!("{name}: expected a URL with http:// or https://");
                assert!(reason.starts_with(&expected), "{invalid}: {reason}");
            }
        }
        for invalid in ["http://hush@a", "http://a:hush@b"] {
            let reason = check(Provider::S3, &[("AWS_ENDPOINT_URL", invalid), allow]).unwrap_err();
            assert!(
                reason.contains("a user or a password") && !reason.contains("hush"),
                "{reason}"
            );
        }
        for invalid in ["http://hush@a", "http://a:hush@b:4443", "a:hush@b:4443", "hush@b"] {
            let reason = check(Provider::Gcs, &[(EMULATOR, invalid)]).unwrap_err();
            assert!(
                reason.contains("a user or a password") && !reason.contains("hush"),
                "{reason}"
            );
        }
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
        let json = ("GOOGLE_SERVICE_ACCOUNT_KEY", "{\n\"private_key\": \"x\"}\n");
        check(Provider::Gcs, &[json]).unwrap();
    }

    #[test]
    fn an_invalid_option_is_named() {
        for (name, invalid, valid) in [
            ("AWS_ALLOW_HTTP", "banana", "on"),
            ("AWS_REGION", "eu west", "eu-west-1"),
            ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "v2", "/v2/credentials"),
            ("AWS_CONNECT_TIMEOUT", "soon", "5s"),
            ("AWS_READ_TIMEOUT", "soon", "5s"),
            ("AWS_PROXY_URL", "http://", "http://proxy:3128"),
        ] {
            let reason = check(Provider::S3, &[(name, invalid)]).unwrap_err();
            assert!(reason.starts_with(&format!("{name}: expected ")), "{reason}");
            check(Provider::S3, &[(name, valid)]).unwrap();
        }
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
