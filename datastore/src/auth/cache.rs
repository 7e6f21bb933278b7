//! What the Kubernetes API has said of tokens, for a while.
//!
//! A token is known by its SHA-256, never kept itself. Of those who show the same token at the same
//! time, one asks and all have the answer; an answer that did not come is not kept.

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

/// How long an answer holds, at most until the token itself ends.
const KNOWN: Duration = Duration::from_mins(1);
/// How long a refusal holds.
const REFUSED: Duration = Duration::from_secs(5);
/// Answers, and apart from them refusals, that are kept at most: nobody's rubbish displaces a caller.
const MOST: usize = 10_000;
/// Questions that are asked or wait to be at most: each holds its token, and who has sent rubbish may be
/// gone already.
const FLYING: usize = 2048;

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This user's.
    Known(String),
    /// Nobody's.
    Refused,
    /// It could not be found out.
    Failed,
}

/// Asks for reviews, and keeps the answers.
#[derive(Debug)]
pub(super) struct Reviews {
    reviewer: Reviewer,
    kept: std::sync::Arc<Mutex<Kept>>,
}

type Flight = Shared<BoxFuture<'static, Verdict>>;

#[derive(Debug, Default)]
struct Kept {
    known: HashMap<Sha256, (String, Instant)>,
    refused: HashMap<Sha256, Instant>,
    flights: HashMap<Sha256, Flight>,
}

impl Reviews {
    pub(super) fn new(reviewer: Reviewer) -> Self {
        Self { reviewer, kept: std::sync::Arc::default() }
    }

    pub(super) async fn verdict(&self, token: SecretString) -> Verdict {
        let digest = Sha256::of(token.expose_secret().as_bytes());
        let flight = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(verdict) = kept.verdict(digest) {
                return verdict;
            }
            match kept.flights.get(&digest) {
                // One that has ended and is still here has panicked.
                Some(flight) if flight.peek().is_none() => flight.clone(),
                None if kept.flights.len() >= FLYING => return Verdict::Failed,
                _ => {
                    let flight = self.ask(digest, token);
                    kept.flights.insert(digest, flight.clone());
                    flight
                }
            }
        };
        flight.await
    }

    /// It goes on even if whoever began it has left: others may wait for the same.
    fn ask(&self, digest: Sha256, token: SecretString) -> Flight {
        let (reviewer, kept) = (self.reviewer.clone(), std::sync::Arc::clone(&self.kept));
        let asked = tokio::spawn(async move {
            let verdict = match reviewer.review(&token).await {
                Ok(Some(user)) => Verdict::Known(user),
                Ok(None) => Verdict::Refused,
                Err(error) => {
                    tracing::error!(error = chain(&error), "a token could not be reviewed");
                    Verdict::Failed
                }
            };
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.flights.remove(&digest);
            kept.keep(digest, &verdict, lifetime(&token));
            verdict
        });
        asked.map(|verdict| verdict.unwrap_or(Verdict::Failed)).boxed().shared()
    }
}

impl Kept {
    fn verdict(&self, digest: Sha256) -> Option<Verdict> {
        let now = Instant::now();
        match (self.known.get(&digest), self.refused.get(&digest)) {
            (Some((user, until)), _) if *until > now => Some(Verdict::Known(user.clone())),
            (_, Some(until)) if *until > now => Some(Verdict::Refused),
            _ => None,
        }
    }

    fn keep(&mut self, digest: Sha256, verdict: &Verdict, lifetime: Duration) {
        let now = Instant::now();
        match verdict {
            Verdict::Known(user) => {
                make_room(&mut self.known, now, |(_, until)| *until);
                self.refused.remove(&digest);
                self.known.insert(digest, (user.clone(), now + KNOWN.min(lifetime)));
            }
            Verdict::Refused => {
                make_room(&mut self.refused, now, |until| *until);
                self.known.remove(&digest);
                self.refused.insert(digest, now + REFUSED);
            }
            Verdict::Failed => {}
        }
    }
}

