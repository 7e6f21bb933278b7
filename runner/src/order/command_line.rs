//! A job of `runner plan`, `runner apply` or `runner destroy`: flags, environment and the layer's manifest, merged and parsed once. A flag
//! wins over the manifest, the manifest over the defaults.

mod converge;
mod migrate;
mod terragrunt;

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};

use datastore_api::{Attempt, Name, RunKey};

use crate::cli::PlanName;
use crate::cli::{
    ApplyArgs, DestroyArgs, Environment, HookArgs, LayerArgs, PlanArgs, RunArgs, Variable,
};
use crate::order::apply_command::ApplyCommand;
use crate::order::datastore::datastore;
use crate::order::hooks::Hooks;
use crate::order::identity::{Identity, identify};
use crate::order::inputs::Inputs;
use crate::order::job::{Action, Apply, Destroy, Job, JobError, Named, inside, keys, source};
use crate::order::layer::{
    EffectiveSpec, Layer, LayerError, LayerFile, LayerHandle, RepositorySpec,
};
use crate::order::outputs::{annotates, check_outputs, ignored_paths, state_files};
use crate::order::requested_tool::requested_tool;
use crate::order::state::datastore_state;
use crate::source::checkout::Source;
use crate::source::path::resolve;
use crate::source::states::file::StateFiles;
use crate::tool::argv::PlanOptions;
use crate::tool::cli_args::other_state_in;

impl Job {
    /// The job of `runner plan`.
    pub(crate) async fn plan(
        args: PlanArgs,
        burrito: bool,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let PlanArgs { run, detailed_exitcode, skip_empty_plans } = args;
        let action = Action::Plan { detailed_exitcode };
        let job = Self::new(run, burrito, false, environment, |_| Ok(action)).await?;
        Ok(Self { skip_empty_plans, ..job })
    }

