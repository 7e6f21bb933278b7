//! The numbers of a run's attempts.

use datastore_api::key::AttemptFiles;
use datastore_api::{Attempt, ClientError, Name};

/// The attempt cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("attempt {attempt} of run {run} {why}")]
    Taken { run: Name, attempt: Attempt, why: &'static str },
    #[error("run {run} has no free attempt number left: attempt {last} is stored or claimed")]
    NoneFree { run: Name, last: Attempt },
    #[error(
        "no attempt of run {run} can be claimed: the datastore answers for each of {tries} numbers up to {last} that another run \
         has claimed it"
    )]
    AllClaimed { run: Name, tries: u32, last: Attempt },
    #[error("the datastore")]
    Datastore(#[from] ClientError),
}

/// The number after the highest one of a run.
pub(super) fn next_free(run: &Name, stored: &[AttemptFiles]) -> Result<Attempt, OpenError> {
    let highest = stored.iter().map(|files| files.attempt).max();
    highest.map_or(Ok(Attempt(0)), |highest| after(run, highest))
}

/// The number after this one.
pub(super) fn after(run: &Name, attempt: Attempt) -> Result<Attempt, OpenError> {
    let next = attempt.0.checked_add(1).map(Attempt);
    next.ok_or_else(|| OpenError::NoneFree { run: run.clone(), last: attempt })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_attempt_number_has_no_next_one() {
        let run = "r".parse::<Name>().unwrap();
        let next = |numbers: &[u32]| {
            let files = |number: &u32| AttemptFiles {
                attempt: Attempt(*number),
                artifacts: Vec::new(),
                live: None,
            };
            next_free(&run, &numbers.iter().map(files).collect::<Vec<_>>())
        };
        assert_eq!(next(&[]).unwrap(), Attempt(0));
        assert_eq!(next(&[0, 4, 2]).unwrap(), Attempt(5));
        assert_eq!(next(&[u32::MAX - 1]).unwrap(), Attempt(u32::MAX));
        assert_eq!(
            next(&[0, u32::MAX]).unwrap_err().to_string(),
            "run r has no free attempt number left: attempt 4294967295 is stored or claimed"
        );
    }
}
