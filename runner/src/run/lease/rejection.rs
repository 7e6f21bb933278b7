//! Why the datastore has refused a state: the tool shows only the status.

use std::time::Duration;

use datastore_api::client::{Settings, Token};
use datastore_api::state::{StateKind, StateVersion};
use datastore_api::{Client, ClientError, chain};

use crate::process::text::one_line;
use crate::run::Run;
use crate::run::lease::HeldLease;

/// How long the request may take, also after a signal.
const LIMIT: Duration = Duration::from_secs(5);
/// So many refused versions are searched.
const PAGE: u16 = 20;

impl Run<'_> {
    /// The reason of the last state that the datastore has refused from this run, which it has kept.
    pub(in crate::run) async fn rejection(&self) -> Option<String> {
        let (key, datastore) = (self.state_here.as_ref()?, self.job.datastore.as_ref()?);
        let lease = self.lease.held();
        let with_token = datastore.once(LIMIT);
        let listed = with_token.states(key, Some(StateKind::Rejected), PAGE, None).await;
        // The caller's token may have expired.
        let credential = lease.and_then(|lease| lease.credential(key));
        let listed = match (listed, credential) {
            (Err(error), Some(credential)) if is_refused(&error) => {
                let token = Token::Text(credential.clone());
                let settings = Settings { token, ..with_token.settings().clone() };
                match Client::new(settings) {
                    Ok(client) => client.states(key, Some(StateKind::Rejected), PAGE, None).await,
                    Err(_) => Err(error),
                }
            }
            (listed, _) => listed,
        };
        let versions = match listed {
            Ok(listed) => listed.versions,
            Err(error) => {
                tracing::debug!("it is not known why the state was refused: {}", chain(&error));
                return None;
            }
        };
        let (run, number) = (self.run_name(), lease.map(HeldLease::number));
        let is_ours = |version: &&StateVersion| {
            version.run.as_deref() == Some(&*run) || number.is_some() && version.fence == number
        };
        let version = versions.iter().find(is_ours)?;
        let reason = version.reason.as_deref().unwrap_or("no reason is known");
        Some(format!(
            "the datastore has refused the state of serial {}, and kept it as version {}: {}",
            version.serial,
            version.version,
            one_line(reason)
        ))
    }
}

/// Whether the token is not accepted.
fn is_refused(error: &ClientError) -> bool {
    matches!(error, ClientError::Token { .. })
        || error.status().is_some_and(|status| status.is_client_error())
}
