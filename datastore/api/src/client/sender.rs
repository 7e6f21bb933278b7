//! Who has answered: a datastore, or something between it and us.

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, SERVER};

/// Who has sent a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A datastore of Plancha: it says so in the header `Server`.
    Plancha,
    /// By its form, a datastore: Burrito's, an older one of Plancha, or one behind a proxy that replaces
    /// the header `Server`.
    Datastore,
    /// Perhaps a proxy.
    Unknown,
}

/// What a datastore says, Burrito's too, where there is no such object on Burrito's routes.
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