/// Forgets what no longer holds, and if that is not enough a tenth of what ends next.
fn make_room<T>(kept: &mut HashMap<Sha256, T>, now: Instant, until: impl Fn(&T) -> Instant) {
    if kept.len() < MOST {
        return;
    }
    kept.retain(|_, entry| until(entry) > now);
    if kept.len() < MOST {
        return;
    }
    let mut ends = kept.values().map(&until).collect::<Vec<_>>();
    let (_, last, _) = ends.select_nth_unstable(MOST / 10);
    let last = *last;
    kept.retain(|_, entry| until(entry) > last);
}

/// How long a token that was found valid will be so, as it says itself; for ever, if it does not.
fn lifetime(token: &SecretString) -> Duration {
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
    async fn ds04_an_answer_holds_a_minute_and_a_refusal_five_seconds() {
        let mut kept = Kept::default();
        let known = Verdict::Known("a".to_owned());
        kept.keep(digest(1), &known, Duration::MAX);
        kept.keep(digest(2), &Verdict::Refused, Duration::MAX);
        kept.keep(digest(3), &Verdict::Failed, Duration::MAX);
        kept.keep(digest(4), &known, Duration::from_secs(2));
        let told = |seconds| {
            let verdicts = [1, 2, 3, 4].map(|number| kept.verdict(digest(number)));
            (seconds, verdicts)
        };
        let refused = Some(Verdict::Refused);
        assert_eq!(told(0).1, [Some(known.clone()), refused.clone(), None, Some(known.clone())]);
        tokio::time::advance(Duration::from_millis(4900)).await;
        assert_eq!(told(5).1, [Some(known.clone()), refused, None, None]);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(told(5).1, [Some(known.clone()), None, None, None]);
        tokio::time::advance(Duration::from_secs(54)).await;
        assert_eq!(told(59).1, [Some(known), None, None, None]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(told(60).1, [None, None, None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_kept_than_so_much_and_rubbish_displaces_nobody() {
        let mut kept = Kept::default();
        let known = Verdict::Known("a".to_owned());
        kept.keep(digest(0), &known, Duration::MAX);
        for number in 1..2 * MOST {
            kept.keep(digest(number), &Verdict::Refused, Duration::MAX);
        }
        assert!(kept.refused.len() <= MOST);
        assert_eq!(kept.verdict(digest(0)), Some(known.clone()));
        for number in 1..2 * MOST {
            kept.keep(digest(number), &known, Duration::MAX);
        }
        assert!(kept.known.len() <= MOST);
        assert_eq!(kept.verdict(digest(2 * MOST - 1)), Some(known));
    }

    #[tokio::test]
    async fn rubbish_that_waits_to_be_reviewed_is_bounded_and_holds_up_nobody_who_is_known() {
        let kube = support::FakeTokenReviews::start().await;
        kube.account("team-a/runner", "known");
        let api = crate::KubeApi::Kubeconfig(vec![kube.kubeconfig()]);
        let reviews = Reviews::new(Reviewer::open(&api).await.unwrap());
        let known = Verdict::Known("system:serviceaccount:team-a:runner".to_owned());
        assert_eq!(reviews.verdict("known".into()).await, known);
        kube.fault(Some(support::TokenReviewFault::Hangs));
        let mut waiting = (0..FLYING)
            .map(|number| Box::pin(reviews.verdict(format!("rubbish {number}").into())))
            .collect::<Vec<_>>();
        for question in &mut waiting {
            assert_eq!(futures::poll!(question), std::task::Poll::Pending);
        }
        let one_more = reviews.verdict("one more".into()).now_or_never();
        assert_eq!(one_more, Some(Verdict::Failed));
        assert_eq!(reviews.verdict("known".into()).now_or_never(), Some(known));
        assert!(reviews.kept.lock().unwrap().flights.len() <= FLYING);
    }

    #[test]
    fn a_token_says_itself_when_it_ends() {
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
