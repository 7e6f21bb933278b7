//! What a run does: plan, apply, destroy, check, converge, or migrate to another tool.

use std::path::{Path, PathBuf};

use datastore_api::Sha256;

use crate::cli::PlanName;
use crate::report::{CHECK, CONVERGE, DESTROY, Outcome, PLAN};
use crate::version::ToolRequest;

/// Plan, apply, destroy, check, converge, or migrate to another tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Plan {
        /// Whether pending changes have the exit code 2.
        detailed_exitcode: bool,
    },
    Apply(Apply),
    Destroy(Destroy),
    /// Plan, compare with the policy, and record the status of the layer.
    Check {
        /// Whether pending changes have the exit code 2.
        detailed_exitcode: bool,
    },
    Converge(Converge),
    Migrate(Migrate),
}

/// The two parts of a converge. One command runs both, as two attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Converge {
    /// Make a plan, and decide whether it is applied.
    Plan(Approval),
    /// Apply that plan.
    Apply {
        from: Apply,
        /// The digest of the plan, which the same command has made.
        made: Sha256,
        /// The approval that is used up.
        approval: Option<ApprovedSet>,
        /// Whether options have limited the plan to a part of the layer.
        of_part: bool,
    },
}

/// How changes are approved that the policy refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    /// Not at all.
    None,
    /// By the digest that a check or plan has printed.
    Digest(Sha256),
    /// Whatever they are (`--auto-approve`).
    Any,
}

impl Approval {
    /// The digest that approves.
    pub(crate) fn digest(&self) -> Option<Sha256> {
        match self {
            Self::Digest(digest) => Some(*digest),
            Self::None | Self::Any => None,
        }
    }
}

/// A set of destructive changes that was approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApprovedSet {
    /// The digest of the set.
    pub(crate) set: Sha256,
    /// The digest that approves it once.
    pub(crate) approval: Sha256,
}

/// Which plan is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Apply {
    /// The stored one of this run.
    Run(PlanName),
    /// The stored one of the newest run that has one.
    Newest,
    /// The one in this file.
    File(PathBuf),
    /// None: the tool plans and applies in one step. Burrito's controllers name a plan all the same; its digest becomes
    /// the annotation `apply-sum`.
    Unplanned(Option<PlanName>),
}

/// The two parts of a destroy. With `--auto-approve` one command runs both, as two attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destroy {
    /// Make a plan that destroys everything, and store it.
    Plan {
        /// Whether it is applied at once.
        approved: bool,
    },
    /// Apply the approved plan.
    Apply {
        /// Where it is; the newest is the newest one with this digest.
        from: Apply,
        /// The digest that was approved.
        approved: Sha256,
    },
}

/// How the tool of a layer is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Migrate {
    /// The new tool; `None` undoes the last migration.
    pub(crate) to: Option<ToolRequest>,
    /// Whether nothing is changed.
    pub(crate) dry_run: bool,
    /// The user's table of versions.
    pub(crate) version_paths: Option<PathBuf>,
    /// Platforms for the lock file.
    pub(crate) lock_platforms: Vec<String>,
}

/// The exit code of a plan that waits for its approval, or that the policy refuses.
pub(crate) const NOT_APPROVED: u8 = 3;

impl Action {
    /// The exit code of an action that succeeded.
    pub(crate) fn success_code(&self, outcome: Outcome) -> u8 {
        match (self, outcome) {
            (Self::Plan { detailed_exitcode: true }, Outcome::Changes) => 2,
            (Self::Destroy(Destroy::Plan { approved: false }), Outcome::Changes) => NOT_APPROVED,
            _ => 0,
        }
    }

    /// `plan`, `apply`, `destroy`, `check`, `converge` or `migrate`, as in run names, results and messages.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Plan { .. } => PLAN,
            Self::Apply(_) => "apply",
            Self::Destroy(_) => DESTROY,
            Self::Check { .. } => CHECK,
            Self::Converge(_) => CONVERGE,
            Self::Migrate(_) => "migrate",
        }
    }

    /// What is applied, unless a plan is made and stored.
    pub(crate) fn apply(&self) -> Option<&Apply> {
        match self {
            Self::Apply(from)
            | Self::Destroy(Destroy::Apply { from, .. })
            | Self::Converge(Converge::Apply { from, .. }) => Some(from),
            Self::Plan { .. }
            | Self::Destroy(Destroy::Plan { .. })
            | Self::Check { .. }
            | Self::Converge(Converge::Plan(_))
            | Self::Migrate(_) => None,
        }
    }

    /// Whether a new plan is made, of whatever state there is.
    pub(crate) fn makes_plan(&self) -> bool {
        matches!(
            self,
            Self::Plan { .. }
                | Self::Apply(Apply::Unplanned(_))
                | Self::Destroy(Destroy::Plan { .. })
                | Self::Check { .. }
                | Self::Converge(Converge::Plan(_))
        )
    }

    /// Whether outputs of other layers are taken for it. An apply of a stored plan takes those of the plan.
    pub(crate) fn takes_inputs(&self) -> bool {
        self.makes_plan() || self.migrates()
    }

    /// Whether something is applied.
    pub(crate) fn is_apply(&self) -> bool {
        self.apply().is_some()
    }

    /// The file with the plan that is applied.
    pub(crate) fn plan_in_file(&self) -> Option<&Path> {
        match self.apply() {
            Some(Apply::File(path)) => Some(path),
            _ => None,
        }
    }

    /// Whether everything is to be destroyed.
    pub(crate) fn destroys(&self) -> bool {
        matches!(self, Self::Destroy(_))
    }

    /// Whether the tool is replaced.
    pub(crate) fn migrates(&self) -> bool {
        matches!(self, Self::Migrate(_))
    }

    /// Whether the plan may be applied by the same command.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(
            self,
            Self::Destroy(Destroy::Plan { approved: true }) | Self::Converge(Converge::Plan(_))
        )
    }

    /// Whether the plan is compared with a policy, and the status of the layer recorded.
    pub(crate) fn is_judged(&self) -> bool {
        matches!(self, Self::Check { .. } | Self::Converge(_))
    }

    /// Whether it only looks, and must not be in the way of anything else.
    pub(crate) fn is_check(&self) -> bool {
        matches!(self, Self::Check { .. })
    }

    /// How changes are approved that the policy refuses.
    pub(crate) fn approval(&self) -> &Approval {
        match self {
            Self::Converge(Converge::Plan(approval)) => approval,
            _ => &Approval::None,
        }
    }

    /// The approval that an apply uses up.
    pub(crate) fn approved_set(&self) -> Option<ApprovedSet> {
        match self {
            Self::Converge(Converge::Apply { approval, .. }) => *approval,
            _ => None,
        }
    }

    /// The digest of the plan that the same command has made.
    pub(crate) fn made(&self) -> Option<Sha256> {
        match self {
            Self::Converge(Converge::Apply { made, .. }) => Some(*made),
            _ => None,
        }
    }

    /// Whether it applies a plan that options of the same command have limited to a part of the layer.
    pub(crate) fn applies_a_part(&self) -> bool {
        matches!(self, Self::Converge(Converge::Apply { of_part: true, .. }))
    }

    /// The digest that was approved.
    pub(crate) fn approved(&self) -> Option<Sha256> {
        match self {
            Self::Destroy(Destroy::Apply { approved, .. }) => Some(*approved),
            _ => None,
        }
    }
}
