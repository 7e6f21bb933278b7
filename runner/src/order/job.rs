//! What to do: flags, environment and the layer's manifest, merged and parsed once.
//!
//! After this nothing is a text that means something. A flag goes before the manifest, the manifest
//! before the defaults.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use datastore_api::{Attempt, Client, Name, RunKey};

use crate::basis::place::PlanPlace;
pub(crate) use crate::cli::{ApplyArgs, Environment, PlanArgs, PlanName, RunArgs, ToolArgs};
use crate::order::apply_command::ApplyCommand;
use crate::order::asked_tool::tool;
pub(crate) use crate::order::datastore::datastore;
use crate::order::identity::identify;
use crate::order::layer::{
    ClusterError, Layer, LayerError, LayerFile, Merged, Origin, RepositorySpec,
};
use crate::order::outputs::{check_outputs, ours};
use crate::source::checkout::Source;
use crate::tool::argv::PlanOptions;
use crate::version::ToolName;

/// One order to plan or apply a root module.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag or a fact of its own")]
pub(crate) struct Job {
    pub(crate) action: Action,
    /// Namespace, layer and run.
    pub(crate) run: RunKey,
    /// The attempt, if it was named.
    pub(crate) attempt: Option<Attempt>,
    /// The lowest attempt number that this run may take where none was named.
    pub(crate) lowest_attempt: Attempt,
    pub(crate) source: Source,
    /// The working directory inside the source.
    pub(crate) path: PathBuf,
    /// Where a source that is not used in place is kept.
    pub(crate) work_dir: Option<PathBuf>,
    /// Whether submodules and LFS files are fetched, and missed where the code needs them.
    pub(crate) submodules: bool,
    /// Where the code belongs; a stored plan must be of the same place.
    pub(crate) place: PlanPlace,
    /// What the caller named itself.
    pub(crate) named: Named,
    /// What applies the plan; none where Burrito's controllers order it.
    pub(crate) apply_command: Option<ApplyCommand>,
    /// Where annotations go.
    pub(crate) layer: Option<Origin>,
    /// The tool, if something but the code names it.
    pub(crate) tool: Option<ToolName>,
    /// The version of it that something but the code asks for, and what does.
    pub(crate) request: Option<(String, &'static str)>,
    /// Whether terragrunt runs the tool: the version of it that is asked for, and by what.
    pub(crate) terragrunt: Option<(String, &'static str)>,
    pub(crate) tools: ToolArgs,
    pub(crate) options: PlanOptions,
    pub(crate) datastore: Option<Client>,
    /// Whether an apply without a stored plan is made although this run has been applied.
    pub(crate) again: bool,
    /// Whether a plan that terragrunt made with mock outputs is applied.
    pub(crate) allow_mocks: bool,
    /// Without a datastore: where the plan goes to, or comes from.
    pub(crate) plan_file: Option<PathBuf>,
    pub(crate) grace: Duration,
    /// Files that the run writes beside the code, absolute.
    pub(crate) ours: Vec<PathBuf>,
    /// Whether we go by the name `burrito`, and bear what upstream's runner bears.
    pub(crate) burrito: bool,
    /// Whether Burrito's controllers started us: they know the attempt, and read why it failed.
    pub(crate) pod: bool,
    /// A mirror of providers, asked before their own registries.
    pub(crate) provider_mirror: Option<String>,
}

/// What the caller named itself, by a flag or its variable. A stored plan must agree with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    /// Whether the plan was named: by `--plan` or `--plan-file`, not by an annotation.
    pub(crate) plan: bool,
    /// Whether the run was named.
    pub(crate) run: bool,
    pub(crate) tool: Option<ToolName>,
    pub(crate) version: Option<String>,
    pub(crate) terragrunt: Option<String>,
}

/// Plan or apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Plan {
        /// Whether pending changes are an exit code of their own.
        detailed_exitcode: bool,
    },
    Apply(Apply),
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
    /// None: the tool plans and applies in one. Burrito's controllers name one all the same, whose sum
    /// is noted.
    Unplanned(Option<PlanName>),
}

impl Action {
    /// As run names, results and messages have it.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Plan { .. } => "plan",
            Self::Apply(_) => "apply",
        }
    }
}

/// The order makes no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JobError {
    /// The flags do not go together.
    #[error("{0}")]
    Usage(String),
    /// What the flags name is not there, or is not what it should be.
    #[error("{0}")]
    Config(String),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error("the cluster")]
    Cluster(#[from] ClusterError),
}

/// An order that did not become a job.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: JobError,
    /// Where Burrito's controllers look for the reason.
    pub(crate) place: Option<Box<Place>>,
}

