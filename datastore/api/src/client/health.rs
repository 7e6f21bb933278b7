//! Whether a datastore is ready, and which one it is.

use reqwest::header::DATE;
use reqwest::{Method, StatusCode};

use super::call::Call;
use super::error::ClientError;
use super::http::Client;
use super::sender::Sender;
use super::silence::Progress;
use crate::json::Plain;

/// What a datastore says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The version of Plancha's datastore; `None` for another one.
    pub version: Option<String>,
    /// The time of its answer, as HTTP writes it.
    pub date: Option<String>,
}

impl Client {
    /// Asks whether the datastore is ready. Nothing is retried.
    pub async fn health(&self) -> Result<Health, ClientError> {
        let get = async |path| {
            let call = Call {
                method: Method::GET,
                path: std::borrow::Cow::Borrowed(path),
                query: Vec::new(),
            };
            self.send(&call, self.request(&call)?, &Progress::default()).await
        };
        let ready = match get("/readyz").await {
            // Burrito's has no such route.
            Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => {
                get("/healthz").await?
            }
            ready => ready?,
        };
        let date = ready.headers().get(DATE).and_then(|date| Some(date.to_str().ok()?.to_owned()));
        if Sender::of(&ready) != Sender::Plancha {
            return Ok(Health { version: None, date });
        }
        let document = match get("/api/openapi.json").await {
            Ok(document) => document.bytes().await.unwrap_or_default(),
            Err(_) => return Ok(Health { version: None, date }),
        };
        let Plain(document) = serde_json::from_slice(&document).unwrap_or_default();
        let version = document["info"]["version"].as_str().map(str::to_owned);
        Ok(Health { version, date })
    }
}
