//! The outputs that a plan takes of other layers, and hands on to them.

use std::collections::BTreeSet;

use crate::basis::Basis;
use crate::report::inputs::InputsReport;

impl Basis {
    /// The outputs of other layers with which the plan was made.
    pub(crate) fn inputs(&self) -> Option<&InputsReport> {
        self.record.as_ref()?.inputs.as_ref()
    }

    /// The layer's own outputs that the plan changes.
    pub(crate) fn changed_outputs(&self) -> BTreeSet<String> {
        self.record.as_ref().map(|record| record.changed_outputs.clone()).unwrap_or_default()
    }
}
