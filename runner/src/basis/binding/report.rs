//! The binding instead of `run.json`, which anybody may have changed who may write to the storage.

use crate::basis::binding::{Binding, shown};
use crate::basis::place::PlanPlace;
use crate::report::PlanRecord;

impl Binding {
    /// The record of a plan whose `run.json` is not trusted: nothing of that is in it.
    pub(crate) fn signed_record(&self) -> PlanRecord {
        PlanRecord { directory: self.source.clone(), ..self.record(None) }
    }

    /// In what `run.json` differs: it is not that of a finished plan, or of another plan or place.
    pub(crate) fn difference_of_report(&self, report: &PlanRecord) -> Option<String> {
        let place = |place: &Option<PlanPlace>| {
            place.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string)
        };
        let sha256 = report.plan.as_ref().map(|plan| plan.sha256);
        if !report.is_finished() {
            return Some(format!("the plan is stored, and the outcome is {:?}", report.outcome));
        }
        if sha256 != Some(self.plan) {
            return Some(format!("the plan is sha256 {}, not {}", self.plan, shown(sha256)));
        }
        let [theirs, ours] = [&self.place, &report.place].map(place);
        (self.place != report.place).then(|| format!("the place is {theirs}, not {ours}"))
    }
}
