//! The signals that stop the runner, and the time limit for the remaining work after one.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

use datastore_api::HumanDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::process::guard::Guard;

/// How long work that cannot be interrupted is waited for after a signal.
pub(crate) const SHORTLY: Duration = Duration::from_secs(3);

/// A signal that stops the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// SIGINT: a person pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: from a supervisor, such as Kubernetes.
    Terminate,
    /// SIGHUP: its terminal was closed.
    Hangup,
    /// No signal: the run has reached its limit of time (`--timeout`). What a signal does, it does as well.
    Timeout(Duration),
    /// No signal: another run has the lease of the layer by now. What a signal does, this does as well.
    LeaseLost,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupt => f.write_str("SIGINT"),
            Self::Terminate => f.write_str("SIGTERM"),
            Self::Hangup => f.write_str("SIGHUP"),
            Self::Timeout(limit) => {
                write!(f, "the time limit of the run, {} (--timeout)", HumanDuration(*limit))
            }
            Self::LeaseLost => f.write_str("the loss of the lease"),
        }
    }
}

/// The state of the signals. Only the first signal counts.
#[derive(Clone, Debug)]
pub(crate) struct Signals {
    stop: watch::Receiver<Option<Stop>>,
    sender: Arc<watch::Sender<Option<Stop>>>,
    /// When it came.
    at: Arc<OnceLock<Instant>>,
    /// When all remaining work must end. Set when a signal first limits a future.
    deadline: Arc<OnceLock<Instant>>,
    /// When the time limit of the run is reached, and the limit.
    limit: Option<(Instant, Duration)>,
    pub(super) guard: Option<Arc<Guard>>,
    /// Whether other runs use the guard, too.
    is_child: bool,
}

impl Signals {
    /// Handles SIGINT, SIGTERM and SIGHUP, which no longer end the runner by themselves. An ignored SIGHUP (nohup) is
    /// still ignored. After `limit` the run is stopped as by a signal.
    pub(crate) fn listen(mut limit: Option<Duration>) -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
        let (sender, stop) = watch::channel(None);
        let guard = Guard::start().inspect_err(|error| {
            tracing::warn!(
                "the guard could not be started ({error}): if the runner is killed, the tool keeps running"
            );
        });
        let (at, deadline, guard) = (Arc::default(), Arc::default(), guard.ok().map(Arc::new));
        let (sender, reached) = (Arc::new(sender), reached(limit));
        let signals = Self { stop, sender, at, deadline, limit: reached, guard, is_child: false };
        let ours = signals.clone();
        tokio::spawn(async move {
            let mut expired = pin!(tokio::time::sleep(limit.unwrap_or_default()));
            loop {
                let hung_up = async {
                    match &mut hangup {
                        Some(hangup) => hangup.recv().await,
                        None => std::future::pending().await,
                    }
                };
                let stop = tokio::select! {
                    biased;
                    _ = terminate.recv() => Stop::Terminate,
                    _ = hung_up => Stop::Hangup,
                    _ = interrupt.recv() => Stop::Interrupt,
                    () = &mut expired, if limit.is_some() => {
                        Stop::Timeout(limit.take().unwrap_or_default())
                    }
                };
                if !ours.raise(stop) && !matches!(stop, Stop::Timeout(_)) {
                    tracing::warn!("still stopping; killing now can lose state");
                }
            }
        });
        Ok(signals)
    }

    /// The signals of one of several runs: what stops the runner stops it as well, but its own limit of time, or the loss of its
    /// lease, stops no other one. The guard stays for the others.
    pub(crate) fn child(&self, limit: Option<Duration>) -> Self {
        let (sender, stop) = watch::channel(None);
        let (at, deadline, guard) = (Arc::default(), Arc::default(), self.guard.clone());
        let (sender, reached) = (Arc::new(sender), reached(limit));
        let child = Self { stop, sender, at, deadline, limit: reached, guard, is_child: true };
        // Without a receiver of the child: the task ends with the last of them.
        let (parent, sender, at) = (self.clone(), Arc::clone(&child.sender), Arc::clone(&child.at));
        tokio::spawn(async move {
            let expired = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
                Stop::Timeout(limit.unwrap_or_default())
            };
            let stop = tokio::select! {
                biased;
                stop = parent.wait() => stop,
                stop = expired => stop,
                () = sender.closed() => return,
            };
            raise(&sender, &at, stop);
        });
        child
    }

    /// Stops the run, as a signal does. `false`: it was stopped before, and only the first reason counts.
    pub(crate) fn raise(&self, stop: Stop) -> bool {
        raise(&self.sender, &self.at, stop)
    }

    /// Signals that a test sends.
    #[cfg(test)]
    pub(crate) fn of_test() -> (watch::Sender<Option<Stop>>, Self) {
        let (sender, stop) = watch::channel(None);
        let ours = Arc::new(sender.clone());
        let (at, deadline) = (Arc::default(), Arc::default());
        (
            sender,
            Self { stop, sender: ours, at, deadline, limit: None, guard: None, is_child: false },
        )
    }

    /// Ends the guard. Call it when no further program will run.
    pub(crate) fn dismiss_guard(&self) {
        if let Some(guard) = self.guard.as_ref().filter(|_| !self.is_child) {
            guard.dismiss();
        }
    }

    /// The signal that came, if one did. A time limit that is reached counts even if the task that waits for it has not
    /// run yet.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        if let Some((_, limit)) = self.limit.filter(|(reached, _)| *reached <= Instant::now()) {
            self.raise(Stop::Timeout(limit));
        }
        *self.stop.borrow()
    }

    /// The time since the signal came, if one did.
    pub(crate) fn since_stop(&self) -> Option<Duration> {
        self.at.get().map(Instant::elapsed)
    }

    /// The same signals; if one came, one that never does: for a program that is started because of it.
    pub(crate) fn unheard_if_stopped(&self) -> Self {
        let stop = match self.stopped() {
            None => self.stop.clone(),
            Some(_) => watch::channel(None).1,
        };
        Self { stop, ..self.clone() }
    }

    /// Waits for a signal.
    pub(crate) async fn wait(&self) -> Stop {
        let mut stop = self.stop.clone();
        let stop = stop.wait_for(Option::is_some).await.map(|stop| *stop);
        match stop {
            Ok(Some(stop)) => stop,
            // The sender lives as long as the runtime.
            _ => std::future::pending().await,
        }
    }

    /// The output of the future, or the signal, if the future does not end in time after it. All work after a signal
    /// shares one `limit`, which begins at the first call that the signal limits. Each call gets at most three quarters
    /// of the remaining time, so that the next one can store its failure.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        let late = async {
            let stop = self.wait().await;
            let now = Instant::now();
            let left = self.deadline.get_or_init(|| now + limit).saturating_duration_since(now);
            tokio::time::sleep(left * 3 / 4).await;
            stop
        };
        tokio::select! {
            biased;
            output = future => Ok(output),
            stop = late => Err(stop),
        }
    }

    /// The output of the future, or the signal, if the future takes more than a few seconds after it.
    pub(crate) async fn shortly<T>(&self, future: impl Future<Output = T>) -> Result<T, Stop> {
        let late = async {
            let stop = self.wait().await;
            tokio::time::sleep(SHORTLY).await;
            stop
        };
        tokio::select! {
            biased;
            output = future => Ok(output),
            stop = late => Err(stop),
        }
    }

    /// The output of the future, or the signal, if it comes first.
    pub(crate) async fn or<T>(&self, future: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            stop = self.wait() => Err(stop),
            output = future => Ok(output),
        }
    }
}

