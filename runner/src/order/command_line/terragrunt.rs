//! Arguments for terragrunt after `--` with which the runner cannot work.

use crate::order::job::JobError;
use crate::tool::cli_args::{OfTerragrunt, of_terragrunt};

/// Refuses them.
pub(super) fn check(args: &[String]) -> Result<(), JobError> {
    let Some((arg, what)) = of_terragrunt(args) else { return Ok(()) };
    Err(JobError::Usage(match what {
        OfTerragrunt::HidesWarnings(name) => format!(
            "`{arg}` after -- can hide terragrunt's warning about mock outputs: leave it out, and set TG_{name} (before terragrunt \
             0.73.0 TERRAGRUNT_{name}), with which the runner still gets that warning"
        ),
        OfTerragrunt::SeveralUnits => format!(
            "`{arg}` after -- makes terragrunt run several units, and each would write its plan to the same file: leave it out, \
             and use one run for each unit, with a name of its own (--name)"
        ),
        OfTerragrunt::OtherTool => format!(
            "`{arg}` after -- has terragrunt run another tool than the one that the runner has verified: leave it out, and choose \
             the tool with --tool and --tool-version"
        ),
    }))
}
