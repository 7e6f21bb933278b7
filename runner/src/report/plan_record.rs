//! The part of a plan's `run.json` that an apply needs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use datastore_api::{Attempt, Name, Sha256};
use serde::{Deserialize, Serialize};

use crate::basis::backend::Backend;
use crate::basis::modules::Modules;
use crate::basis::named_files::NamedFiles;
use crate::basis::outside_files::OutsideFiles;
use crate::basis::place::PlanPlace;
use crate::report::inputs::InputsReport;
use crate::report::plan_times::PlanTimes;
use crate::report::state::StateReport;
use crate::report::{CHECK, CONVERGE, DESTROY, PLAN, PlanReport};
use crate::source::references::installed::Called;
use crate::tool::cli_args::{self, Inputs};

/// The part of a plan's `run.json` that an apply needs. It ignores everything else, so that it can also read later
/// versions of the document.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PlanRecord {
    #[serde(default)]
    pub(crate) action: String,
    #[serde(default)]
    pub(crate) outcome: String,
    pub(crate) plan: Option<PlanReport>,
    #[serde(default)]
    pub(crate) applied: Option<String>,
    #[serde(default)]
    pub(crate) state: Option<StateReport>,
    #[serde(default)]
    pub(crate) revision: Option<String>,
    #[serde(rename = "ref", default)]
    pub(crate) named_revision: Option<String>,
    #[serde(default)]
    pub(crate) tool: Option<ToolRecord>,
    #[serde(default)]
    pub(crate) terragrunt: Option<ToolRecord>,
    #[serde(default)]
    pub(crate) place: Option<PlanPlace>,
    #[serde(default)]
    pub(crate) directory: Option<String>,
    #[serde(default)]
    pub(crate) backend: Option<Backend>,
    #[serde(default)]
    pub(crate) removed_state: Option<PathBuf>,
    #[serde(default)]
    pub(crate) configuration_sha256: Option<Sha256>,
    #[serde(default)]
    pub(crate) source_sha256: Option<Sha256>,
    #[serde(default)]
    pub(crate) code_sha256: Option<Sha256>,
    #[serde(default)]
    pub(crate) named_files: Option<NamedFiles>,
    #[serde(default)]
    pub(crate) outside_files: Option<OutsideFiles>,
    #[serde(default)]
    pub(crate) absolute_paths: Option<AbsolutePaths>,
    #[serde(default)]
    pub(crate) called_modules: Called,
    #[serde(default)]
    pub(crate) modules: Modules,
    #[serde(default)]
    pub(crate) providers: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(crate) mocks: Vec<String>,
    #[serde(default)]
    pub(crate) arguments: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) destroy_mode: bool,
    #[serde(default)]
    pub(crate) inputs: Option<InputsReport>,
    #[serde(default)]
    pub(crate) changed_outputs: BTreeSet<String>,
    #[serde(default)]
    pub(crate) bound: bool,
    #[serde(default)]
    pub(crate) kept_sum: Option<String>,
    #[serde(flatten)]
    pub(crate) times: PlanTimes,
    /// Whether an apply can work in the plan's snapshot, wherever it runs. Its binding shows that.
    #[serde(skip)]
    pub(crate) applies_in_snapshot: bool,
}

/// Which values of a plan contain the directory in which it was made. They are wrong in another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AbsolutePaths {
    /// The directory of the module.
    pub(crate) directory: PathBuf,
    /// The names of the values, which may be secret.
    pub(crate) values: Vec<String>,
}

/// A tool that made a plan.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolRecord {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl PlanRecord {
    /// Whether the plan is of this place, as far as both are known. `source` is the source directory there: outside of git, one
    /// module may be named by several sources and paths.
    pub(crate) fn is_of(&self, here: &PlanPlace, source: Option<&Path>) -> bool {
        let Some(place) = &self.place else { return true };
        let module = |place: &PlanPlace, source: &Path| {
            Some(source.join(place.path_in_source.as_ref().filter(|_| place.path.is_none())?))
        };
        let theirs = self.directory.as_ref().and_then(|dir| module(place, Path::new(dir)));
        let is_same = theirs.is_some() && theirs == source.and_then(|dir| module(here, dir));
        let path_in_source = here.path_in_source.clone();
        place.agrees_with(here)
            || is_same && PlanPlace { path_in_source, ..place.clone() }.agrees_with(here)
    }

    /// The commit of the code.
    pub(crate) fn commit(&self) -> Option<&str> {
        let revision = self.revision.as_deref()?;
        Some(revision.strip_suffix("-dirty").unwrap_or(revision))
    }

    /// Whether `runner destroy` has made the plan.
    pub(crate) fn destroys(&self) -> bool {
        self.action == DESTROY
    }

    /// Whether `runner plan` has made the plan with `-destroy`.
    pub(crate) fn destroys_by_argument(&self) -> bool {
        let recorded = self.arguments.as_deref().unwrap_or_default();
        self.action == PLAN && (self.destroy_mode || cli_args::destroys(&Inputs::new(), recorded))
    }

    /// Whether a check or converge has made the plan, which no person has reviewed.
    pub(crate) fn is_judged(&self) -> bool {
        self.action == CHECK || self.action == CONVERGE
    }

    /// The place of the plan, with the source directory if that was in no repository.
    pub(crate) fn shown_place(&self) -> String {
        let place = self.place.as_ref().map(ToString::to_string).unwrap_or_default();
        match &self.directory {
            Some(directory) => format!("{place}, source {directory}"),
            None => place,
        }
    }

    /// Whether this attempt made the plan and has finished. The record of an apply names the plan of another one.
    pub(crate) fn has_planned(&self, run: &Name, attempt: Attempt) -> bool {
        let is_own = |plan: &PlanReport| {
            plan.run.as_deref() == Some(run.as_ref()) && plan.attempt == Some(attempt)
        };
        self.is_finished() && self.plan.as_ref().is_some_and(is_own)
    }

    /// Whether the run that made the plan has finished.
    pub(crate) fn is_finished(&self) -> bool {
        self.plan.is_some() && !matches!(self.outcome.as_str(), "failed" | "interrupted")
    }
}
