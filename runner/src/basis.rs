//! Checks that a plan belongs to the code and the state that it is applied to. Place, backend, revision, configuration
//! and tool are recorded with a plan, and compared before the tool applies anything.

pub(crate) mod backend;
pub(crate) mod binding;
mod code;
pub(crate) mod configuration;
mod inputs;
pub(crate) mod local_state;
pub(crate) mod modules;
pub(crate) mod named_files;
pub(crate) mod order;
pub(crate) mod outside_files;
pub(crate) mod place;
pub(crate) mod plan_file;
pub(crate) mod providers;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use datastore_api::Sha256;
use fs_err as fs;

use crate::basis::backend::Backend;
use crate::basis::modules::Downloaded;
use crate::basis::place::PlanPlace;
use crate::basis::plan_file::Contents;
use crate::order::job::{Apply, Job};
use crate::order::layer::LayerHandle;
use crate::report::{PlanRecord, PlanReport, ToolRecord};
use crate::source::checkout::Source;
use crate::source::error::CheckoutError;
use crate::source::git::is_commit;
use crate::source::scratch::Held;
use crate::source::snapshot::{SnapshotError, listed};
use crate::tool::cli_args::{self, Inputs};
use crate::version::{Request, ToolName, Version};

/// A requested version, and the flag, field or file that requests it.
pub(crate) type VersionRequest = Option<(String, &'static str)>;

const COMMIT: &str = "commit";
const OUTSIDE_FILE: &str = "file outside of the source";
/// What a plan of another branch or tag was made for.
pub(crate) const REVISION: &str = "revision";

/// The source of a version that is read from the plan's record.
const RECORDED: &str = "the plan's run.json";

/// How the plan was chosen. It decides whether a difference is an error or a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    /// As the newest plan of its layer, or with `--strict`.
    Strictly,
    /// By an annotation of the layer's manifest.
    ByLayer,
    /// By `--plan`, or by `--plan-file` with a record of its place.
    ByName,
    /// By `--plan-file`, with no record of the module that it belongs to, or for an archive.
    ByFile,
    /// By Burrito's controllers.
    ByController,
}

/// The plan does not belong to this code, backend or tool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BasisError {
    #[error("the plan {plan} was made for another {what}: {theirs}; here it is {ours}")]
    Elsewhere { plan: String, what: &'static str, theirs: String, ours: String },
    #[error("the {what} has changed since the plan {plan} was made: {theirs}; here it is {ours}")]
    Changed {
        plan: String,
        what: &'static str,
        theirs: String,
        ours: String,
        /// Whether the plan's snapshot has what the plan was made of.
        is_in_snapshot: bool,
    },
    #[error("{} has no configuration, and the plan {plan} was made of one", .directory.display())]
    NoConfiguration { plan: String, directory: PathBuf },
    #[error("the plan {plan} was made by {theirs}, but {ours}")]
    Tool { plan: String, theirs: String, ours: String },
    #[error("the run.json of the plan {plan} does not record both its place and its backend")]
    Unrecorded { plan: String },
    #[error(
        "the plan {plan} was made with mock outputs, not with the real ones of {}",
        .dependencies.join(", ")
    )]
    Mocks { plan: String, dependencies: Vec<String> },
    #[error(
        "the plan {plan} was made with another module `{module}`: {theirs}; init has downloaded {ours}"
    )]
    Module { plan: String, module: String, theirs: String, ours: String },
    #[error(
        "the modules that init has downloaded cannot be compared with those of the plan {plan}"
    )]
    UnreadModules {
        plan: String,
        #[source]
        cause: SnapshotError,
    },
    #[error(
        "the files that the configuration names cannot be compared with those of the plan {plan}"
    )]
    UnreadFiles {
        plan: String,
        #[source]
        cause: io::Error,
    },
    #[error(
        "the plan {plan} contains the directory {} in which it was made, and is applied in another one: {}{}",
        .directory.display(), .values.join(", "), .held.map(Held::cause).unwrap_or_default()
    )]
    AbsolutePaths { plan: String, directory: PathBuf, values: Vec<String>, held: Option<Held> },
    #[error(
        "{option} in {variable} applies the plan {plan} to another state than the compared one"
    )]
    OtherState { plan: String, option: &'static str, variable: &'static str },
    /// The repository cannot be asked for the ordered revision.
    #[error(transparent)]
    Repository(#[from] Box<CheckoutError>),
}

