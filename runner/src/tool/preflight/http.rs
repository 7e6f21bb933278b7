//! Requests to services, each of 2 s at most.

use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use reqwest::{Certificate, Client, RequestBuilder, StatusCode};

const LIMIT: Duration = Duration::from_secs(2);
/// No answer of a service is larger.
const MAX_ANSWER: usize = 64 << 10;

/// A client that trusts these certificates in addition to the system's.
pub(super) fn client(ca_files: &[&Path]) -> Result<Client, String> {
    let mut builder = Client::builder().timeout(LIMIT).redirect(reqwest::redirect::Policy::none());
    for file in ca_files {
        let pem = fs::read(file).map_err(|error| error.to_string())?;
        let certificates = Certificate::from_pem_bundle(&pem).map_err(|error| error.to_string())?;
        for certificate in certificates {
            builder = builder.add_root_certificate(certificate);
        }
    }
    builder.build().map_err(|error| error.to_string())
}

/// Sends a request. The status and the body of the answer; an error has neither URL nor body.
pub(super) async fn send(request: RequestBuilder) -> Result<(StatusCode, String), String> {
    let shown = |error: reqwest::Error| {
        if error.is_timeout() {
            return format!("no answer within {} s", LIMIT.as_secs());
        }
        datastore_api::chain(&error.without_url())
    };
    let mut response = request.send().await.map_err(shown)?;
    let (status, mut body) = (response.status(), Vec::new());
    while let Some(piece) = response.chunk().await.map_err(shown)? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_ANSWER {
            break;
        }
    }
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
