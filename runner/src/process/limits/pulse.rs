//! The pulse of a run: when its programs last made progress. Each program that starts, ends or shows progress is a beat of the
//! run in whose future it is started. What a silent one means is not known here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

tokio::task_local! {
    /// That of the future which is polled now.
    static CURRENT: Pulse;
}

/// When there was last a beat. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Pulse(Arc<Mutex<Instant>>);

impl Pulse {
    /// It begins with a beat.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Runs a future whose programs beat this pulse.
    pub(crate) async fn of<T>(&self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), work).await
    }

    /// How long there was no beat.
    pub(crate) fn silence(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn beat_at(&self, at: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = at.max(*last);
    }
}

/// A beat of the current run, if one is watched.
pub(in crate::process) fn beat() {
    beat_at(Instant::now());
}

/// The same, at this time.
pub(super) fn beat_at(at: Instant) {
    // Without a pulse there is nothing to watch.
    let _unwatched = CURRENT.try_with(|pulse| pulse.beat_at(at));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_later_beat_of_its_own_run_counts() {
        let (ours, other) = (Pulse::new(), Pulse::new());
        let first = *ours.0.lock().unwrap();
        let later = first + Duration::from_secs(5);
        ours.of(async { beat_at(later) }).await;
        ours.of(async { beat_at(first) }).await;
        other.of(async { beat_at(first) }).await;
        beat_at(later + Duration::from_secs(5));
        assert_eq!(*ours.0.lock().unwrap(), later);
        assert!(*other.0.lock().unwrap() < later);
    }
}