    /// The job of `runner apply`.
    pub(crate) async fn apply(
        args: ApplyArgs,
        burrito: bool,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let ApplyArgs { run, plan, strict, no_plan, again, order_key, allow_mocks, lease, hooks } =
            args;
        let break_stale_lock = lease.break_stale_lock;
        let hooks = find_hooks(&hooks, &run)?;
        let file = run.plan_file.clone();
        let stored = run.datastore.datastore.is_some();
        let options = !plan_options(&run)?.is_empty() || run.inputs.sets_variables();
        let is_named = plan.is_some() || file.is_some();
        if order_key.is_some() && !stored {
            return Err(JobError::Usage(
                "--order-key needs a datastore, which records the orders that were applied: name one with --datastore"
                    .to_owned(),
            ));
        }
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
                    "there is no plan to apply without a datastore: name one with --datastore, a file \
                     with --plan-file, or plan and apply in one step with --no-plan".to_owned(),
                )),
                (None, None) => match layer {
                    Some(layer) => Apply::Run(annotated_plan(layer)?),
                    None => Apply::Newest,
                },
            };
            if options && from != Apply::Unplanned(None) {
                return Err(JobError::Usage(
                    "--var, --var-file, --target, --replace and arguments after -- were decided when \
                     the plan was made; an apply takes them only with --no-plan (ephemeral variables of a plan \
                     are set as TF_VAR_NAME)".to_owned(),
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
        Ok(Self { again, order_key, allow_mocks, hooks, strict, break_stale_lock, ..job })
    }

    /// The job of `runner destroy`.
    pub(crate) async fn destroy(
        args: DestroyArgs,
        burrito: bool,
        environment: &Environment,
    ) -> Result<Self, JobError> {
        let DestroyArgs { run, approve, auto_approve, allow_mocks, lease, hooks, .. } = args;
        let force_with_dependants = args.force_with_dependants;
        let break_stale_lock = lease.break_stale_lock;
        let hooks = find_hooks(&hooks, &run)?;
        if !run.replace.is_empty() {
            return Err(JobError::Usage(
                "--replace creates objects again, and `runner destroy` creates none: leave it out"
                    .to_owned(),
            ));
        }
        if approve.is_some() && (!plan_options(&run)?.is_empty() || run.inputs.sets_variables()) {
            return Err(JobError::Usage(
                "--var, --var-file, --target and arguments after -- were decided when the approved plan was made: leave \
                 them out (ephemeral variables of a plan are set as TF_VAR_NAME)"
                    .to_owned(),
            ));
        }
        let (file, stored) = (run.plan_file.clone(), run.datastore.datastore.is_some());
        if !stored && file.is_none() && !auto_approve {
            return Err(JobError::Config(
                "the plan is approved by its digest, so it must be kept: name a datastore with --datastore, a file with \
                 --plan-file, or destroy at once with --auto-approve"
                    .to_owned(),
            ));
        }
        let action = Action::Destroy(match (approve, file) {
            (Some(approved), Some(file)) => Destroy::Apply { from: Apply::File(file), approved },
            (Some(approved), None) => Destroy::Apply { from: Apply::Newest, approved },
            (None, _) => Destroy::Plan { approved: auto_approve },
        });
        let destroy = !action.is_apply();
        let mut job = Self::new(run, burrito, false, environment, |_| Ok(action)).await?;
        job.options.destroy = destroy;
        job.inputs.force_with_dependants = force_with_dependants;
        Ok(Self { allow_mocks, hooks, strict: true, break_stale_lock, ..job })
    }

    /// What all actions share.
    async fn new(
        args: RunArgs,
        burrito: bool,
        plan_is_named: bool,
        environment: &Environment,
        action: impl FnOnce(Option<&Layer>) -> Result<Action, JobError>,
    ) -> Result<Self, JobError> {
        let (source, layer_file) = (named_source(&args)?, load_layer(&args.identity)?);
        let layer = layer_file.as_ref().map(LayerFile::layer);
        let action = action(layer)?;
        let (options, terragrunt) = (plan_options(&args)?, checked_terragrunt(&args, layer)?);
        let (signing_key, verify_key) = keys(&args.binding, &action)?;
        let path = working_path(args.path.as_deref(), layer)?;
        let (tool, request) = requested_tool(args.tool, args.tool_version.clone(), layer)?;
        let datastore = datastore(&args.datastore, args.tools.ca_file.as_deref(), environment)?;
        let identity = identify(&source, &path, args.work_dir.as_deref(), environment).await;
        let run = run_key(&args, layer, &identity, &action)?;
        let (inputs, options) = inputs((&args, options), (layer, &source), &run, &action)?;
        let has = (datastore.is_some(), terragrunt.is_some());
        let state = datastore_state(&args.state, &run, (&source, &identity), has)?;
        Ok(Self {
            state_files: files(&args, &action, layer_file.as_ref(), environment)?,
            apply_command: Some(ApplyCommand::new(&args, &source, workspace(environment), burrito)),
            named: named(&args, plan_is_named),
            terragrunt,
            ignored_paths: ignored_paths(&args, environment),
            layer: layer_file.map(|file| handle(file, &action)),
            action,
            run,
            attempt: args.attempt,
            lowest_attempt: Attempt(0),
            has_earlier_attempts: false,
            source,
            path,
            work_dir: args.work_dir,
            submodules: !args.no_submodules,
            place: identity.place,
            source_id: identity.source_id,
            tool,
            request,
            tools: args.tools,
            options,
            allow_large_state: args.state_files.allow_large_state,
            datastore,
            state,
            new_state: args.state.new_state,
            again: false,
            order_key: None,
            skip_empty_plans: false,
            snapshot: args.binding.snapshot,
            signing_key,
            verify_key,
            allow_mocks: false,
            hooks: Hooks::default(),
            strict: false,
            preflight: args.preflight.preflight,
            break_stale_lock: None,
            plan_file: args.plan_file,
            grace: args.grace,
            retry: args.retry,
            limits: args.limits,
            burrito,
            pod: false,
            provider_mirror: None,
            judging: None,
            inputs,
        })
    }
}

/// The files of the state, if flags name them. All files are checked that the run writes.
fn files(
    args: &RunArgs,
    action: &Action,
    layer: Option<&LayerFile>,
    environment: &Environment,
) -> Result<Option<StateFiles>, JobError> {
    check_outputs(args, action, layer)?;
    let has_terragrunt = requested_terragrunt(args, layer.map(LayerFile::layer)).is_some();
    state_files(args, action, has_terragrunt, environment)
}

/// The layers that this one needs, and the outputs that it takes, which are added to the options. An apply takes those of its plan.
fn inputs(
    (args, mut options): (&RunArgs, PlanOptions),
    (layer, source): (Option<&Layer>, &Source),
    run: &RunKey,
    action: &Action,
) -> Result<(Inputs, PlanOptions), JobError> {
    let mut inputs = Inputs::new(&args.inputs, layer, run)?;
    if !action.takes_inputs() {
        inputs.list.clear();
    }
    inputs.list.retain(|input| !options.variables.iter().any(|given| given.sets(&input.variable)));
    inputs.add_to(&mut options.variables);
    check_inputs_dir(&inputs, source)?;
    if args.datastore.datastore.is_some() {
        return Ok((inputs, options));
    }
    if let Some(input) = inputs.list.first() {
        let text = format!(
            "the output {} of the layer {} comes from the datastore: name it with --datastore",
            input.output, input.layer
        );
        let is_flag = args.inputs.sets_variables();
        return Err(if is_flag { JobError::Usage(text) } else { JobError::Config(text) });
    }
    match inputs.elsewhere.first() {
        Some(need) if action.is_judged() => Err(JobError::Config(format!(
            "the layer {}/{} needs {need}: name the datastore that knows how it is with --datastore, or its manifest as well",
            run.namespace, run.layer
        ))),
        _ => Ok((inputs, options)),
    }
}

/// Refuses a directory for values of other layers inside of the source: they would become a part of its copies and snapshots.
fn check_inputs_dir(inputs: &Inputs, source: &Source) -> Result<(), JobError> {
    let Some(root) = source.local_root().filter(|_| !inputs.list.is_empty()) else { return Ok(()) };
    let base = resolve(&inputs.base).map_err(|error| JobError::Config(error.to_string()))?;
    if !base.starts_with(&root) {
        return Ok(());
    }
    Err(JobError::Config(format!(
        "the directory for outputs of other layers, {}, is part of the source {}, whose snapshot would contain their values: name \
         another one with --inputs-dir",
        inputs.base.display(),
        root.display()
    )))
}

fn load_layer(args: &LayerArgs) -> Result<Option<LayerFile>, LayerError> {
    let LayerArgs { layer, name, .. } = args;
    let load = |path: &PathBuf| LayerFile::load(path, name.as_ref().map(Name::as_ref));
    layer.as_ref().map(load).transpose()
}

/// The manifest for the run.
fn handle(file: LayerFile, action: &Action) -> LayerHandle {
    if annotates(action, &file) {
        return LayerHandle::File(file);
    }
    if !action.is_check() {
        tracing::info!("the layer's manifest cannot be written: it gets no annotations");
    }
    LayerHandle::File(file.without_annotations())
}

/// The workspace that a variable selects.
fn workspace(environment: &Environment) -> Option<String> {
    environment.tf_workspace.clone().filter(|name| !name.is_empty())
}

/// The source that flags name, by default the current directory.
fn named_source(args: &RunArgs) -> Result<Source, JobError> {
    let named = args.dir().or(args.source.as_deref());
    source(named.unwrap_or("."), args.revision.as_deref(), args.unflatten.as_ref())
}

/// The hooks. One inside of the source is refused.
fn find_hooks(args: &HookArgs, run: &RunArgs) -> Result<Hooks, JobError> {
    Hooks::find(args, &named_source(run)?).map_err(JobError::Config)
}

/// What the flags name explicitly.
fn named(args: &RunArgs, plan_is_named: bool) -> Named {
    Named {
        plan: plan_is_named,
        run: args.run.is_some(),
        source: args.dir().is_some() || args.source.is_some(),
        tool: args.tool,
        version: args.tool_version.clone(),
        terragrunt: args.terragrunt.clone(),
    }
}

/// Namespace, layer and run: the flags win over the manifest, the manifest over the defaults.
fn run_key(
    args: &RunArgs,
    layer: Option<&Layer>,
    identity: &Identity,
    action: &Action,
) -> Result<RunKey, JobError> {
    let LayerArgs { namespace, name, .. } = &args.identity;
    let (namespace, name) =
        layer_name(namespace.as_ref(), name.as_ref(), layer, || identity.default_name())?;
    let run = match &args.run {
        Some(run) => run.clone(),
        None => generated_run(&name, action.as_str())?,
    };
    Ok(RunKey { namespace, layer: name, run })
}

/// Namespace and name of the layer. `default` is the name where neither a flag nor the manifest has one.
pub(super) fn layer_name(
    namespace: Option<&Name>,
    name: Option<&Name>,
    layer: Option<&Layer>,
    default: impl FnOnce() -> Result<Name, JobError>,
) -> Result<(Name, Name), JobError> {
    let metadata = layer.map(|layer| &layer.metadata);
    let name = match (name, metadata.and_then(|metadata| metadata.name.as_deref())) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) => in_manifest("metadata.name", name)?,
        (None, None) => default()?,
    };
    let in_metadata = metadata.and_then(|metadata| metadata.namespace.as_deref());
    let namespace = match namespace {
        Some(namespace) => namespace.clone(),
        None => in_manifest("metadata.namespace", in_metadata.unwrap_or("default"))?,
    };
    Ok((namespace, name))
}

