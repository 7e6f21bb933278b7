//! The variables by which the backend `http` of terraform and tofu reaches a state in the datastore.
//!
//! What the backend block sets itself wins over a variable, and only that is part of a saved plan: the variables may differ
//! between init, plan and apply.

use std::ffi::OsString;

use datastore_api::Client;
use datastore_api::client::StateOrigin;
use datastore_api::state::StateKey;
use secrecy::{ExposeSecret as _, SecretString};

/// The user of a password that is a token or a credential. The datastore ignores it.
const USER: &str = "plancha";

/// How often a request is repeated, and the pauses before that in seconds, each twice as long as the one before: for about
/// 95 s in total, which a restart of the datastore does not take.
const RETRIES: [(&str, &str); 3] = [
    ("TF_HTTP_RETRY_MAX", "12"),
    ("TF_HTTP_RETRY_WAIT_MIN", "1"),
    ("TF_HTTP_RETRY_WAIT_MAX", "10"),
];

/// The variables for the state `key` in this datastore. `origin` travels in the query of the addresses, so it has the fencing
/// number of the lease. Without a `password`, those of the user stay.
pub(crate) fn state_variables(
    datastore: &Client,
    key: &StateKey,
    origin: &StateOrigin,
    password: Option<&SecretString>,
) -> Vec<(String, OsString)> {
    let address = datastore.state_address(key, origin);
    let addresses = ["TF_HTTP_ADDRESS", "TF_HTTP_LOCK_ADDRESS", "TF_HTTP_UNLOCK_ADDRESS"];
    let mut variables = addresses.map(|name| (name, address.as_str())).to_vec();
    variables.extend([("TF_HTTP_LOCK_METHOD", "LOCK"), ("TF_HTTP_UNLOCK_METHOD", "UNLOCK")]);
    variables.push(("TF_HTTP_UPDATE_METHOD", "POST"));
    variables.extend(RETRIES);
    if let Some(password) = password {
        variables.push(("TF_HTTP_USERNAME", USER));
        variables.push(("TF_HTTP_PASSWORD", password.expose_secret()));
    }
    variables.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}