/// The place of one attempt in a datastore.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) datastore: Client,
    pub(crate) run: RunKey,
    pub(crate) attempt: Attempt,
}

impl From<JobError> for Refused {
    fn from(error: JobError) -> Self {
        Self { error, place: None }
    }
}

impl Job {
    pub(crate) async fn plan(
        args: PlanArgs,
        burrito: bool,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let action = Action::Plan { detailed_exitcode: args.detailed_exitcode };
        Self::new(args.run, burrito, false, environment, |_| Ok(action)).await
    }

    pub(crate) async fn apply(
        args: ApplyArgs,
        burrito: bool,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let ApplyArgs { run, plan, no_plan, again, allow_mocks } = args;
        let file = run.plan_file.clone();
        let stored = run.datastore.datastore.is_some();
        let options = !plan_options(&run)?.is_empty();
        let is_named = plan.is_some() || file.is_some();
        let action = |layer: Option<&Layer>| {
            let unplanned =
                layer.and_then(|layer| layer.spec.remediation_strategy.apply_without_plan_artifact);
            let from = match (plan, file) {
                (Some(plan), _) => Apply::Run(plan),
                (None, Some(file)) => Apply::File(file),
                (None, None) if no_plan || unplanned == Some(true) => {
                    Apply::Unplanned(None)
                }
                (None, None) if !stored => return Err(JobError::Config(
                    "there is no plan to apply without a datastore: name one by --datastore, a file \
                     by --plan-file, or plan and apply in one with --no-plan".to_owned(),
                )),
                (None, None) => match layer {
                    Some(layer) => Apply::Run(annotated_plan(layer)?),
                    None => Apply::Newest,
                },
            };
            if options && from != Apply::Unplanned(None) {
                return Err(JobError::Usage(
                    "--var, --var-file, --target, --replace and arguments after -- were decided when \
                     the plan was made; an apply takes them only with --no-plan".to_owned(),
                ));
            }
            if again && from != Apply::Unplanned(None) {
                return Err(JobError::Usage(
                    "--again repeats an apply that makes its own plan (--no-plan); a stored plan that \
                     was applied cannot be applied twice: plan again"
                        .to_owned(),
                ));
            }
            Ok(Action::Apply(from))
        };
        let job = Self::new(run, burrito, is_named, environment, action).await?;
        Ok(Self { again, allow_mocks, ..job })
    }

    async fn new(
        args: RunArgs,
        burrito: bool,
        plan_is_named: bool,
        environment: &Environment,
        action: impl FnOnce(Option<&Layer>) -> Result<Action, JobError>,
    ) -> Result<Self, JobError> {
        let layer_file = match &args.layer {
            Some(path) => Some(LayerFile::load(path, args.name.as_ref().map(Name::as_ref))?),
            None => None,
        };
        let layer = layer_file.as_ref().map(LayerFile::layer);
        let action = action(layer)?;
        let options = plan_options(&args)?;
        let source = args.dir.as_deref().or(args.source.as_deref()).unwrap_or(".");
        let source = Source::parse(source, args.revision.as_deref()).map_err(JobError::Usage)?;
        let apply_command = ApplyCommand::new(&args, &source, burrito);
        let path = working_path(args.path.as_deref(), layer)?;
        let named = Named {
            plan: plan_is_named,
            run: args.run.is_some(),
            tool: args.tool,
            version: args.tool_version.clone(),
            terragrunt: args.terragrunt.clone(),
        };
        let (tool, request) = tool(args.tool, args.tool_version.clone(), layer)?;
        let enabled =
            layer.and_then(|layer| Merged::new(&layer.spec, &RepositorySpec::default()).terragrunt);
        let enabled = enabled.map(|version| (version, "the layer's spec.terragrunt.version"));
        let terragrunt = args.terragrunt.clone().map(|asked| (asked, "--terragrunt")).or(enabled);
        let datastore = datastore(&args.datastore, args.tools.ca_file.as_deref(), environment)?;
        let ours = ours(&args, environment);
        check_outputs(&args, &action, layer_file.as_ref())?;
        let identity = identify(&source, &path, args.work_dir.as_deref(), environment).await;
        let name = match (args.name, layer.and_then(|layer| layer.metadata.name.as_deref())) {
            (Some(name), _) => name,
            (None, Some(name)) => in_manifest("metadata.name", name)?,
            (None, None) => identity.default_name()?,
        };
        let namespace = layer.and_then(|layer| layer.metadata.namespace.as_deref());
        let namespace = match (args.namespace, namespace) {
            (Some(namespace), _) => namespace,
            (None, namespace) => in_manifest("metadata.namespace", namespace.unwrap_or("default"))?,
        };
        let run = match args.run {
            Some(run) => run,
            None => generated_run(&name, action.as_str())?,
        };
        Ok(Self {
            action,
            run: RunKey { namespace, layer: name, run },
            attempt: args.attempt,
            lowest_attempt: Attempt(0),
            source,
            path,
            work_dir: args.work_dir,
            submodules: !args.no_submodules,
            place: identity.place,
            named,
            apply_command: Some(apply_command),
            layer: layer_file.map(Origin::File),
            tool,
            request,
            terragrunt,
            tools: args.tools,
            options,
            datastore,
            again: false,
            allow_mocks: false,
            plan_file: args.plan_file,
            grace: args.grace,
            ours,
            burrito,
            pod: false,
            provider_mirror: None,
        })
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.action.as_str(), self.run)
    }
}

