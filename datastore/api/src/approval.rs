//! Approvals of destructive changes: an offer is stored, a person repeats its digest, and one run uses it up.
//!
//! It knows what they are and how their digests are made. The datastore decides which one is valid.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::Sha256;
use crate::key::Attempt;
use crate::name::{InvalidName, Name};

/// How long an offer is valid without another lifetime, in seconds: 24 hours.
pub const LIFETIME: u64 = 24 * 60 * 60;

/// The longest lifetime of an offer, in seconds: 30 days.
pub const MAX_LIFETIME: u64 = 30 * LIFETIME;

/// The digest that approves a set of changes, offered for this many times before. No two offers have the same one, so an
/// approval that stays in a command line does not approve again.
pub fn approval_digest(set: Sha256, generation: u32) -> Sha256 {
    match generation {
        0 => set,
        generation => Sha256::of(format!("{set}:{generation}").as_bytes()),
    }
}

/// A run and its attempt, `RUN/ATTEMPT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunAttempt {
    /// The run.
    pub run: Name,
    /// Its attempt.
    pub attempt: Attempt,
}

impl fmt::Display for RunAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.attempt)
    }
}

impl FromStr for RunAttempt {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let parts = text.rsplit_once('/');
        let (run, attempt) =
            parts.ok_or_else(|| InvalidName::new(text, "is not RUN/ATTEMPT, such as run-1/0"))?;
        Ok(Self { run: run.parse()?, attempt: attempt.parse()? })
    }
}

/// The answer of `POST /api/approvals`: the open offer for a set of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The digest that approves the set once.
    pub approval: Sha256,
    /// When it was stored, RFC 3339 in UTC.
    pub first_stored: String,
    /// When it expires, RFC 3339 in UTC.
    pub expires: String,
}

/// The answer of `POST /api/approvals/claim`, and the use of an offer in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalUse {
    /// The caller that used it, as the datastore knows it; `null` where callers are not authenticated.
    pub approved_by: Option<String>,
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// The run, `RUN/ATTEMPT`.
    pub run: String,
}

/// The answer of `GET /api/approvals`: the offers of a layer, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approvals {
    /// The offers.
    pub approvals: Vec<ListedOffer>,
    /// Those of the same time that cannot be read: they approve nothing.
    #[serde(default)]
    pub unreadable: Vec<UnreadableOffer>,
}

/// An offer that was changed in the storage, or lost there, or whose use was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableOffer {
    /// The digest that would approve it.
    pub approval: Sha256,
    /// The digest of the set of changes.
    pub set: Sha256,
    /// How many offers for the same set were stored before.
    pub generation: u32,
    /// Which object is damaged or missing, and what to do.
    pub reason: String,
}

/// An offer, as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedOffer {
    /// The offer.
    #[serde(flatten)]
    pub offer: Offer,
    /// The digest of the set of changes.
    pub set: Sha256,
    /// How many offers for the same set were stored before.
    pub generation: u32,
    /// The run that stored it, `RUN/ATTEMPT`.
    pub run: String,
    /// The caller that stored it; `null` where callers are not authenticated.
    pub offered_by: Option<String>,
    /// Its use; `null` if it was not used.
    pub used: Option<ApprovalUse>,
}

/// Why an approval is refused, beside the text of the problem document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedApproval {
    /// The use that used it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<ApprovalUse>,
    /// When it expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<String>,
    /// The set of changes that it approves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<Sha256>,
    /// Whether no offer has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_generations_have_the_same_digest() {
        let set = Sha256::of(b"set");
        assert_eq!(approval_digest(set, 0), set);
        assert_eq!(approval_digest(set, 1), Sha256::of(format!("{set}:1").as_bytes()));
        assert_ne!(approval_digest(set, 1), approval_digest(set, 2));
    }

    #[test]
    fn a_run_and_its_attempt_have_one_spelling() {
        let parsed = "run 1/12".parse::<RunAttempt>().unwrap();
        assert_eq!(parsed.to_string(), "run 1/12");
        for text in ["", "run", "run/", "/0", "run/01", "a/b/0", "../0"] {
            text.parse::<RunAttempt>().unwrap_err();
        }
    }
}
