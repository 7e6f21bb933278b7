//! Renews a lease, in a thread of its own: neither the work of the run nor a slow disk delays it.
//!
//! The lease is lost only when the datastore says so. One that does not answer is asked again and again, also when the lease
//! has expired: as long as nobody has taken it over, it is renewed all the same.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use datastore_api::client::{LeaseAnswer, Settings, Token};
use datastore_api::state::Lease;
use datastore_api::{ClaimId, Client, ClientError, Name, chain};
use jiff::Timestamp;
use reqwest::StatusCode;
use secrecy::SecretString;
use tokio::sync::oneshot;

use crate::process::{Signals, Stop};

/// So many renewals fit into the time that a lease lasts: of 300 s, one every 30 s.
const RENEWALS: u32 = 10;
const LONGEST: Duration = Duration::from_secs(30);
const SHORTEST: Duration = Duration::from_millis(100);
/// How long a renewal may take, and the pause after one that failed.
const LIMIT: Duration = Duration::from_secs(10);

/// The renewal of a lease, until it is dropped.
#[derive(Debug)]
pub(super) struct Renewal {
    lost: Arc<OnceLock<String>>,
    renewed: Arc<Renewed>,
    _end: oneshot::Sender<()>,
}

/// What is renewed.
#[derive(Debug)]
pub(super) struct Renewed {
    pub(super) settings: Settings,
    pub(super) namespace: Name,
    pub(super) layer: Name,
    pub(super) id: ClaimId,
    pub(super) number: u64,
    /// The password for the state, which outlives the caller's token.
    pub(super) credential: Option<SecretString>,
}

impl Renewal {
    /// Starts it. When the lease is lost, the run is stopped.
    pub(super) fn start(
        renewed: Renewed,
        lease: &Lease,
        signals: &Signals,
    ) -> std::io::Result<Self> {
        let lost = Arc::<OnceLock<String>>::default();
        let (end, ended) = oneshot::channel();
        let pause = pause(lease);
        let (ours, signals) = (Arc::clone(&lost), signals.clone());
        let renewed = Arc::new(renewed);
        let kept = Arc::clone(&renewed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("lease".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    holder = renewed.until_lost(pause) => {
                        tracing::warn!("the lease is lost: {holder}");
                        drop(ours.set(holder));
                        signals.raise(Stop::LeaseLost);
                    }
                }
            });
            runtime.shutdown_background();
        })?;
        Ok(Self { lost, renewed: kept, _end: end })
    }

    /// Asks the datastore once whether the lease is lost.
    pub(super) async fn check(&self) {
        if let Ok(LeaseAnswer::Lost(holder) | LeaseAnswer::Held(holder)) =
            self.renewed.renew().await
        {
            drop(self.lost.set(holder));
        }
    }

    /// Who has the layer instead, if the lease is lost.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }
}

/// The pause between two renewals.
fn pause(lease: &Lease) -> Duration {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let lasts =
        || Duration::try_from(time(&lease.expires)?.duration_since(time(&lease.renewed)?)).ok();
    lasts().map_or(LONGEST, |lasts| (lasts / RENEWALS).clamp(SHORTEST, LONGEST))
}

impl Renewed {
    /// Renews the lease until it is lost. Returns who has it.
    async fn until_lost(&self, regular: Duration) -> String {
        let (mut pause, mut fails) = (regular, false);
        loop {
            tokio::time::sleep(pause).await;
            pause = regular;
            match self.renew().await {
                Ok(LeaseAnswer::Granted(granted)) if granted.lease.number == self.number => {
                    if fails {
                        tracing::info!("the lease is renewed again");
                    }
                    fails = false;
                    continue;
                }
                Ok(LeaseAnswer::Granted(granted)) => {
                    return format!("its number is {} by now", granted.lease.number);
                }
                Ok(LeaseAnswer::Lost(holder) | LeaseAnswer::Held(holder)) => return holder,
                Ok(LeaseAnswer::Unsupported) if !fails => {
                    tracing::warn!(
                        "the lease is not renewed: the datastore has no leases any more; trying again"
                    );
                }
                Err(error) if !fails => {
                    tracing::warn!("the lease is not renewed: {}; trying again", chain(&error));
                }
                Ok(LeaseAnswer::Unsupported) | Err(_) => {}
            }
            fails = true;
            pause = regular.min(LIMIT);
        }
    }

    /// One try: with the caller's token, and if that is refused, with the password for the state.
    async fn renew(&self) -> Result<LeaseAnswer, ClientError> {
        let answer = self.renew_with(self.settings.token.clone()).await;
        let (Err(error), Some(credential)) = (&answer, &self.credential) else { return answer };
        let is_refused = matches!(error, ClientError::Token { .. })
            || matches!(error.status(), Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN));
        if !is_refused {
            return answer;
        }
        let ours = self.renew_with(Token::Text(credential.clone())).await;
        if ours.is_ok() { ours } else { answer }
    }

    async fn renew_with(&self, token: Token) -> Result<LeaseAnswer, ClientError> {
        // A client of this thread: the connections of another one belong to the runtime of the run.
        let settings =
            Settings { token, timeout: LIMIT, retries: 0, notify: None, ..self.settings.clone() };
        Client::new(settings)?.renew_lease(&self.namespace, &self.layer, &self.id).await
    }
}

#[cfg(test)]
mod tests {
    use datastore_api::state::LeaseRequest;

    use super::*;

    #[test]
    fn a_lease_is_renewed_ten_times_before_it_expires() {
        let lease = |expires: &str| Lease {
            number: 1,
            request: LeaseRequest { holder: String::new(), host: String::new(), run: None },
            caller: None,
            acquired: "2026-01-01T00:00:00Z".to_owned(),
            renewed: "2026-01-01T00:00:00Z".to_owned(),
            expires: expires.to_owned(),
            valid: true,
            took_over: None,
        };
        assert_eq!(pause(&lease("2026-01-01T00:05:00Z")), Duration::from_secs(30));
        assert_eq!(pause(&lease("2026-01-01T00:00:02Z")), Duration::from_millis(200));
        assert_eq!(pause(&lease("2026-01-01T00:00:00Z")), SHORTEST);
        assert_eq!(pause(&lease("2026-02-01T00:00:00Z")), LONGEST);
        assert_eq!(pause(&lease("soon")), LONGEST);
    }
}
