//! Plans whose changes cannot be listed, remembered for a while.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::changes::UnreadablePlan;
use crate::store::key::Key;

/// How long a plan is remembered.
const AGE: Duration = Duration::from_mins(5);
/// How many are.
const MAX: usize = 256;

/// Plans that cannot be listed: each try would read one to its fault again. Clones share them.
#[derive(Clone, Default)]
pub(in crate::store) struct UnreadablePlans(Arc<Mutex<VecDeque<Unreadable>>>);

struct Unreadable {
    /// That of its list, which names the version.
    key: Key,
    since: Instant,
    error: UnreadablePlan,
}

impl UnreadablePlans {
    /// Why no list can be made at this key, if that was found out lately.
    pub(super) fn find(&self, key: &Key) -> Option<UnreadablePlan> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plans.iter().rev().find(|plan| plan.key == *key)?;
        (found.since.elapsed() < AGE).then(|| found.error.clone())
    }

    pub(super) fn add(&self, key: Key, error: UnreadablePlan) {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() == MAX {
            plans.pop_front();
        }
        plans.push_back(Unreadable { key, since: Instant::now(), error });
    }
}

impl fmt::Debug for UnreadablePlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnreadablePlans").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_plans_are_remembered_for_a_while() {
        let plans = UnreadablePlans::default();
        let key = |number: usize| {
            let path = format!("layers/a/b/c/{number}/plan.json");
            Key::from_path(&path).unwrap()
        };
        plans.add(key(0), UnreadablePlan::State);
        assert_eq!((plans.find(&key(0)), plans.find(&key(1))), (Some(UnreadablePlan::State), None));
        tokio::time::advance(AGE).await;
        assert_eq!(plans.find(&key(0)), None);
        for number in 0..=MAX {
            plans.add(key(number), UnreadablePlan::Read);
        }
        assert_eq!((plans.find(&key(0)), plans.0.lock().unwrap().len()), (None, MAX));
        assert_eq!(plans.find(&key(1)), Some(UnreadablePlan::Read));
    }
}
