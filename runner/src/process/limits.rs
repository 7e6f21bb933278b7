//! What limits a running program: how long it may run, and how long it may show no progress.
//!
//! Progress is a line of output that does not only say that something is still waited for, or CPU time of the program's
//! processes: 1 % or more of a CPU over the last minute.

mod progress;
pub(crate) mod pulse;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use datastore_api::HumanDuration;

use crate::process::limits::progress::Progress;
use crate::process::log::Log;
use crate::process::resources::Meter;

/// Over how much time the CPU use is measured, unless the limit is shorter.
const CPU_WINDOW: Duration = Duration::from_mins(1);
/// The part of a CPU that counts as progress: 1 / 100.
const CPU_PART: u32 = 100;
/// The longest interval between two looks at a program.
const INTERVAL: Duration = Duration::from_secs(1);

/// What limits a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'a> {
    /// What runs, as messages name it.
    pub(crate) name: &'a str,
    /// How long it may run.
    pub(crate) step: Option<Duration>,
    /// How long it may show no progress.
    pub(crate) idle: Option<Duration>,
    /// Whether a program without progress is only warned of, and not stopped.
    pub(crate) only_warns: bool,
    /// What is waited for, if a line of output says only that.
    pub(crate) waiting: fn(&str) -> Option<&str>,
}

impl Limits<'_> {
    /// None.
    pub(crate) const NONE: Limits<'static> =
        Limits { name: "", step: None, idle: None, only_warns: false, waiting: |_| None };
}

/// A limit that a program has reached.
#[derive(Clone, Debug)]
pub(crate) struct Reached {
    /// Which one.
    pub(crate) limit: Limit,
    /// The last line of its output.
    pub(crate) last_line: Option<String>,
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// It ran for this time.
    Step(Duration),
    /// It showed no progress for this time.
    Idle(Duration),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(limit) => {
                write!(f, "took longer than {} (--step-timeout)", HumanDuration(*limit))
            }
            Self::Idle(limit) => {
                write!(f, "made no progress for {} (--idle-timeout)", HumanDuration(*limit))
            }
        }
    }
}

/// A running program and its limits.
pub(super) struct Watch<'a> {
    limits: &'a Limits<'a>,
    started: Instant,
    progress: Progress,
    /// The CPU time at the last looks, within the window.
    cpu: VecDeque<(Instant, Duration)>,
    /// When the CPU time was last seen to grow.
    grew: Instant,
    /// When there was progress.
    progressed: Instant,
    /// How many warnings there were since.
    warnings: u32,
}

impl<'a> Watch<'a> {
    /// A program that starts now. `log` gets its output, and `captured` what it prints to standard output, if that goes to
    /// a file of its own.
    pub(super) fn new(
        limits: &'a Limits<'a>,
        log: &Log,
        captured: Option<&Path>,
    ) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            limits,
            started: now,
            progress: Progress::follow(log, captured, limits.waiting)?,
            cpu: VecDeque::new(),
            grew: now,
            progressed: now,
            warnings: 0,
        })
    }

    /// Waits until the program has reached a limit that stops it.
    pub(super) async fn reached(&mut self, meter: &Meter) -> Reached {
        loop {
            let Some(pause) = self.pause() else { return std::future::pending().await };
            tokio::time::sleep(pause).await;
            if let Some(limit) = self.limits.step.filter(|limit| self.started.elapsed() >= *limit) {
                return self.reached_limit(Limit::Step(limit));
            }
            let Some(limit) = self.limits.idle else { continue };
            let idle = self.idle(meter);
            if idle >= limit && !self.limits.only_warns {
                return self.reached_limit(Limit::Idle(limit));
            }
            if idle < limit {
                self.warnings = 0;
            } else if idle >= limit * (self.warnings + 1) {
                self.warnings += 1;
                tracing::warn!(
                    "{} has made no progress for {}: {}. It goes on; --idle-timeout DURATION would stop it",
                    self.limits.name,
                    HumanDuration(Duration::from_secs(idle.as_secs())),
                    self.progress.awaited()
                );
            }
        }
    }

    /// The time until the next look; `None` without limits.
    fn pause(&self) -> Option<Duration> {
        let step = self.limits.step.map(|limit| limit.saturating_sub(self.started.elapsed()));
        let idle = self.limits.idle.map(|limit| INTERVAL.min(limit / 10));
        [step, idle].into_iter().flatten().min()
    }

    fn reached_limit(&mut self, limit: Limit) -> Reached {
        self.progress.has_news();
        Reached { limit, last_line: self.progress.last_line() }
    }

    /// How long there was no progress.
    fn idle(&mut self, meter: &Meter) -> Duration {
        let now = Instant::now();
        if self.progress.has_news() {
            self.progressed = now;
        }
        match meter.cpu_time() {
            Some(time) => self.add_cpu(now, time),
            // It cannot be known whether it works.
            None => self.progressed = now,
        }
        pulse::beat_at(self.progressed);
        now - self.progressed
    }

    /// Adds the CPU time that the program has used until now. What counts is the use over the window; progress lasts until
    /// the time was last seen to grow, not until the window has passed.
    fn add_cpu(&mut self, now: Instant, time: Duration) {
        let window = CPU_WINDOW.min(self.limits.idle.unwrap_or(CPU_WINDOW));
        if self.cpu.back().is_some_and(|(_, last)| time > *last) {
            self.grew = now;
        }
        self.cpu.push_back((now, time));
        while self.cpu.get(1).is_some_and(|(at, _)| now - *at >= window) {
            self.cpu.pop_front();
        }
        let before = self.cpu.front().map_or(time, |(_, before)| *before);
        if time.saturating_sub(before) >= window / CPU_PART {
            self.progressed = self.progressed.max(self.grew);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a program is idle at the end that uses this much of a CPU, in percent, in each of these seconds.
    fn idle_after(idle: u64, percents: &[u64]) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let log =
            Log::create(dir.path().join("log"), &crate::process::redact::Redaction::default())
                .unwrap();
        let limits = Limits { idle: Some(Duration::from_secs(idle)), ..Limits::NONE };
        let mut watch = Watch::new(&limits, &log, None).unwrap();
        let (start, mut time) = (watch.started, Duration::ZERO);
        for (second, percent) in (1..).zip(percents) {
            time += Duration::from_millis(percent * 10);
            watch.add_cpu(start + Duration::from_secs(second), time);
        }
        percents.len() as u64 - (watch.progressed - start).as_secs()
    }

    #[test]
    fn cpu_use_of_one_percent_over_a_minute_is_progress() {
        let quiet = [0; 100];
        assert_eq!(idle_after(900, &quiet), 100);
        assert_eq!(idle_after(900, &[1; 100]), 0);
        // A process that only waits uses some CPU time, too.
        let mut waiting = [0; 300];
        waiting.iter_mut().step_by(4).for_each(|percent| *percent = 1);
        assert_eq!(idle_after(900, &waiting), 300);
        // A burst is progress while it lasts.
        let burst = [&[0; 10][..], &[100; 5], &[0; 200]].concat();
        assert_eq!(idle_after(900, &burst), 200);
        // With a short limit the window is as short.
        assert_eq!(idle_after(3, &[&[100; 5][..], &[0; 10]].concat()), 10);
    }
}
