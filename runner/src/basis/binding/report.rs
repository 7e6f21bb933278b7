//! The binding instead of `run.json`, and what people read of the plan: anybody may have changed both who may write to the
//! storage.

use datastore_api::{PlanFormat, Sha256};

use crate::basis::binding::{Binding, BindingError, file_name, same, shown};
use crate::basis::place::PlanPlace;
use crate::report::{Counts, PlanRecord};

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
        if self.destroy != report.destroys() {
            let what = if self.destroy { "destroys everything" } else { "does not destroy" };
            return Some(format!("the plan {what}, and the action is {:?}", report.action));
        }
        let [theirs, ours] = [&self.place, &report.place].map(place);
        (self.place != report.place).then(|| format!("the place is {theirs}, not {ours}"))
    }
    /// The counts of the plan, if they are recorded.
    pub(super) fn counts(&self) -> Option<Counts> {
        self.renderings.as_ref().map(|renderings| renderings.counts)
    }

    /// Refuses other bytes of a rendering, if they are recorded. `None`: it is missing, as after `datastore gc`: what
    /// cannot be read misleads no one.
    pub(crate) fn check_rendering(
        &self,
        plan: &str,
        rendering: PlanFormat,
        sha256: Option<Sha256>,
    ) -> Result<(), BindingError> {
        let (Some(renderings), Some(sha256)) = (&self.renderings, sha256) else { return Ok(()) };
        let name = file_name(rendering);
        let theirs = renderings.files.get(name).copied();
        same(plan, name, &shown(theirs), &shown(Some(sha256)))
    }

    /// Refuses other counts than the recorded ones, as `run.json` may have them.
    pub(crate) fn check_counts(
        &self,
        plan: &str,
        ours: Option<Counts>,
    ) -> Result<(), BindingError> {
        let (Some(theirs), Some(ours)) = (self.counts(), ours) else { return Ok(()) };
        let what = "number of changes (run.json)";
        same(plan, what, &theirs.to_string(), &ours.to_string())
    }

    /// Whether the binding records what people read of the plan.
    pub(crate) fn has_renderings(&self) -> bool {
        self.renderings.is_some()
    }
}