/// When a limit that begins now is reached. A limit that is longer than a clock can tell is never reached.
fn reached(limit: Option<Duration>) -> Option<(Instant, Duration)> {
    limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit)))
}

/// Sends the reason to stop, if it is the first one, and records when it came.
fn raise(sender: &watch::Sender<Option<Stop>>, at: &OnceLock<Instant>, stop: Stop) -> bool {
    at.get_or_init(Instant::now);
    sender.send_if_modified(|known| {
        let first = known.is_none();
        known.get_or_insert(stop);
        first
    })
}

/// Whether SIGHUP is ignored, as nohup leaves it (proc(5), `SigIgn`; the lowest bit is signal 1).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_is_stopped_with_its_parent_and_leaves_no_task_behind() {
        let (sender, parent) = Signals::of_test();
        let before = sender.receiver_count();
        for _ in 0..10 {
            drop(parent.child(None));
        }
        let child = parent.child(Some(Duration::from_hours(1)));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        // That of the child's task, and of what it waits with.
        assert_eq!(sender.receiver_count(), before + 2);
        parent.raise(Stop::Terminate);
        assert_eq!(child.wait().await, Stop::Terminate);
        assert!(child.since_stop().is_some());
        let limited = Signals::of_test().1.child(Some(Duration::from_millis(1)));
        assert_eq!(limited.wait().await, Stop::Timeout(Duration::from_millis(1)));
    }

    #[tokio::test]
    async fn a_limit_that_is_reached_counts_before_its_task_has_run() {
        // The task runs at the next await at the earliest.
        let signals = Signals::of_test().1.child(Some(Duration::ZERO));
        assert_eq!(signals.stopped(), Some(Stop::Timeout(Duration::ZERO)));
        assert_eq!(Signals::of_test().1.child(Some(Duration::MAX)).stopped(), None);
    }
}