fn plan_options(args: &RunArgs) -> Result<PlanOptions, JobError> {
    // These would move the plan from under us, or say it in another way.
    let refused = ["-out", "-json", "-chdir", "-detailed-exitcode", "-input"];
    for arg in &args.args {
        let name = arg.trim_start_matches('-').split('=').next().unwrap_or_default();
        if arg.starts_with('-') && refused.iter().any(|refused| refused[1..] == *name) {
            let instead = match name {
                "out" => "--plan-file PATH, before the --, keeps the plan in a file",
                "json" => "a datastore also keeps the plan as JSON (plan.json)",
                "chdir" => "name the directory as DIR",
                "detailed-exitcode" => "write --detailed-exitcode, before the --",
                _ => "the tool never asks for input here",
            };
            return Err(JobError::Usage(format!(
                "`{arg}` after -- is set by the runner itself: leave it out; {instead}"
            )));
        }
    }
    // The tool runs elsewhere, but the paths were written here.
    let absolute = |file: &PathBuf| std::path::absolute(file).unwrap_or_else(|_| file.clone());
    Ok(PlanOptions {
        var_files: args.var_file.iter().map(absolute).collect(),
        vars: args.var.clone(),
        targets: args.target.clone(),
        replaces: args.replace.clone(),
        args: args.args.clone(),
    })
}

/// What the annotation `plan-run` of a layer names.
fn annotated_plan(layer: &Layer) -> Result<PlanName, JobError> {
    let Some(text) = layer.annotation("plan-run") else {
        return Err(JobError::Config(
            "the layer has no annotation plan-run: plan it first, or name a run by --plan"
                .to_owned(),
        ));
    };
    text.parse()
        .map_err(|error| JobError::Config(format!("the layer's annotation plan-run: {error}")))
}

fn working_path(flag: Option<&Path>, layer: Option<&Layer>) -> Result<PathBuf, JobError> {
    let (path, place) = match (flag, layer.and_then(|layer| layer.spec.path.as_deref())) {
        (Some(path), _) => (path, "--path"),
        (None, Some(path)) => (Path::new(path), "the layer's spec.path"),
        (None, None) => (Path::new(""), ""),
    };
    inside(path, place)
}

/// A path below the source. A layer says `.` or `/x`, too, as Burrito joins it.
pub(crate) fn inside(path: &Path, place: &str) -> Result<PathBuf, JobError> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::RootDir if place != "--path" => {}
            _ => {
                let text = format!("{place} `{}` leaves the source", path.display());
                let usage = place == "--path";
                return Err(if usage { JobError::Usage(text) } else { JobError::Config(text) });
            }
        }
    }
    Ok(inside)
}

fn in_manifest(field: &str, text: &str) -> Result<Name, JobError> {
    text.parse().map_err(|error| JobError::Config(format!("the layer's {field}: {error}")))
}

/// `<layer>-<action>-<5 random>`, as Kubernetes would make it of a `generateName`.
fn generated_run(layer: &Name, action: &str) -> Result<Name, JobError> {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = RandomState::new().hash_one(std::process::id());
    let mut suffix = String::new();
    for _ in 0..5 {
        let index = usize::try_from(random % ALPHABET.len() as u64).unwrap_or_default();
        suffix.push(char::from(ALPHABET[index]));
        random /= ALPHABET.len() as u64;
    }
    let mut layer = layer.as_ref();
    while layer.len() > 240 {
        layer = layer.strip_suffix(|_: char| true).unwrap_or_default();
    }
    let run = format!("{layer}-{action}-{suffix}");
    run.parse().map_err(|error| JobError::Usage(format!("the run's name: {error}")))
}
