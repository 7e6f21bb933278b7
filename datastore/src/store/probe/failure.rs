//! What the failure of a step shows: that the storage does not do this, or only that this try has failed.

use std::error::Error;
use std::io;

use datastore_api::chain;

use crate::store::backend::response::{self, Denied, code, refusal, status};
use crate::store::probe::ability::Ability;

/// The probe's object has other bytes than were written.
#[derive(Debug, thiserror::Error)]
#[error("what was read is not what was written")]
pub(super) struct Differs;

/// Whether the error of a step shows that the storage does not do it until somebody corrects that. A timeout, an error of
/// the server, a wrong clock and refused credentials say nothing about the step. No error shows that a condition is ignored.
pub(super) fn shows_inability(step: Ability, error: &(dyn Error + 'static)) -> bool {
    if !matches!(step, Ability::List | Ability::Write | Ability::Read | Ability::Delete) {
        return false;
    }
    let mut cause = Some(error);
    while let Some(now) = cause {
        if now.is::<Denied>() || now.is::<Differs>() {
            return true;
        }
        if let Some(error) = now.downcast_ref::<io::Error>() {
            use io::ErrorKind as Kind;
            let kind = error.kind();
            let is_place =
                matches!(kind, Kind::NotFound | Kind::NotADirectory | Kind::IsADirectory);
            let is_right = matches!(kind, Kind::PermissionDenied | Kind::ReadOnlyFilesystem);
            if is_place || is_right || matches!(kind, Kind::StorageFull | Kind::QuotaExceeded) {
                return true;
            }
        }
        cause = now.source();
    }
    let text = chain(error);
    let status = status(&text);
    refusal(&text).is_none()
        && (matches!(status, Some(403 | 404 | 507)) || response::is_permanent(status, code(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::metered::NoAnswer;

    fn shows(step: Ability, error: impl Into<crate::store::error::BoxError>) -> bool {
        shows_inability(step, &*error.into())
    }

    #[test]
    fn only_a_lasting_refusal_shows_that_a_step_is_not_possible() {
        let answer = |answer: &str| format!("PUT http://h/b/k - status code: {answer}");
        let xml = |code: &str| format!("<Error><Code>{code}</Code></Error>");
        for (text, expected) in [
            (answer("403 Forbidden: "), true),
            (answer(&format!("403 Forbidden: {}", xml("AccountProblem"))), true),
            (answer("404 Not Found: "), true),
            (answer("405 Method Not Allowed: "), true),
            (answer("507 Insufficient Storage: "), true),
            (answer("500 Internal Server Error: "), false),
            (answer("503 Service Unavailable: "), false),
            (answer("429 Too Many Requests: "), false),
            (answer("401 Unauthorized: "), false),
            (answer(&format!("403 Forbidden: {}", xml("InvalidAccessKeyId"))), false),
            (answer(&format!("403 Forbidden: {}", xml("RequestTimeTooSkewed"))), false),
            (answer(&format!("403 Forbidden: {}", xml("SlowDown"))), false),
            ("connection refused".to_owned(), false),
        ] {
            for step in [Ability::List, Ability::Write, Ability::Read, Ability::Delete] {
                assert_eq!(shows(step, &*text), expected, "{text}");
            }
            assert!(!shows(Ability::Create, &*text), "{text}");
        }
        assert!(!shows(
            Ability::Write,
            NoAnswer { waits_for: "write", limit: std::time::Duration::ZERO }
        ));
        for (kind, expected) in [
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::StorageFull, true),
            (io::ErrorKind::Interrupted, false),
        ] {
            assert_eq!(shows(Ability::Write, io::Error::from(kind)), expected, "{kind}");
        }
        assert!(shows(Ability::Read, Differs));
    }
}
