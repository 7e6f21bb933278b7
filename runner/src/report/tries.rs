//! The steps of a run in its report. The tries of a step are one entry.

use std::time::Duration;

use crate::process::Used;
use crate::report::{Report, Step};

impl Report {
    /// Adds a program that was run.
    pub(crate) fn add_step(&mut self, name: &str, took: Duration, exit: i32, used: &Used) {
        self.steps.push(Step {
            name: name.to_owned(),
            seconds: milliseconds(took.as_secs_f64()),
            exit,
            attempts: 1,
            rss_peak: used.rss_peak,
            cpu_seconds: used.cpu.map(|cpu| milliseconds(cpu.as_secs_f64())),
        });
    }

    /// The name of each step, and the seconds that it has taken.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (&str, f64)> {
        self.steps.iter().map(|step| (&*step.name, step.seconds))
    }

    /// The exit code of the last program of this step.
    pub(crate) fn last_exit(&self, name: &str) -> Option<i32> {
        self.steps.iter().rfind(|step| step.name == name).map(|step| step.exit)
    }

    /// The largest memory that the last program of this step had, in bytes, as far as it was measured.
    pub(crate) fn last_memory(&self, name: &str) -> Option<u64> {
        self.steps.iter().rfind(|step| step.name == name)?.rss_peak
    }

    /// How many entries the steps have.
    pub(crate) fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// Makes one entry of those from `first` on, if there are several.
    pub(crate) fn join_tries_since(&mut self, first: usize) {
        let count = self.steps.len().saturating_sub(first);
        if count > 1 {
            self.join_tries(first, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Makes one entry of those from `first` on, which are the tries of one step.
    pub(crate) fn join_tries(&mut self, first: usize, tries: u32) {
        let mut steps = self.steps.drain(first.min(self.steps.len())..).collect::<Vec<_>>();
        let Some(last) = steps.pop() else { return };
        let joined = steps.into_iter().fold(last, |last, earlier| Step {
            seconds: milliseconds(last.seconds + earlier.seconds),
            cpu_seconds: match (last.cpu_seconds, earlier.cpu_seconds) {
                (Some(last), Some(earlier)) => Some(milliseconds(last + earlier)),
                (last, earlier) => last.or(earlier),
            },
            rss_peak: last.rss_peak.max(earlier.rss_peak),
            ..last
        });
        self.steps.push(Step { attempts: tries, ..joined });
    }
}

/// Seconds, rounded to milliseconds.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
