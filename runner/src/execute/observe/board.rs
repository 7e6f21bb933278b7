//! The statuses of the layers of this process, and whether it makes progress.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use datastore_api::status::LayerStatus;
use datastore_api::status::metrics::{MetricPrefix, page};
use datastore_api::{HumanDuration, Name};
use jiff::Timestamp;

use crate::process::limits::pulse::Pulse;
use crate::run::check::status::blocked;

/// A layer: its namespace and its name.
pub(crate) type Layer = (Name, Name);

/// What the process knows of its layers. Its threads share it.
#[derive(Debug)]
pub(crate) struct Board {
    prefix: MetricPrefix,
    /// Without progress for this time, the process is unhealthy.
    limit: Duration,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    layers: BTreeMap<Layer, LayerStatus>,
    /// Those of an earlier process.
    earlier: BTreeMap<Layer, LayerStatus>,
    /// Statuses that could not be made or stored.
    errors: u64,
    /// The runs, by a number of their own, with what they are called.
    runs: BTreeMap<u64, (String, Pulse)>,
    next: u64,
    phase: Phase,
    /// When a round, or a run of it, last began or ended.
    changed: Instant,
    /// Whether a round has ended.
    is_complete: bool,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Round,
    /// Nothing is to be done until then.
    Waiting(Instant),
    Stopping,
}

impl Board {
    pub(crate) fn new(prefix: MetricPrefix, limit: Duration) -> Self {
        let now = Now {
            layers: BTreeMap::new(),
            earlier: BTreeMap::new(),
            errors: 0,
            runs: BTreeMap::new(),
            next: 0,
            phase: Phase::Round,
            changed: Instant::now(),
            is_complete: false,
        };
        Self { prefix, limit, now: Mutex::new(now) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the statuses that an earlier process has made, for those that follow from them.
    pub(crate) fn remember(&self, statuses: BTreeMap<Layer, LayerStatus>) {
        self.now().earlier = statuses;
    }

    /// The last status of a layer.
    pub(crate) fn known(&self, namespace: &Name, layer: &Name) -> Option<LayerStatus> {
        let (now, layer) = (self.now(), (namespace.clone(), layer.clone()));
        now.layers.get(&layer).or_else(|| now.earlier.get(&layer)).cloned()
    }

    /// All statuses.
    pub(crate) fn statuses(&self) -> BTreeMap<Layer, LayerStatus> {
        self.now().layers.clone()
    }

    /// Records the status of a layer, without what no metric shows.
    pub(crate) fn record(&self, layer: Layer, status: LayerStatus) {
        let status = LayerStatus { changes: Vec::new(), message: None, ..status };
        self.now().layers.insert(layer, status);
    }

    /// Records that a layer was not started, because one before it has failed.
    pub(crate) fn block(&self, layer: Layer, action: &str, by: &str) {
        let known = self.known(&layer.0, &layer.1);
        self.record(layer, blocked(action, by, known));
    }

    /// Counts a status that could not be made or stored.
    pub(crate) fn count_error(&self) {
        self.now().errors += 1;
    }

    /// Removes all other layers.
    pub(crate) fn keep_only(&self, is_kept: impl Fn(&Layer) -> bool) {
        self.now().layers.retain(|layer, _| is_kept(layer));
    }

    /// Runs a future, and watches its progress. `name`: what it is called.
    pub(crate) async fn watch<T>(&self, name: &str, work: impl Future<Output = T>) -> T {
        let pulse = Pulse::new();
        let watched = Watched::begin(self, name, pulse.clone());
        let output = pulse.of(work).await;
        drop(watched);
        output
    }

    /// A round begins.
    pub(crate) fn begin_round(&self) {
        let mut now = self.now();
        (now.phase, now.changed) = (Phase::Round, Instant::now());
    }

    /// A round has ended, and the next one begins at this time.
    pub(crate) fn wait_until(&self, time: Instant) {
        let mut now = self.now();
        (now.phase, now.is_complete) = (Phase::Waiting(time), true);
    }

    /// No round begins any more.
    pub(crate) fn stop(&self) {
        self.now().phase = Phase::Stopping;
    }

    /// The page of metrics.
    pub(crate) fn page(&self) -> String {
        let (layers, errors) = (self.statuses(), self.now().errors);
        let statuses = layers.iter().map(|((namespace, layer), status)| (namespace, layer, status));
        page(self.prefix.as_ref(), statuses, errors, Timestamp::now())
    }

    /// Whether there is progress; if not, why.
    pub(crate) fn health(&self) -> Result<(), String> {
        let now = self.now();
        if let Phase::Waiting(time) = now.phase {
            let late = Instant::now().saturating_duration_since(time);
            return self.check("the next round is late by", late);
        }
        let silences = now.runs.values().map(|(name, pulse)| (name, pulse.silence()));
        match silences.max_by_key(|(_, silence)| *silence) {
            Some((name, silence)) => {
                self.check(&format!("{name} has made no progress for"), silence)
            }
            None => self.check("the round has made no progress for", now.changed.elapsed()),
        }
    }

    fn check(&self, what: &str, silence: Duration) -> Result<(), String> {
        if silence <= self.limit {
            return Ok(());
        }
        let silence = HumanDuration(Duration::from_secs(silence.as_secs()));
        Err(format!("{what} {silence}; the limit is {}", HumanDuration(self.limit)))
    }

    /// Whether the metrics have all layers, and rounds go on; if not, why.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        self.health()?;
        let now = self.now();
        match now.phase {
            Phase::Stopping => Err("a signal has stopped it".to_owned()),
            _ if !now.is_complete => Err("the first round has not ended".to_owned()),
            _ => Ok(()),
        }
    }
}

/// A run that is watched, until it is dropped.
struct Watched<'a> {
    board: &'a Board,
    number: u64,
}

