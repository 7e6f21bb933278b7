//! What is known of an issuer: the addresses of its discovery document, and its keys.
//!
//! Both are fetched when they are needed first. One request fetches them for all that wait, and goes on if the caller that
//! started it leaves. An unknown key id fetches the keys again, at most once a minute for all callers together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datastore_api::chain;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use crate::auth::oidc::http::{HttpError, IssuerHttp};
use crate::auth::oidc::keys::{KeySet, Keys};
use crate::auth::oidc::settings::IssuerUrl;

/// How long keys are used without being fetched again: a key that the issuer removes is refused after that.
const FRESH: Duration = Duration::from_mins(10);
/// How long keys are used while the issuer cannot be reached.
const STALE: Duration = Duration::from_hours(1);
/// The shortest time between two fetches for unknown keys.
const UNKNOWN_KEY: Duration = Duration::from_mins(1);
/// The shortest time between two fetches while nothing is known.
const RETRY: Duration = Duration::from_secs(5);

/// An issuer, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Provider(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    issuer: IssuerUrl,
    http: IssuerHttp,
    known: Mutex<Known>,
    /// Held while it is fetched.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    fetched: Option<Fetched>,
    /// When the last attempt to fetch it ended.
    tried: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Fetched {
    endpoints: Arc<Endpoints>,
    keys: Arc<Keys>,
    at: Instant,
}

/// The addresses of an issuer, and what it can do.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// Where people sign in; none at issuers for programs only.
    pub(super) authorization: Option<Url>,
    pub(super) token: Option<Url>,
    /// Whether the answer to a sign-in names the issuer (RFC 9207).
    pub(super) names_itself: bool,
    /// Whether a client secret must be sent in the form: else as Basic authentication.
    pub(super) secret_in_form: bool,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// Nothing is known of the issuer. The log has the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreachable;

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(
        "its document is of another issuer, `{0}`: set --auth oidc= to exactly that one, if it is meant"
    )]
    Other(String),
    #[error("it has no key for RS256, ES256 or EdDSA")]
    NoKeys,
}

