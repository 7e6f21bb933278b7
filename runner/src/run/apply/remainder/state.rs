//! The state between two tries: no other process may have changed it.

use std::path::Path;

use fs_err as fs;

use crate::basis::plan_file::{StateVersion, version_in_plan};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run};
use crate::source::regular;

/// What is known of the state before another try.
#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    /// The one of which the reviewed plan was made.
    planned: Option<&'a StateVersion>,
    /// The one that the last try has left.
    left: Option<&'a StateVersion>,
}

impl Known<'_> {
    /// How the state differs from the one that the last try has left, or cannot be a later one than the planned one.
    fn difference(self, now: &StateVersion) -> Option<String> {
        let Known { planned, left } = self;
        if let Some(left) = left.filter(|left| *left != now) {
            let (left, now) = (shown(left), shown(now));
            return Some(format!(
                "another process has changed the state since the last try: it was {left}, now it is {now}"
            ));
        }
        let planned = planned.filter(|planned| !planned.lineage.is_empty())?;
        let is_later = planned.lineage == now.lineage && planned.serial <= now.serial;
        let (planned, now) = (shown(planned), shown(now));
        (!is_later).then(|| {
            format!("the state is not a later version of that of the plan, {planned}: {now}")
        })
    }

    fn check(self, now: &StateVersion) -> Result<(), RunError> {
        self.difference(now).map_or(Ok(()), |difference| Err(RunError::Changed(difference)))
    }
}

fn shown(version: &StateVersion) -> String {
    let StateVersion { lineage, serial } = version;
    if lineage.is_empty() {
        return "none".to_owned();
    }
    format!("serial {serial} of lineage {lineage}")
}

impl Run<'_> {
    /// Refuses another try if the state is not the one that the last try has `left`. `new`: the new plan, which contains the
    /// version of the state of which it was made.
    pub(super) async fn check_state_left(
        &mut self,
        prepared: &Prepared,
        new: Option<&Path>,
        left: Option<&StateVersion>,
    ) -> Result<(), RunError> {
        let now = match new.and_then(version_in_plan) {
            Some(now) => Some(now),
            None => self.pull_version(prepared).await?,
        };
        let reviewed = new.and_then(|_| version_in_plan(&self.scratch.join(PLAN_FILE)));
        let recorded = self.binding.as_ref().and_then(|binding| binding.state.clone());
        let planned = reviewed.or(recorded);
        let known = Known { planned: planned.as_ref(), left };
        now.map_or(Ok(()), |now| known.check(&now))
    }

    /// The version of the state that the backend has. `None`: it cannot be read now.
    pub(in crate::run) async fn pull_version(
        &mut self,
        prepared: &Prepared,
    ) -> Result<Option<StateVersion>, RunError> {
        let file = self.scratch.join("state-version");
        let pulled = self.read_state(prepared, &file).await;
        let read = match pulled {
            Err(error) if error.is_stop() => return Err(error),
            Err(error) => Err(error.to_string()),
            Ok(()) => {
                let read = fs::File::open(&file).and_then(StateVersion::read);
                read.map_err(|error| error.to_string())
            }
        };
        // It is as secret as a state.
        regular::unless_missing(fs::remove_file(&file))?;
        let unread = |error| tracing::warn!("the version of the state is not known: {error}");
        Ok(read.map_err(unread).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(lineage: &str, serial: u64) -> StateVersion {
        StateVersion { lineage: lineage.to_owned(), serial }
    }

    #[test]
    fn state_is_that_of_the_last_try_and_none_before_the_plan() {
        let (none, a2, a3, b2) =
            (version("", 0), version("a", 2), version("a", 3), version("b", 2));
        let check = |planned, left, now| Known { planned, left }.difference(now);
        for now in [&none, &a2] {
            assert_eq!(check(None, None, now), None);
            assert_eq!(check(Some(&none), None, now), None);
            assert_eq!(check(Some(&none), Some(now), now), None);
        }
        assert_eq!(check(Some(&a2), None, &a3), None);
        assert_eq!(check(Some(&a2), Some(&a3), &a3), None);
        for now in [&none, &a2, &b2] {
            assert!(check(Some(&a3), None, now).is_some());
            assert!(check(None, Some(&a3), now).is_some());
        }
        assert_eq!(
            check(Some(&a2), Some(&a2), &a3).unwrap(),
            "another process has changed the state since the last try: it was serial 2 of lineage a, now it is serial 3 of lineage a"
        );
    }
}