impl<'a> Watched<'a> {
    fn begin(board: &'a Board, name: &str, pulse: Pulse) -> Self {
        let mut now = board.now();
        let number = now.next;
        now.next += 1;
        now.changed = Instant::now();
        now.runs.insert(number, (name.to_owned(), pulse));
        Self { board, number }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut now = self.board.now();
        now.runs.remove(&self.number);
        now.changed = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use datastore_api::status::RunResult;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(1);

    fn board(limit: Duration) -> Board {
        Board::new(MetricPrefix::default(), limit)
    }

    fn layer(name: &str) -> Layer {
        ("default".parse().unwrap(), name.parse().unwrap())
    }

    /// Waits until the limit has passed since the last change.
    fn pass() {
        std::thread::sleep(LIMIT * 5);
    }

    #[tokio::test]
    async fn what_makes_no_progress_is_named() {
        let silent = board(LIMIT);
        pass();
        assert!(silent.health().unwrap_err().starts_with("the round has made no progress"));
        let health = silent.watch("default/vpc", async {
            assert_eq!(silent.health(), Ok(()));
            pass();
            silent.health()
        });
        let reason = health.await.unwrap_err();
        assert!(reason.starts_with("default/vpc has made no progress for"), "{reason}");
        assert_eq!(silent.health(), Ok(()), "a run has ended just now");
    }

    #[tokio::test]
    async fn it_is_healthy_while_it_waits_and_not_when_the_next_round_is_late() {
        let board = board(LIMIT);
        board.wait_until(Instant::now() + Duration::from_hours(1));
        pass();
        assert_eq!(board.health(), Ok(()));
        board.wait_until(Instant::now());
        pass();
        assert!(board.health().unwrap_err().starts_with("the next round is late by"));
    }

    #[test]
    fn it_is_ready_from_the_end_of_the_first_round_until_a_signal() {
        let board = board(Duration::from_hours(1));
        board.begin_round();
        assert!(board.readiness().unwrap_err().contains("first round"));
        board.wait_until(Instant::now());
        assert_eq!(board.readiness(), Ok(()));
        board.begin_round();
        assert_eq!(board.readiness(), Ok(()));
        board.stop();
        assert!(board.readiness().unwrap_err().contains("signal"));
        assert_eq!(board.health(), Ok(()));
    }

    #[test]
    fn a_removed_layer_has_no_metrics_and_a_blocked_one_keeps_its_status() {
        let board = board(LIMIT);
        for name in ["a", "b"] {
            board.block(layer(name), "converge", "default/network");
        }
        board.count_error();
        board.keep_only(|known| *known == layer("b"));
        let page = board.page();
        assert!(!page.contains("layer=\"a\""), "{page}");
        let status =
            "plancha_layer_last_result{layer=\"b\",namespace=\"default\",result=\"blocked\"} 1";
        assert!(page.contains(status), "{page}");
        assert!(page.contains("plancha_exporter_errors 1"), "{page}");
        assert_eq!(board.known(&layer("b").0, &layer("b").1).unwrap().result, RunResult::Blocked);
    }
}
