//! A cache of token reviews by the Kubernetes API.
//!
//! The key is the SHA-256 digest of a token; no token is stored. Requests with the same token at the same time share
//! one review. A failed review is not cached.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use datastore_api::{Sha256, chain};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::time::Instant;

use crate::auth::kubernetes::Reviewer;

/// How long a valid token is cached, but never longer than until it expires.
const ALLOW_TTL: Duration = Duration::from_mins(1);
/// How long an invalid token is cached.
const DENY_TTL: Duration = Duration::from_secs(5);
/// The maximum number of valid tokens in the cache, and of invalid ones. They are counted separately, so that requests
/// with invalid tokens displace no valid one.
const MAX_ENTRIES: usize = 10_000;
/// The maximum number of reviews in flight or waiting. Each holds its token in memory, even if its client has
/// disconnected.
const MAX_PENDING: usize = 2048;
/// How long a token that was valid is reviewed before others. It is accepted no longer for that.
const KNOWN_TTL: Duration = Duration::from_mins(10);

/// The result of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The token is valid, and this user's.
    Valid(String),
    /// The token is invalid.
    Invalid,
    /// The token could not be reviewed.
    Failed,
}

/// Requests reviews, and caches their results.
#[derive(Debug)]
pub(super) struct Reviews {
    reviewer: Reviewer,
    cache: std::sync::Arc<Mutex<Cache>>,
}

type PendingReview = Shared<BoxFuture<'static, Verdict>>;

#[derive(Debug, Default)]
struct Cache {
    /// The users of valid tokens, and until when they are cached.
    valid: HashMap<Sha256, (String, Instant)>,
    invalid: HashMap<Sha256, Instant>,
    /// Tokens that were valid lately, and until when that counts. Each is reviewed again all the same.
    known: HashMap<Sha256, Instant>,
    pending: HashMap<Sha256, PendingReview>,
}

impl Reviews {
    pub(super) fn new(reviewer: Reviewer) -> Self {
        Self { reviewer, cache: std::sync::Arc::default() }
    }

    pub(super) async fn verdict(&self, token: SecretString) -> Verdict {
        let digest = Sha256::of(token.expose_secret().as_bytes());
        let review = {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(verdict) = cache.verdict(digest) {
                return verdict;
            }
            let is_known = cache.known.get(&digest).is_some_and(|until| *until > Instant::now());
            let max = if is_known { 2 * MAX_PENDING } else { MAX_PENDING };
            match cache.pending.get(&digest) {
                // A review that is complete and still pending has panicked.
                Some(review) if review.peek().is_none() => review.clone(),
                None if cache.pending.len() >= max => return Verdict::Failed,
                _ => {
                    let review = self.start_review(digest, token, is_known);
                    cache.pending.insert(digest, review.clone());
                    review
                }
            }
        };
        review.await
    }

    /// The review runs to its end even if the request that started it is cancelled: others may wait for it.
    fn start_review(&self, digest: Sha256, token: SecretString, is_known: bool) -> PendingReview {
        let (reviewer, cache) = (self.reviewer.clone(), std::sync::Arc::clone(&self.cache));
        let review = tokio::spawn(async move {
            let verdict = match reviewer.review(&token, is_known).await {
                Ok(Some(user)) => Verdict::Valid(user),
                Ok(None) => Verdict::Invalid,
                Err(error) => {
                    tracing::error!(error = chain(&error), "a token could not be reviewed");
                    Verdict::Failed
                }
            };
            let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.pending.remove(&digest);
            cache.insert(digest, &verdict, lifetime(&token));
            verdict
        });
        review.map(|verdict| verdict.unwrap_or(Verdict::Failed)).boxed().shared()
    }
}

impl Cache {
    fn verdict(&self, digest: Sha256) -> Option<Verdict> {
        let now = Instant::now();
        match (self.valid.get(&digest), self.invalid.get(&digest)) {
            (Some((user, until)), _) if *until > now => Some(Verdict::Valid(user.clone())),
            (_, Some(until)) if *until > now => Some(Verdict::Invalid),
            _ => None,
        }
    }

    fn insert(&mut self, digest: Sha256, verdict: &Verdict, lifetime: Duration) {
        let now = Instant::now();
        match verdict {
            Verdict::Valid(user) => {
                make_room(&mut self.valid, now, |(_, until)| *until);
                make_room(&mut self.known, now, |until| *until);
                self.invalid.remove(&digest);
                self.known.insert(digest, now + KNOWN_TTL);
                self.valid.insert(digest, (user.clone(), now + ALLOW_TTL.min(lifetime)));
            }
            Verdict::Invalid => {
                make_room(&mut self.invalid, now, |until| *until);
                self.valid.remove(&digest);
                self.known.remove(&digest);
                self.invalid.insert(digest, now + DENY_TTL);
            }
            Verdict::Failed => {}
        }
    }
}

/// Removes expired entries from a full cache; if there are none, the tenth that expires next.
fn make_room<T>(entries: &mut HashMap<Sha256, T>, now: Instant, until: impl Fn(&T) -> Instant) {
    if entries.len() < MAX_ENTRIES {
        return;
    }
    entries.retain(|_, entry| until(entry) > now);
    if entries.len() < MAX_ENTRIES {
        return;
    }
    let mut ends = entries.values().map(&until).collect::<Vec<_>>();
    let (_, last, _) = ends.select_nth_unstable(MAX_ENTRIES / 10);
    let last = *last;
    entries.retain(|_, entry| until(entry) > last);
}