/// The code, backend and tool of a plan, as recorded.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    /// The plan's name, for messages.
    plan: String,
    chosen: Chosen,
    record: Option<PlanRecord>,
    /// The commit, with `-dirty` where files differed from it.
    revision: Option<String>,
    /// The first difference that was only a warning.
    warned: Arc<OnceLock<String>>,
}

impl Basis {
    /// Compares everything that is known before the checkout: the place, mock outputs, and the flags. `here` is the place
    /// that the plan must be of, `plan` its name, `record` its `run.json` or the record beside its file.
    pub(crate) fn new(
        job: &Job,
        from: &Apply,
        here: &PlanPlace,
        plan: String,
        record: Option<PlanRecord>,
    ) -> Result<Self, BasisError> {
        let place = record.as_ref().and_then(|record| record.place.as_ref());
        // An archive may be of any repository.
        let is_archive = matches!(job.source, Source::Packed(_));
        let is_placed = here.path.is_some() && place.is_some_and(|p| p.path.is_some());
        let chosen = match from {
            _ if job.strict => Chosen::Strictly,
            _ if job.pod => Chosen::ByController,
            Apply::Newest => Chosen::Strictly,
            // A stored plan belongs to this layer. A file may be any plan.
            Apply::File(_) if !is_placed || is_archive => Chosen::ByFile,
            _ if job.named.plan => Chosen::ByName,
            _ => Chosen::ByLayer,
        };
        let recorded = record.as_ref().and_then(|record| record.revision.clone());
        // If the layer has `plan-sum`, only the plan with that digest is applied. So `plan-commit` is this plan's.
        let layer = job.layer.as_ref().map(LayerHandle::layer);
        let layer = layer.filter(|_| !job.action.destroys());
        let annotated = layer.filter(|layer| layer.annotation("plan-sum").is_some());
        let annotated = annotated.and_then(|layer| layer.annotation("plan-commit"));
        let annotated = annotated.map(str::to_owned);
        let revision = if job.pod { annotated.or(recorded) } else { recorded.or(annotated) };
        let basis = Self { plan, chosen, record, revision, warned: Arc::default() };
        basis.check_place(here, job.source.directory().as_deref())?;
        basis.check_mocks(job)?;
        basis.check_tool(job)?;
        basis.check_named_revision(job)?;
        Ok(basis)
    }

    /// The plan's revision, for the annotation `apply-commit` and the report; `own` if it is not recorded.
    pub(crate) fn revision_or(&self, own: Option<String>) -> Option<String> {
        let is_recorded = self.record.is_some() || self.revision.is_some();
        if is_recorded { self.revision.clone() } else { own }
    }

    /// The commit to check out.
    pub(crate) fn commit(&self) -> Option<&str> {
        self.revision.as_deref().map(commit)
    }

    /// The tool that made the plan, and its version.
    pub(crate) fn tool(&self, job: &Job) -> (Option<ToolName>, VersionRequest) {
        let recorded = self.record.as_ref().and_then(|record| record.tool.as_ref());
        match recorded.and_then(|tool| Some((tool.name.parse().ok()?, tool.version.clone()))) {
            Some((name, version)) => (Some(name), Some((version, RECORDED))),
            None => (job.tool, job.request.clone()),
        }
    }

    /// The version of terragrunt that ran the tool for the plan.
    pub(crate) fn terragrunt(&self, job: &Job) -> VersionRequest {
        match self.recorded() {
            Some(record) => record.terragrunt.as_ref().map(|t| (t.version.clone(), RECORDED)),
            None => job.terragrunt.clone(),
        }
    }

