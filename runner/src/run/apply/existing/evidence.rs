//! Whether ledgers show that this layer itself has created an object without an answer.

use crate::report::ledger::{Resource, State};
use crate::tool::diagnostics::Action;

/// Why they do not.
pub(super) const EXISTED: &str = "an earlier create of it has found that it exists";
pub(super) const NO_CREATE: &str =
    "no ledger of this layer shows an earlier create of it that ended without an answer";

/// The last create of an address, if that ended without an answer. `past`: everything that applies of the layer have done,
/// in the order in which they did it, each entry with what it is of.
///
/// An object that an earlier create has found was there before, so it is someone else's: nothing later changes that. An
/// error with an answer leaves open how an earlier create has ended. Anything else that was done to the address since
/// shows that it has ended.
pub(super) fn unanswered_create<'a, T>(
    address: &str,
    past: impl Iterator<Item = (&'a Resource, T)>,
) -> Result<T, &'static str> {
    let mut found = None;
    let is_current =
        |resource: &Resource| resource.address == address && resource.deposed.is_none();
    for (resource, of) in past.filter(|(resource, _)| is_current(resource)) {
        if resource.class.as_deref() == Some("already_exists") {
            return Err(EXISTED);
        }
        match (resource.action, resource.state) {
            (Action::Create, State::Started | State::Unknown) => found = Some(of),
            (Action::Create, State::Failed) if resource.unanswered => found = Some(of),
            (Action::Create, State::Failed) => {}
            _ => found = None,
        }
    }
    found.ok_or(NO_CREATE)
}

/// How the last creation at an address has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creation {
    /// There was none, or its object was changed or deleted since, or was someone else's.
    None,
    /// Without an answer.
    Open,
    /// With an error that is an answer.
    Failed,
    Completed,
}

/// How the last creation at an address has ended, of which `past` has everything but deposed objects. An error with an answer leaves open
/// how an earlier one has ended.
pub(super) fn last_creation<'a>(past: impl Iterator<Item = &'a Resource>) -> Creation {
    past.fold(Creation::None, |before, resource| match (resource.action, resource.state) {
        (Action::Create, State::Completed) => Creation::Completed,
        (Action::Create, State::Failed) if !resource.unanswered => match before {
            Creation::Open => Creation::Open,
            _ if resource.class.as_deref() == Some("already_exists") => Creation::None,
            _ => Creation::Failed,
        },
        (Action::Create, _) => Creation::Open,
        _ => Creation::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(action: &str, state: &str, class: Option<&str>, unanswered: bool) -> Resource {
        let json = serde_json::json!({
            "address": "a_b.c", "action": action, "state": state, "since": "2026-01-01T00:00:00Z", "try": 1,
            "class": class, "unanswered": unanswered,
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn last_creation_may_be_open_failed_or_complete() {
        let created = || entry("create", "completed", None, false);
        let deleted = || entry("delete", "completed", None, false);
        let killed = || entry("create", "started", None, false);
        let reset = || entry("create", "failed", Some("transient"), true);
        let failed = || entry("create", "failed", Some("unknown"), false);
        let existed = || entry("create", "failed", Some("already_exists"), false);
        for (past, expected) in [
            (vec![], Creation::None),
            (vec![created()], Creation::Completed),
            (vec![created(), deleted()], Creation::None),
            (vec![created(), entry("update", "completed", None, false)], Creation::None),
            (vec![deleted(), killed()], Creation::Open),
            (vec![reset()], Creation::Open),
            (vec![reset(), failed()], Creation::Open),
            (vec![killed(), existed()], Creation::Open),
            (vec![existed(), killed()], Creation::Open),
            (vec![killed(), created()], Creation::Completed),
            (vec![failed()], Creation::Failed),
            (vec![created(), failed()], Creation::Failed),
            (vec![existed()], Creation::None),
        ] {
            assert_eq!(last_creation(past.iter()), expected, "{past:?}");
        }
    }

    #[test]
    fn only_a_last_create_without_an_answer_is_evidence() {
        let created = || entry("create", "completed", None, false);
        let deleted = || entry("delete", "completed", None, false);
        let killed = || entry("create", "started", None, false);
        let unknown = || entry("create", "unknown", None, false);
        let reset = || entry("create", "failed", Some("transient"), true);
        let throttled = || entry("create", "failed", Some("transient"), false);
        let forbidden = || entry("create", "failed", Some("auth"), false);
        let of_old = || Resource { deposed: Some("0a1b2c3d".to_owned()), ..deleted() };
        let existed = || entry("create", "failed", Some("already_exists"), false);
        for (past, expected) in [
            (vec![killed()], Ok(0)),
            (vec![unknown()], Ok(0)),
            (vec![reset()], Ok(0)),
            (vec![reset(), throttled(), forbidden()], Ok(0)),
            (vec![created(), deleted(), reset()], Ok(2)),
            (vec![], Err(NO_CREATE)),
            (vec![throttled()], Err(NO_CREATE)),
            (vec![forbidden()], Err(NO_CREATE)),
            (vec![killed(), created()], Err(NO_CREATE)),
            (vec![killed(), deleted()], Err(NO_CREATE)),
            (vec![killed(), of_old()], Ok(0)),
            (vec![killed(), entry("import", "completed", None, false)], Err(NO_CREATE)),
            (vec![existed(), killed()], Err(EXISTED)),
            (vec![killed(), existed()], Err(EXISTED)),
            (vec![entry("delete", "started", None, false)], Err(NO_CREATE)),
        ] {
            let numbered = past.iter().enumerate().map(|(at, one)| (one, at));
            assert_eq!(unanswered_create("a_b.c", numbered), expected, "{past:?}");
            let numbered = past.iter().enumerate().map(|(at, one)| (one, at));
            assert!(unanswered_create("a_b.d", numbered).is_err());
        }
    }
}
