//! `TokenReview`: the Kubernetes API authenticates a token. No other module uses kube.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// How to reach the Kubernetes API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeApi {
    /// By the `ServiceAccount` of this pod.
    InCluster,
    /// By these files; the first one takes precedence.
    Kubeconfig(Vec<PathBuf>),
}

/// Requests reviews.
#[derive(Clone)]
pub(super) struct Reviewer {
    api: Api<TokenReview>,
    permits: Arc<Semaphore>,
    /// Those of tokens that were valid lately.
    known_permits: Arc<Semaphore>,
}

/// The API did not review the token.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("the Kubernetes API did not answer within {TIMEOUT:?}")]
    TimedOut,
    #[error(
        "this datastore may not create tokenreviews; bind its ServiceAccount to the ClusterRole \
         system:auth-delegator"
    )]
    Forbidden(#[source] kube::Error),
    #[error("the Kubernetes API could not review the token")]
    Api(#[source] kube::Error),
}

const AUDIENCE: &str = "burrito";
/// A review takes milliseconds, and a caller waits for it.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of reviews in flight, so that requests with invalid tokens do not flood the API.
const MAX_IN_FLIGHT: usize = 24;
/// The same for tokens that were valid lately, in addition: they do not wait behind invalid ones.
const MAX_KNOWN_IN_FLIGHT: usize = 8;

impl Reviewer {
    pub(super) async fn open(api: &KubeApi) -> anyhow::Result<Self> {
        let mut config = match api {
            KubeApi::InCluster => {
                Config::incluster().context("cannot read the ServiceAccount of this pod")?
            }
            KubeApi::Kubeconfig(paths) => {
                let mut merged = Kubeconfig::default();
                for path in paths {
                    let read =
                        Kubeconfig::read_from(path).with_context(|| path.display().to_string());
                    merged = merged.merge(read?)?;
                }
                Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await?
            }
        };
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        config.write_timeout = Some(TIMEOUT);
        config.reset_reader_on_write = true;
        let permits = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let known_permits = Arc::new(Semaphore::new(MAX_KNOWN_IN_FLIGHT));
        Ok(Self { api: Api::all(Client::try_from(config)?), permits, known_permits })
    }

    /// The user of a token; none if the token is invalid, or for another audience. `is_known` says whether it was valid lately.
    pub(super) async fn review(
        &self,
        token: &SecretString,
        is_known: bool,
    ) -> Result<Option<String>, ReviewError> {
        let permits = if is_known { &self.known_permits } else { &self.permits };
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.expose_secret().to_owned(),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let response = timeout(TIMEOUT, async {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            self.api.create(&PostParams::default(), &review).await
        });
        match response.await {
            Ok(Ok(review)) => Ok(review.status.and_then(user)),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                Err(ReviewError::Forbidden(kube::Error::Api(status)))
            }
            Ok(Err(error)) => Err(ReviewError::Api(error)),
            Err(_) => Err(ReviewError::TimedOut),
        }
    }
}

/// The user that a review names. An API that does not support audiences answers without any: then the token may be for
/// another service, and is rejected.
fn user(status: TokenReviewStatus) -> Option<String> {
    let ours = status.audiences.unwrap_or_default().iter().any(|audience| audience == AUDIENCE);
    let is_valid = status.authenticated == Some(true) && ours && status.error.is_none();
    is_valid.then(|| status.user?.username).flatten().filter(|name| !name.is_empty())
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviewer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    #[test]
    fn ds04_a_review_without_our_audience_is_rejected() {
        let of = |authenticated, audiences: &[&str]| {
            let username = Some("system:serviceaccount:a:b".to_owned());
            user(TokenReviewStatus {
                authenticated,
                audiences: Some(audiences.iter().map(|text| (*text).to_owned()).collect()),
                user: Some(UserInfo { username, ..UserInfo::default() }),
                error: None,
            })
        };
        assert!(of(Some(true), &["burrito"]).is_some());
        assert!(of(Some(true), &["other", "burrito"]).is_some());
        assert_eq!(of(Some(true), &["other"]), None);
        assert_eq!(of(Some(true), &[]), None);
        assert_eq!(of(Some(false), &["burrito"]), None);
        assert_eq!(of(None, &["burrito"]), None);
        assert_eq!(user(TokenReviewStatus::default()), None);
    }
}