    /// The record, if it contains the place. It then contains everything else as well.
    fn recorded(&self) -> Option<&PlanRecord> {
        self.record.as_ref().filter(|record| record.place.is_some())
    }

    /// The recorded digest and counts of the plan.
    pub(crate) fn recorded_plan(&self) -> Option<&PlanReport> {
        self.record.as_ref()?.plan.as_ref()
    }

    /// Whether the plan is a file without a record of its place.
    pub(crate) fn is_bare_file(&self) -> bool {
        self.chosen == Chosen::ByFile && self.recorded().is_none()
    }

    /// The directory of the plan's code, if that was in no repository.
    pub(crate) fn made_in(&self) -> Option<&str> {
        self.record.as_ref()?.directory.as_deref()
    }

    /// The recorded state file of the plan that was removed after it.
    pub(crate) fn removed_state(&self) -> Option<&Path> {
        self.record.as_ref()?.removed_state.as_deref()
    }

    /// Compares the contents of a plan file that has no record. `workspace` and `backend` are those of this code,
    /// `difference` is the difference of the code: the plan's part and this directory's.
    pub(crate) fn check_contents(
        &self,
        contents: &Contents,
        workspace: Option<&String>,
        backend: Option<&Backend>,
        difference: Option<(String, String)>,
    ) -> Result<(), BasisError> {
        if let (Some(theirs), Some(ours)) = (&contents.workspace, workspace)
            && theirs != ours
        {
            return Err(self.elsewhere("workspace", theirs, ours));
        }
        if let (Some(theirs), Some(ours)) = (&contents.backend, backend)
            && !theirs.agrees_with(ours)
        {
            return Err(self.elsewhere("backend", theirs, ours));
        }
        match difference {
            Some((theirs, ours)) => Err(self.elsewhere("configuration", &theirs, &ours)),
            None => Ok(()),
        }
    }

    /// Refuses a plan with mock outputs, whose values are not real.
    fn check_mocks(&self, job: &Job) -> Result<(), BasisError> {
        let Some(record) = self.record.as_ref().filter(|record| !record.mocks.is_empty()) else {
            return Ok(());
        };
        let (plan, dependencies) = (self.plan.clone(), record.mocks.clone());
        let error = BasisError::Mocks { plan, dependencies };
        if job.allow_mocks {
            tracing::warn!("{error}: applied anyway because of --allow-mocks");
            return Ok(());
        }
        Err(error)
    }

    fn check_place(&self, here: &PlanPlace, source: Option<&Path>) -> Result<(), BasisError> {
        let Some(theirs) = self.recorded() else {
            if self.chosen == Chosen::Strictly {
                return Err(BasisError::Unrecorded { plan: self.plan.clone() });
            }
            // The contents of a file are compared after init.
            if !self.is_bare_file() {
                tracing::warn!(
                    "the place and the backend of the plan {} are not recorded, so they are not compared",
                    self.plan
                );
            }
            return Ok(());
        };
        if theirs.is_of(here, source) {
            return Ok(());
        }
        Err(self.elsewhere("place", &theirs.shown_place(), here))
    }

