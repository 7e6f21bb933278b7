//! States that their backends have refused, as artifacts of an attempt.

use datastore_api::client::{Condition, Upload};
use datastore_api::{Attempt, Client, ClientError, RunKey};
use reqwest::StatusCode;

use crate::run::artifacts::other;
use crate::source::states::errored_name;

/// An attempt that is repeated can leave several states.
const MAX_STATES: usize = 20;

/// Stores a state under the first free name, and returns that. The same bytes are stored once.
pub(crate) async fn put_state(
    client: &Client,
    (run, attempt): (&RunKey, Attempt),
    state: &Upload,
) -> Result<String, ClientError> {
    let mut index = 0;
    loop {
        let name = errored_name(index);
        index += 1;
        match client.put_file(run, attempt, &other(&name), state, Condition::Create).await {
            Err(error)
                if index < MAX_STATES
                    && error.status() == Some(StatusCode::PRECONDITION_FAILED) => {}
            stored => return stored.map(|()| name),
        }
    }
}
