//! What people read of a plan: it is bound to the plan, so that what was reviewed is what is applied.

use std::collections::BTreeMap;

use datastore_api::{PlanFormat, Sha256};
use serde::{Deserialize, Serialize};

use crate::report::Counts;

/// The formats of a plan that people read, or that other programs show to them.
pub(crate) const RENDERINGS: [PlanFormat; 3] =
    [PlanFormat::Pretty, PlanFormat::Json, PlanFormat::Short];

/// The renderings of a plan, as the run that planned has stored them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Renderings {
    /// The digests of the files, by their names.
    pub(crate) files: BTreeMap<String, Sha256>,
    pub(crate) counts: Counts,
}

/// The name of a rendering's file.
pub(crate) fn file_name(rendering: PlanFormat) -> &'static str {
    match rendering {
        PlanFormat::Bin => "plan.bin",
        PlanFormat::Json => "plan.json",
        PlanFormat::Pretty => "pretty.plan",
        PlanFormat::Short => "short.diff",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_datastore() {
        for rendering in RENDERINGS {
            assert_eq!(file_name(rendering), datastore_api::File::Plan(rendering).name());
        }
    }
}