    fn check_tool(&self, job: &Job) -> Result<(), BasisError> {
        let Some(record) = &self.record else { return Ok(()) };
        let conflict = |theirs: &ToolRecord, ours: String| BasisError::Tool {
            plan: self.plan.clone(),
            theirs: format!("{} {}", theirs.name, theirs.version),
            ours,
        };
        let requests_other = |request: &Option<String>, recorded: &ToolRecord| {
            let request = request.as_deref().filter(|text| !text.trim().is_empty())?;
            let version = recorded.version.parse::<Version>().ok()?;
            // Keywords such as `latest-allowed`, and text that does not parse, allow every version here.
            let refused = request.parse::<Request>().is_ok_and(|asked| !asked.allows(&version));
            refused.then(|| request.to_owned())
        };
        if let Some(tool) = &record.tool {
            if let Some(named) = job.named.tool.filter(|named| named.program() != tool.name) {
                return Err(conflict(tool, format!("--tool requests {named}")));
            }
            if let Some(request) = requests_other(&job.named.version, tool) {
                return Err(conflict(tool, format!("--tool-version requests {request}")));
            }
        }
        match (self.recorded().map(|record| &record.terragrunt), &job.named.terragrunt) {
            (Some(None), Some(_)) => Err(BasisError::Tool {
                plan: self.plan.clone(),
                theirs: "the tool alone".to_owned(),
                ours: "--terragrunt requests terragrunt".to_owned(),
            }),
            (Some(Some(terragrunt)), request) => match requests_other(request, terragrunt) {
                Some(request) => {
                    Err(conflict(terragrunt, format!("--terragrunt requests {request}")))
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// A commit of `--revision`, also an abbreviated one, must be the plan's. A branch may have moved on.
    fn check_named_revision(&self, job: &Job) -> Result<(), BasisError> {
        let (Source::Git(git), Some(theirs)) = (&job.source, self.commit()) else { return Ok(()) };
        // A branch or tag may have a name that looks like a commit.
        let named = self.record.as_ref().and_then(|record| record.named_revision.as_deref());
        match git.revision().filter(|ours| is_commit(ours) && named != Some(ours)) {
            Some(ours) if !theirs.starts_with(&ours.to_ascii_lowercase()) => {
                self.changed(COMMIT, theirs, &format!("--revision {ours}"))
            }
            _ => Ok(()),
        }
    }

    /// Compares the commit of a directory that is used in place. `changed`: the files whose code differs from the commit, or
    /// why they are not known.
    pub(crate) fn check_revision(
        &self,
        ours: Option<&str>,
        changed: Result<BTreeSet<PathBuf>, String>,
    ) -> Result<(), BasisError> {
        let (Some(theirs), Some(ours)) = (self.revision.as_deref(), ours) else { return Ok(()) };
        if commit(theirs) != commit(ours) {
            return self.changed("code", theirs, ours);
        }
        // For a plan of a dirty work tree the configuration digest is compared instead.
        if theirs.ends_with(DIRTY) {
            // Of a copy the digest of all files is compared, which a clean one does not have.
            let is_copy = self.recorded().is_some_and(|record| record.source_sha256.is_some());
            let is_other = is_copy && !ours.ends_with(DIRTY);
            return if is_other { self.changed("code", theirs, ours) } else { Ok(()) };
        }
        match changed {
            Ok(files) if files.is_empty() => Ok(()),
            Ok(files) => self.changed("code", theirs, &format!("{ours} ({})", listed(&files))),
            Err(reason) => self.changed("code", theirs, &format!("{ours} ({reason})")),
        }
    }

    /// Compares everything that is known after init.
    pub(crate) fn check_initialized(
        &self,
        backend: Option<&Backend>,
        configuration: Sha256,
        providers: Option<&BTreeMap<String, String>>,
    ) -> Result<(), BasisError> {
        let Some(record) = self.recorded() else { return Ok(()) };
        match (&record.backend, backend) {
            (Some(theirs), Some(ours))
                if !theirs.agrees_with(ours) || theirs.is_other_file(ours) =>
            {
                return Err(self.elsewhere("backend", theirs, ours));
            }
            (Some(_), Some(_)) => {}
            (None, _) if self.chosen == Chosen::Strictly => {
                return Err(BasisError::Unrecorded { plan: self.plan.clone() });
            }
            _ => tracing::warn!(
                "the backend is unknown, here or when the plan {} was made, so it is not compared",
                self.plan
            ),
        }
        if let (Some(theirs), Some(ours)) = (&record.providers, providers)
            && theirs != ours
        {
            tracing::warn!(
                "the providers' versions are not those of the plan {}: {theirs:?}; here {ours:?}",
                self.plan
            );
        }
        self.check_digest("configuration", record.configuration_sha256, Some(configuration))
    }

    /// Compares two digests. What one side does not know is not compared.
    fn check_digest(
        &self,
        what: &'static str,
        theirs: Option<Sha256>,
        ours: Option<Sha256>,
    ) -> Result<(), BasisError> {
        let (Some(theirs), Some(ours)) = (theirs, ours) else { return Ok(()) };
        if theirs == ours {
            return Ok(());
        }
        let [theirs, ours] = [theirs, ours].map(|sha256| format!("sha256 {sha256}"));
        if self.chosen == Chosen::ByFile {
            return Err(self.elsewhere(what, &theirs, &ours));
        }
        self.changed(what, &theirs, &ours)
    }

    /// Refuses the plan of another directory of this machine, where both have no state yet that could be compared, and each
    /// is to have its own. Elsewhere the plan's directory may be this one under another path.
    pub(crate) fn check_made_in(&self, ours: &Path) -> Result<(), BasisError> {
        let place = self.recorded().and_then(|record| record.place.as_ref());
        let theirs = place.zip(self.made_in());
        let Some(theirs) = theirs.map(|(place, source)| place.module_in(Path::new(source))) else {
            return Ok(());
        };
        let id = |dir: &Path| fs::metadata(dir).map(|of| (of.dev(), of.ino())).ok();
        match (id(&theirs), id(ours)) {
            (Some(their_id), Some(our_id)) if their_id != our_id => {
                Err(self.elsewhere("directory", &theirs.display(), &ours.display()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses other contents of the modules that init has downloaded. What is not recorded is not compared.
    pub(crate) fn check_modules(&self, dir: &Path, data_dir: &Path) -> Result<(), BasisError> {
        let Some(record) = self.recorded().filter(|record| !record.modules.is_empty()) else {
            return Ok(());
        };
        let plan = self.plan.clone();
        let downloaded = Downloaded::list(dir, data_dir);
        match downloaded.and_then(|downloaded| downloaded.difference(&record.modules)) {
            Ok(None) => Ok(()),
            Ok(Some((module, theirs, ours))) => {
                Err(BasisError::Module { plan, module, theirs, ours })
            }
            Err(cause) => Err(BasisError::UnreadModules { plan, cause }),
        }
    }

    /// Refuses variables that would have the tool apply the plan to another state.
    pub(crate) fn check_arguments(&self, variables: &Inputs) -> Result<(), BasisError> {
        match cli_args::other_state(variables) {
            Some((option, variable)) => {
                Err(BasisError::OtherState { plan: self.plan.clone(), option, variable })
            }
            None => Ok(()),
        }
    }

    fn elsewhere(
        &self,
        what: &'static str,
        theirs: &impl ToString,
        ours: &impl ToString,
    ) -> BasisError {
        let (theirs, ours) = (theirs.to_string(), ours.to_string());
        BasisError::Elsewhere { plan: self.plan.clone(), what, theirs, ours }
    }

    /// An error, except if the plan was named: then the user has chosen an older plan.
    fn changed(&self, what: &'static str, theirs: &str, ours: &str) -> Result<(), BasisError> {
        let (theirs, ours) = (theirs.to_owned(), ours.to_owned());
        let has_snapshot = self.recorded().is_some_and(|record| record.applies_in_snapshot);
        // The commit is that of `--revision`, which is compared in any case.
        let is_in_snapshot = has_snapshot && !matches!(what, COMMIT | OUTSIDE_FILE);
        let plan = self.plan.clone();
        self.unless_named(BasisError::Changed { plan, what, theirs, ours, is_in_snapshot })
    }

    /// How the code that is used here differs from the plan's, if that was only a warning.
    pub(crate) fn warned_difference(&self) -> Option<&str> {
        self.warned.get().map(String::as_str)
    }
}

const DIRTY: &str = "-dirty";

/// A revision's commit.
fn commit(revision: &str) -> &str {
    revision.strip_suffix(DIRTY).unwrap_or(revision)
}
