//! What a failed request or an error status means.

use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Response;
use reqwest::header::RETRY_AFTER;

use crate::release::download::cause::{is_misunderstanding, is_no_connection, says};
use crate::release::download::limits::RETRIES;
use crate::release::download::url::shown;
use crate::release::error::ReleaseError;

/// The error of a request without a complete response.
pub(in crate::release) fn failed(url: &str, error: reqwest::Error) -> ReleaseError {
    let proxy = proxy(url);
    let url = shown(url);
    // The URL may contain a password.
    let source = error.without_url();
    if source.is_redirect() {
        ReleaseError::Redirect { url, source }
    } else if source.is_connect() && is_no_connection(&source) {
        let by = proxy.map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
        ReleaseError::Unreachable { url, by, source }
    } else if source.is_timeout() {
        ReleaseError::Timeout { url, source }
    } else if let Some(proxy) = proxy.filter(|_| says(&source, "tunnel error")) {
        if says(&source, "authorization required") {
            return ReleaseError::ProxyRefused { url, proxy };
        }
        ReleaseError::Proxy { url, proxy, source }
    } else if url.starts_with("https:") && is_misunderstanding(&source) {
        ReleaseError::Tls { url, source }
    } else {
        ReleaseError::Transfer { url, source }
    }
}

/// The error of a response with an error status.
pub(in crate::release) fn refused(url: &str, response: &Response) -> ReleaseError {
    let status = response.status().as_u16();
    let proxy = proxy(url);
    let url = shown(url);
    let number =
        |name: &str| response.headers().get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let after = number(RETRY_AFTER.as_str()).map(Duration::from_secs);
    match status {
        404 | 410 => ReleaseError::NotFound(url),
        403 | 429 if number("x-ratelimit-remaining") == Some(0) => {
            let reset = number("x-ratelimit-reset").and_then(|reset| i64::try_from(reset).ok());
            let until = reset.and_then(|reset| jiff::Timestamp::from_second(reset).ok());
            let until = until.map_or_else(|| "an unknown time".to_owned(), |at| at.to_string());
            ReleaseError::RateLimit { url, until }
        }
        407 => ReleaseError::ProxyRefused { url, proxy: proxy.unwrap_or_default() },
        408 | 429 | 500..=599 => ReleaseError::Busy { url, status, tries: RETRIES + 1, after },
        status => ReleaseError::Refused { url, status },
    }
}

/// The proxy that the environment configures for this URL, without its password.
fn proxy(url: &str) -> Option<String> {
    let proxy = Matcher::from_env().intercept(&url.parse().ok()?)?;
    Some(shown(&proxy.uri().to_string()))
}
