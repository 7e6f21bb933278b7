//! Errors of `runner classify`.

use crate::failure::{Failure, Kind};
use crate::tool::diagnosis::ClassifyError;

impl From<&ClassifyError> for Failure {
    fn from(error: &ClassifyError) -> Self {
        match error {
            ClassifyError::Read(..) => Self::new(Kind::Config, error)
                .with_hint("name the file with the output of the run, or pipe it: `COMMAND 2>&1 | runner classify`"),
            ClassifyError::ReadRules(..) => {
                Self::new(Kind::Config, error).with_hint("name a file of rules that can be read")
            }
            ClassifyError::Rules(..) => Self::new(Kind::Config, error).with_hint(
                "correct that rule: it has an id, a class (lock, config, quota, already_exists, auth, interrupted, \
                 transient or unknown) and a pattern, a regular expression",
            ),
            ClassifyError::Output(_) => Self::new(Kind::Unclassified, error)
                .with_hint("check where stdout goes: free some space there, or write to another file"),
        }
    }
}