/// The version of terragrunt that is requested, if terragrunt is to run the tool.
fn requested_terragrunt(args: &RunArgs, layer: Option<&Layer>) -> Option<(String, &'static str)> {
    let enabled = || {
        let spec = EffectiveSpec::new(&layer?.spec, &RepositorySpec::default());
        Some((spec.terragrunt?, "the layer's spec.terragrunt.version"))
    };
    args.terragrunt.clone().map(|version| (version, "--terragrunt")).or_else(enabled)
}

/// The same, with the arguments checked that it would get.
fn checked_terragrunt(
    args: &RunArgs,
    layer: Option<&Layer>,
) -> Result<Option<(String, &'static str)>, JobError> {
    let requested = requested_terragrunt(args, layer);
    if requested.is_some() {
        terragrunt::check(&args.args)?;
    }
    Ok(requested)
}

/// Arguments for the tool's plan.
fn plan_options(args: &RunArgs) -> Result<PlanOptions, JobError> {
    // The runner sets these itself, or cannot work with them.
    let refused = ["-out", "-json", "-chdir", "-detailed-exitcode", "-input"];
    let prints_only = ["help", "h", "version", "v"];
    for arg in &args.args {
        let name = arg.trim_start_matches('-').split('=').next().unwrap_or_default();
        if arg.starts_with('-') && prints_only.contains(&name) {
            return Err(JobError::Usage(format!(
                "`{arg}` after -- makes the tool print a text and do nothing else: leave it out"
            )));
        }
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
    if let Some(option) = other_state_in(&args.args) {
        return Err(JobError::Config(format!(
            "`{option}` after -- moves the state to a file that no apply would compare: leave it out, and set the path in the \
             backend `local` of the configuration"
        )));
    }
    // The tool runs in another directory than the one to which the paths refer.
    let absolute = |variable: &Variable| match variable {
        Variable::File(file) => {
            Variable::File(std::path::absolute(file).unwrap_or_else(|_| file.clone()))
        }
        Variable::Value(value) => Variable::Value(value.clone()),
    };
    Ok(PlanOptions {
        variables: args.variables.0.iter().map(absolute).collect(),
        targets: args.target.clone(),
        replaces: args.replace.clone(),
        args: args.args.clone(),
        ..PlanOptions::default()
    })
}

/// The plan that the annotation `plan-run` of a layer names.
fn annotated_plan(layer: &Layer) -> Result<PlanName, JobError> {
    let Some(text) = layer.annotation("plan-run") else {
        return Err(JobError::Config(
            "the layer has no annotation plan-run: plan it first, or name a run with --plan"
                .to_owned(),
        ));
    };
    text.parse()
        .map_err(|error| JobError::Config(format!("the layer's annotation plan-run: {error}")))
}

/// The working directory inside the source.
pub(super) fn working_path(
    flag: Option<&Path>,
    layer: Option<&Layer>,
) -> Result<PathBuf, JobError> {
    let (path, place) = match (flag, layer.and_then(|layer| layer.spec.path.as_deref())) {
        (Some(path), _) => (path, "--path"),
        (None, Some(path)) => (Path::new(path), "the layer's spec.path"),
        (None, None) => (Path::new(""), ""),
    };
    inside(path, place)
}

fn in_manifest(field: &str, text: &str) -> Result<Name, JobError> {
    text.parse().map_err(|error| JobError::Config(format!("the layer's {field}: {error}")))
}

/// `<layer>-<action>-<5 random>`, as Kubernetes makes names of a `generateName`.
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
    // A name has at most 253 bytes.
    while layer.len() + action.len() + suffix.len() + 2 > 253 {
        layer = layer.strip_suffix(|_: char| true).unwrap_or_default();
    }
    let run = format!("{layer}-{action}-{suffix}");
    run.parse().map_err(|error| JobError::Usage(format!("the run's name: {error}")))
}