impl Provider {
    pub(super) fn new(issuer: IssuerUrl) -> reqwest::Result<Self> {
        let http = IssuerHttp::new(&issuer)?;
        let (known, fetching) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self(Arc::new(Shared { issuer, http, known, fetching })))
    }

    pub(super) fn issuer(&self) -> &IssuerUrl {
        &self.0.issuer
    }

    pub(super) fn http(&self) -> &IssuerHttp {
        &self.0.http
    }

    /// The key of this id for this algorithm; none if the issuer has none.
    pub(super) async fn key(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Option<DecodingKey>, Unreachable> {
        let find = |fetched: &Fetched| fetched.keys.find(id, algorithm).cloned();
        let fetched = self.fetched().await?;
        if let Some(key) = find(&fetched) {
            return Ok(Some(key));
        }
        let newer = self.fetch(Need::UnknownKey(fetched.at)).await.unwrap_or(fetched);
        Ok(find(&newer))
    }

    pub(super) async fn endpoints(&self) -> Result<Arc<Endpoints>, Unreachable> {
        self.fetched().await.map(|fetched| fetched.endpoints)
    }

    /// What is known, fetched again if it is old.
    async fn fetched(&self) -> Result<Fetched, Unreachable> {
        let known = self.known().fetched.clone();
        match known {
            Some(fetched) if fetched.at.elapsed() < FRESH => Ok(fetched),
            _ => self.fetch(Need::Fresh).await.ok_or(Unreachable),
        }
    }

    /// Fetches what is needed, unless another request has done so meanwhile or it was tried only just now. Returns what is
    /// known then.
    async fn fetch(&self, need: Need) -> Option<Fetched> {
        let provider = self.clone();
        // It must not end with the request that started it: the next one would have to wait.
        let fetch = tokio::spawn(async move {
            let shared = &provider.0;
            let _fetching = shared.fetching.lock().await;
            if !provider.known().permits(need) {
                return;
            }
            let fetched = shared.fetch().await;
            provider.known().tried = Some(Instant::now());
            match fetched {
                Ok(fetched) => provider.known().fetched = Some(fetched),
                Err(error) => tracing::error!(
                    issuer = %shared.issuer,
                    error = chain(&error),
                    "cannot read the keys of an issuer of ID tokens"
                ),
            }
        });
        if let Err(error) = fetch.await {
            tracing::error!(%error, "reading the keys of an issuer failed");
        }
        self.known().fetched.clone().filter(|fetched| fetched.at.elapsed() < STALE)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why something is to be fetched.
#[derive(Clone, Copy, Debug)]
enum Need {
    /// What is known is missing or old.
    Fresh,
    /// What was fetched then does not have the key of a token.
    UnknownKey(Instant),
}

impl Known {
    /// Whether it is to be fetched now.
    fn permits(&self, need: Need) -> bool {
        let tried_within = |time| self.tried.is_some_and(|tried| tried.elapsed() < time);
        match (need, &self.fetched) {
            (Need::Fresh, Some(fetched)) => fetched.at.elapsed() >= FRESH && !tried_within(RETRY),
            (Need::Fresh, None) => !tried_within(RETRY),
            // Another request has fetched it since.
            (Need::UnknownKey(at), Some(fetched)) if fetched.at > at => false,
            (Need::UnknownKey(_), _) => !tried_within(UNKNOWN_KEY),
        }
    }
}

impl Shared {
    async fn fetch(&self) -> Result<Fetched, FetchError> {
        let at = Instant::now();
        let document = self.http.get::<Document>(&self.issuer.discovery()).await?;
        if document.issuer != self.issuer.as_str() {
            return Err(FetchError::Other(document.issuer.chars().take(200).collect()));
        }
        let keys = self.http.checked("jwks_uri", &document.jwks_uri)?;
        let endpoint = |name, text: &Option<String>| {
            text.as_deref().map(|text| self.http.checked(name, text)).transpose()
        };
        let methods = document.token_endpoint_auth_methods_supported.unwrap_or_default();
        let takes = |method: &str| methods.iter().any(|one| one == method);
        let endpoints = Endpoints {
            authorization: endpoint("authorization_endpoint", &document.authorization_endpoint)?,
            token: endpoint("token_endpoint", &document.token_endpoint)?,
            names_itself: document.authorization_response_iss_parameter_supported,
            secret_in_form: takes("client_secret_post") && !takes("client_secret_basic"),
        };
        let keys = Keys::from(self.http.get::<KeySet>(keys.as_str()).await?);
        if keys.is_empty() {
            return Err(FetchError::NoKeys);
        }
        Ok(Fetched { endpoints: Arc::new(endpoints), keys: Arc::new(keys), at })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use support::{FakeIssuer, IssuerFault};

    use super::*;
    use crate::auth::oidc::token::{Expected, TokenError, verify};

    fn provider(issuer: &FakeIssuer) -> Provider {
        Provider::new(issuer.url().parse().unwrap()).unwrap()
    }

    async fn check(provider: &Provider, token: &str) -> Result<(), String> {
        let verified = verify(provider, token, Expected::Audience("us")).await;
        verified.map(drop).map_err(|error| error.to_string())
    }

    /// Only while nothing waits for a timer: with a paused clock, all timers would end at once.
    async fn advance(seconds: u64) {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn rotated_keys_are_found_and_a_flood_of_unknown_ones_fetches_once_a_minute() {
        let issuer = FakeIssuer::start().await;
        let provider = provider(&issuer);
        let old = issuer.token("us", &json!({}));
        assert_eq!(check(&provider, &old).await, Ok(()));
        issuer.rotate();
        let new = issuer.token("us", &json!({}));
        let no_key = Err(TokenError::Key.to_string());
        assert_eq!(check(&provider, &new).await, no_key);
        assert_eq!(issuer.requests("keys"), 1);
        advance(60).await;
        let unknown = (0..100).map(|number| {
            issuer.with_header(&json!({"alg": "RS256", "kid": number.to_string()}), "us")
        });
        let unknown = unknown.collect::<Vec<_>>();
        let checks = unknown.iter().map(|token| check(&provider, token));
        for refused in futures::future::join_all(checks).await {
            assert_eq!(refused, no_key);
        }
        assert_eq!(issuer.requests("keys"), 2);
        assert_eq!(check(&provider, &new).await, Ok(()));
        // The key that was removed does not count any more.
        assert_eq!(check(&provider, &old).await, no_key);
        assert_eq!(issuer.requests("keys"), 2);
    }

    #[tokio::test]
    async fn known_keys_outlive_an_issuer_that_is_down_for_an_hour() {
        let issuer = FakeIssuer::start().await;
        let provider = provider(&issuer);
        let token = issuer.token("us", &json!({"exp": 9_999_999_999_i64}));
        assert_eq!(check(&provider, &token).await, Ok(()));
        issuer.fault(Some(IssuerFault::Status(503)));
        advance(601).await;
        assert_eq!(check(&provider, &token).await, Ok(()));
        assert_eq!(issuer.requests("document"), 2);
        advance(3000).await;
        let unreachable = Err(TokenError::Unreachable.to_string());
        assert_eq!(check(&provider, &token).await, unreachable);
        issuer.fault(None);
        advance(5).await;
        assert_eq!(check(&provider, &token).await, Ok(()));
    }

    #[tokio::test]
    async fn a_hanging_issuer_is_asked_once_for_all_that_wait() {
        let issuer = FakeIssuer::start().await;
        let provider = provider(&issuer);
        issuer.fault(Some(IssuerFault::Hangs));
        let token = issuer.token("us", &json!({}));
        let checks = (0..3).map(|_| check(&provider, &token));
        for refused in futures::future::join_all(checks).await {
            assert_eq!(refused, Err(TokenError::Unreachable.to_string()));
        }
        assert_eq!(issuer.requests("document"), 1);
    }

    fn fetched(at: Instant) -> Fetched {
        let endpoints = Endpoints {
            authorization: None,
            token: None,
            names_itself: false,
            secret_in_form: false,
        };
        Fetched { endpoints: Arc::new(endpoints), keys: Arc::default(), at }
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_keys_are_fetched_once_a_minute_and_old_ones_after_ten() {
        let start = Instant::now();
        assert!(Known::default().permits(Need::Fresh));
        let failed = Known { fetched: None, tried: Some(start) };
        assert!(!failed.permits(Need::Fresh));
        let known = Known { fetched: Some(fetched(start)), tried: Some(start) };
        assert!(!known.permits(Need::Fresh) && !known.permits(Need::UnknownKey(start)));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(failed.permits(Need::Fresh) && !known.permits(Need::UnknownKey(start)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(known.permits(Need::UnknownKey(start)) && !known.permits(Need::Fresh));
        assert!(!known.permits(Need::UnknownKey(start - Duration::from_secs(1))));
        tokio::time::advance(Duration::from_mins(9)).await;
        assert!(known.permits(Need::Fresh));
    }
}
