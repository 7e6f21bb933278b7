//! Requests to an issuer: encrypted, without redirects, limited in time and size.

use std::time::Duration;

use futures::TryStreamExt as _;
use reqwest::header::ACCEPT;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use crate::auth::oidc::settings::IssuerUrl;
use crate::auth::site::is_loopback;

/// For a whole answer.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest answer, in bytes.
const MAX_ANSWER: usize = 256 << 10;

/// Why an issuer could not be used. The text has no query and nothing of an answer but its status.
#[derive(Debug, thiserror::Error)]
pub(in crate::auth) enum HttpError {
    #[error("{url} cannot be reached")]
    Failed {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("{url} answered {status}")]
    Status { url: String, status: StatusCode },
    #[error("{url} answered with more than 256 KiB")]
    Large { url: String },
    #[error("{url} did not answer with the expected JSON")]
    Json { url: String },
    #[error("`{name}` is `{url}`: expected a URL with https://")]
    Url { name: &'static str, url: String },
}

/// A client for one issuer.
#[derive(Clone, Debug)]
pub(super) struct IssuerHttp {
    client: Client,
    /// Whether the issuer is on this machine, and may have addresses without TLS.
    is_plain: bool,
}

impl IssuerHttp {
    pub(super) fn new(issuer: &IssuerUrl) -> reqwest::Result<Self> {
        let is_plain = issuer.is_plain();
        let client = Client::builder()
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .https_only(!is_plain);
        let client = if is_plain { client.no_proxy() } else { client };
        Ok(Self { client: client.build()?, is_plain })
    }

    /// Checks an address that the issuer has named.
    pub(super) fn checked(&self, name: &'static str, text: &str) -> Result<Url, HttpError> {
        let url = text.parse::<Url>().ok().filter(|url| match (url.scheme(), url.host_str()) {
            ("https", Some(_)) => true,
            ("http", Some(host)) => self.is_plain && is_loopback(host),
            _ => false,
        });
        url.ok_or_else(|| HttpError::Url { name, url: text.chars().take(200).collect() })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, HttpError> {
        let request = self.client.get(url);
        let (status, body) = answer(request, url).await?;
        if status != StatusCode::OK {
            return Err(HttpError::Status { url: url.to_owned(), status });
        }
        serde_json::from_slice(&body).map_err(|_| HttpError::Json { url: url.to_owned() })
    }

    /// A form, and the answer to it with its status.
    pub(super) async fn post(
        &self,
        url: &Url,
        form: String,
        authorization: Option<(&str, &str)>,
    ) -> Result<(StatusCode, Vec<u8>), HttpError> {
        let request = self
            .client
            .post(url.clone())
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        let request = match authorization {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        };
        answer(request, url.as_str()).await
    }
}

async fn answer(request: RequestBuilder, url: &str) -> Result<(StatusCode, Vec<u8>), HttpError> {
    let url = url.split('?').next().unwrap_or_default();
    let failed = |error: reqwest::Error| HttpError::Failed {
        url: url.to_owned(),
        source: error.without_url(),
    };
    let response = request.header(ACCEPT, "application/json").send().await.map_err(failed)?;
    let status = response.status();
    let (mut body, mut pieces) = (Vec::new(), response.bytes_stream());
    while let Some(piece) = pieces.try_next().await.map_err(failed)? {
        if body.len() + piece.len() > MAX_ANSWER {
            return Err(HttpError::Large { url: url.to_owned() });
        }
        body.extend_from_slice(&piece);
    }
    Ok((status, body))
}