/// How long a valid token stays valid, by its own claim `exp`; without one, without limit.
pub(super) fn lifetime(token: &SecretString) -> Duration {
    #[derive(Deserialize)]
    struct Claims {
        exp: Option<f64>,
    }
    let claims = token.expose_secret().split('.').nth(1);
    let claims = claims.and_then(|claims| BASE64_URL_SAFE_NO_PAD.decode(claims).ok());
    let claims = claims.and_then(|json| serde_json::from_slice::<Claims>(&json).ok());
    let Some(exp) = claims.and_then(|claims| claims.exp) else { return Duration::MAX };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let left = exp - now.unwrap_or_default().as_secs_f64();
    Duration::try_from_secs_f64(left).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Sha256 {
        Sha256::of(&number.to_le_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn ds04_a_valid_token_is_cached_for_a_minute_and_an_invalid_one_for_five_seconds() {
        let mut cache = Cache::default();
        let known = Verdict::Valid("a".to_owned());
        cache.insert(digest(1), &known, Duration::MAX);
        cache.insert(digest(2), &Verdict::Invalid, Duration::MAX);
        cache.insert(digest(3), &Verdict::Failed, Duration::MAX);
        cache.insert(digest(4), &known, Duration::from_secs(2));
        let verdicts = |seconds| {
            let all = [1, 2, 3, 4].map(|number| cache.verdict(digest(number)));
            (seconds, all)
        };
        let refused = Some(Verdict::Invalid);
        assert_eq!(
            verdicts(0).1,
            [Some(known.clone()), refused.clone(), None, Some(known.clone())]
        );
        tokio::time::advance(Duration::from_millis(4900)).await;
        assert_eq!(verdicts(5).1, [Some(known.clone()), refused, None, None]);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(verdicts(5).1, [Some(known.clone()), None, None, None]);
        tokio::time::advance(Duration::from_secs(54)).await;
        assert_eq!(verdicts(59).1, [Some(known), None, None, None]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(verdicts(60).1, [None, None, None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded_and_invalid_tokens_displace_no_valid_one() {
        let mut cache = Cache::default();
        let known = Verdict::Valid("a".to_owned());
        cache.insert(digest(0), &known, Duration::MAX);
        for number in 1..2 * MAX_ENTRIES {
            cache.insert(digest(number), &Verdict::Invalid, Duration::MAX);
        }
        assert!(cache.invalid.len() <= MAX_ENTRIES);
        assert_eq!(cache.verdict(digest(0)), Some(known.clone()));
        for number in 1..2 * MAX_ENTRIES {
            cache.insert(digest(number), &known, Duration::MAX);
        }
        assert!(cache.valid.len() <= MAX_ENTRIES);
        assert_eq!(cache.verdict(digest(2 * MAX_ENTRIES - 1)), Some(known));
    }

    /// As many reviews of unknown tokens as may be pending. None has ended yet.
    fn fill(reviews: &Reviews) -> Vec<impl Future<Output = Verdict>> {
        let reviews = (0..MAX_PENDING)
            .map(|number| Box::pin(reviews.verdict(format!("invalid {number}").into())));
        let mut pending = reviews.collect::<Vec<_>>();
        for review in &mut pending {
            assert_eq!(review.now_or_never(), None);
        }
        pending
    }

    #[tokio::test]
    async fn pending_reviews_are_bounded_and_delay_no_cached_token() {
        let kube = support::FakeTokenReviews::start().await;
        kube.account("team-a/runner", "known");
        let api = crate::KubeApi::Kubeconfig(vec![kube.kubeconfig()]);
        let reviews = Reviews::new(Reviewer::open(&api).await.unwrap());
        let known = Verdict::Valid("system:serviceaccount:team-a:runner".to_owned());
        assert_eq!(reviews.verdict("known".into()).await, known);
        kube.fault(Some(support::TokenReviewFault::Hangs));
        let _waiting = fill(&reviews);
        let one_more = reviews.verdict("one more".into()).now_or_never();
        assert_eq!(one_more, Some(Verdict::Failed));
        assert_eq!(reviews.verdict("known".into()).now_or_never(), Some(known));
        assert!(reviews.cache.lock().unwrap().pending.len() <= MAX_PENDING);
    }

    #[tokio::test]
    async fn a_token_that_was_valid_is_reviewed_again_while_unknown_ones_wait() {
        let kube = support::FakeTokenReviews::start().await;
        kube.account("team-a/runner", "known");
        let api = crate::KubeApi::Kubeconfig(vec![kube.kubeconfig()]);
        let reviews = Reviews::new(Reviewer::open(&api).await.unwrap());
        let known = Verdict::Valid("system:serviceaccount:team-a:runner".to_owned());
        assert_eq!(reviews.verdict("known".into()).await, known);
        let forget = || reviews.cache.lock().unwrap().valid.clear();
        forget();
        kube.fault(Some(support::TokenReviewFault::Hangs));
        let _waiting = fill(&reviews);
        while kube.reviews().len() < 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kube.fault(None);
        assert_eq!(reviews.verdict("known".into()).await, known);
        forget();
        kube.revoke("known");
        assert_eq!(reviews.verdict("known".into()).await, Verdict::Invalid);
        assert!(reviews.cache.lock().unwrap().known.is_empty());
    }

    #[test]
    fn a_token_expires_at_its_own_claim() {
        let token = |claims: &str| {
            let claims = BASE64_URL_SAFE_NO_PAD.encode(claims);
            SecretString::from(format!("e30.{claims}.c2ln"))
        };
        assert_eq!(lifetime(&token("{}")), Duration::MAX);
        assert_eq!(lifetime(&SecretString::from("opaque")), Duration::MAX);
        assert_eq!(lifetime(&token(r#"{"exp":1}"#)), Duration::ZERO);
        assert_eq!(lifetime(&token(r#"{"exp":1e300}"#)), Duration::ZERO);
        assert!(lifetime(&token(r#"{"exp":9999999999}"#)) > Duration::from_hours(24));
    }
}
