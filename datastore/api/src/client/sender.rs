//! Which program answered: a datastore, or a proxy in front of it.

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, SERVER};

/// The program that sent an error answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A datastore of Plancha, by its header `Server`.
    Plancha,
    /// A datastore, by the form of the answer: Burrito's, an older one of Plancha, or one behind a proxy that replaces
    /// the header `Server`.
    Datastore,
    /// Perhaps a proxy.
    Unknown,
}

/// The messages for a missing object on Burrito's routes, of both datastores.
pub(super) const NOT_FOUND: [&str; 3] =
    ["No plan for this attempt", "No logs for this attempt", "No bundle found for this revision"];

impl Sender {
    pub(super) fn of(response: &Response) -> Self {
        let is = |name, text: &str| {
            response.headers().get(name).is_some_and(|value| value.as_bytes() == text.as_bytes())
        };
        if is(SERVER, "plancha") {
            Self::Plancha
        } else if is(CONTENT_TYPE, "application/problem+json") {
            Self::Datastore
        } else {
            Self::Unknown
        }
    }
}
