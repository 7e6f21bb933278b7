//! `TokenReview`: the Kubernetes API says whose token this is. The only room that knows kube.

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

/// Where the Kubernetes API is, and who we are to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeApi {
    /// As every pod is told.
    InCluster,
    /// As these files say, the first of them first.
    Kubeconfig(Vec<PathBuf>),
}

/// Asks for reviews.
#[derive(Clone)]
pub(super) struct Reviewer {
    api: Api<TokenReview>,
    places: Arc<Semaphore>,
}

/// The API did not say whose token it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    #[error("the Kubernetes API did not answer within {LIMIT:?}")]
    Late,
    #[error(
        "this datastore may not create tokenreviews: bind its ServiceAccount to the ClusterRole \
         system:auth-delegator"
    )]
    Forbidden(#[source] kube::Error),
    #[error("the Kubernetes API could not be asked")]
    Api(#[source] kube::Error),
}

const AUDIENCE: &str = "burrito";
/// A review takes milliseconds; who waits for it is a caller that waits for us.
const LIMIT: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// Reviews at once: whoever sends us rubbish shall not flood the API.
const AT_ONCE: usize = 32;

impl Reviewer {
    pub(super) async fn open(api: &KubeApi) -> anyhow::Result<Self> {
        let mut config = match api {
            KubeApi::InCluster => {
                Config::incluster().context("the pod does not say where it is")?
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
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(LIMIT);
        config.write_timeout = Some(LIMIT);
        config.reset_reader_on_write = true;
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Ok(Self { api: Api::all(Client::try_from(config)?), places })
    }

    /// The user whose token this is; nobody's, if it is not valid, or not meant for us.
    pub(super) async fn review(&self, token: &SecretString) -> Result<Option<String>, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.expose_secret().to_owned(),
                audiences: Some(vec![AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let asked = timeout(LIMIT, async {
            // Never closed.
            let _place = self.places.acquire().await;
            self.api.create(&PostParams::default(), &review).await
        });
        match asked.await {
            Ok(Ok(review)) => Ok(review.status.and_then(user)),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                Err(ReviewError::Forbidden(kube::Error::Api(status)))
            }
            Ok(Err(error)) => Err(ReviewError::Api(error)),
            Err(_) => Err(ReviewError::Late),
        }
    }
}

/// The user that a review names. An API that does not know audiences answers without any: then the
/// token may be meant for anybody.
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
    fn ds04_a_review_counts_only_if_it_is_for_our_audience() {
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
