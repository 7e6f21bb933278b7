//! The tries of a step are one entry of the report.

use crate::report::{Report, Step};

impl Report {
    /// How many entries the steps have.
    pub(crate) fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// Makes one entry of those from `first` on, which are the tries of one step.
    pub(crate) fn join_tries(&mut self, first: usize, tries: u32) {
        let mut steps = self.steps.drain(first.min(self.steps.len())..).collect::<Vec<_>>();
        let Some(last) = steps.pop() else { return };
        let joined = steps.into_iter().fold(last, |last, earlier| Step {
            seconds: ((last.seconds + earlier.seconds) * 1000.0).round() / 1000.0,
            rss_peak: last.rss_peak.max(earlier.rss_peak),
            ..last
        });
        self.steps.push(Step { attempts: tries, ..joined });
    }
}
