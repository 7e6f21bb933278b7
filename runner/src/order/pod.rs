//! A job of a pod that Burrito's controllers started: its environment, and three objects in the cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::client::{Settings, Token};
use datastore_api::{BundleKey, Client, Name, RunKey};
use secrecy::ExposeSecret as _;

use crate::basis::place::{self, PlanPlace};
use crate::cli::{
    BIN_DIR, DatastoreArgs, Environment, InputArgs, PlanName, Pod, StartArgs, ToolArgs, bool_of_go,
};
use crate::order::datastore::{FLAG, parse_url, settings};
use crate::order::hooks::Hooks;
use crate::order::identity::workspace;
use crate::order::inputs::Inputs;
use crate::order::job::{Action, Apply, Job, JobError, Named, Rejected, inside, keys};
use crate::order::layer::{
    Cluster, EffectiveSpec, LayerHandle, LayerSpec, Order, Repository, ToolSpec,
};
use crate::run::artifacts::AttemptRef;
use crate::source::checkout::Source;
use crate::source::checkout::source_id::SourceId;
use crate::tool::argv::PlanOptions;
use crate::version::ToolName;

/// The default address of Burrito's datastore.
const DATASTORE: &str = "burrito-datastore.burrito-system.svc.cluster.local";
/// Files that the controllers mount: the token of audience `burrito`, and the datastore's certificate.
const TOKEN: &str = "/var/run/secrets/token/burrito";
const CA: &str = "/etc/ssl/certs/burrito-datastore-ca.crt";
/// Kubernetes kills a pod 30 s after SIGTERM. The rest of that time is for the uploads.
pub(super) const GRACE: Duration = Duration::from_secs(20);

impl Job {
    /// The job that the controllers have started this pod for.
    pub(crate) async fn start(
        args: StartArgs,
        environment: &Environment,
    ) -> Result<Self, Rejected> {
        let pod = &environment.pod;
        let layer = required_name(pod.layer.as_deref(), "BURRITO_RUNNER_LAYER_NAME")?;
        let namespace = required_name(pod.namespace.as_deref(), "BURRITO_RUNNER_LAYER_NAMESPACE")?;
        let run = required_name(pod.run.as_deref(), "BURRITO_RUNNER_RUN")?;
        let action = required(pod.action.as_deref(), "BURRITO_RUNNER_ACTION")?;
        if !matches!(action, "plan" | "apply") {
            return Err(JobError::Config(format!(
                "unrecognized runner action `{action}` in BURRITO_RUNNER_ACTION: plan or apply"
            ))
            .into());
        }
        environment.redaction.add_files(args.datastore.token_file.clone());
        check_variables(&StartArgs::variables_without_effect())?;
        let datastore = datastore(pod, &args.datastore, args.tools.ca_file.as_deref())?;
        let cluster = Cluster::connect().await.map_err(JobError::from)?;
        let order = cluster.order(&namespace, &layer, &run, pod.name.as_deref());
        let order = order.await.map_err(JobError::from)?;
        let attempt = AttemptRef {
            datastore,
            run: RunKey { namespace, layer, run },
            attempt: order.attempt.lowest(),
        };
        // From here on the reason of a failure can be stored.
        let repository = cluster.repository(&order.layer, &attempt.run.namespace).await;
        let job = match repository {
            Ok(repository) => {
                let attempt = attempt.clone();
                Self::of_order(args, environment, cluster, order, &repository, attempt, action)
            }
            Err(error) => Err(error.into()),
        };
        job.map_err(|error| Rejected { error, attempt: Some(Box::new(attempt)) })
    }

    fn of_order(
        args: StartArgs,
        environment: &Environment,
        cluster: Cluster,
        order: Order,
        repository: &Repository,
        attempt: AttemptRef,
        action: &str,
    ) -> Result<Self, JobError> {
        let AttemptRef { datastore, run, attempt: lowest_attempt } = attempt;
        let effective = EffectiveSpec::new(&order.layer.spec, &repository.spec);
        let requested = RequestedTools::new(&order.layer.spec, &effective)?;
        let action = requested_action(action, &order, &effective)?;
        let (signing_key, verify_key) = keys(&args.binding, &action)?;
        let source = Source::Bundle(bundle(&order, &run.namespace)?);
        let repository = repository.spec.url().and_then(place::repository);
        let (path, (inputs, options)) = (working_path(&order)?, inputs(&order, &run, &action)?);
        Ok(Self {
            judging: None,
            inputs,
            action,
            attempt: order.attempt.recorded(),
            lowest_attempt,
            has_earlier_attempts: false,
            hooks: Hooks::find(&args.hooks, &source).map_err(JobError::Config)?,
            source,
            source_id: repository.as_deref().map(SourceId::of_repository),
            place: plan_place(repository, &path, environment),
            named: Named::default(),
            apply_command: None,
            path,
            work_dir: Some(args.repository_path.join("content")),
            submodules: !args.no_submodules,
            tool: Some(requested.tool),
            request: requested.version,
            terragrunt: requested.terragrunt,
            datastore: Some(datastore),
            state: None,
            new_state: false,
            tools: tools(args.tools),
            options,
            again: false,
            order_key: None,
            skip_empty_plans: args.skip_empty_plans,
            snapshot: args.binding.snapshot,
            signing_key,
            verify_key,
            allow_mocks: args.allow_mocks,
            strict: args.strict,
            preflight: args.preflight.preflight,
            break_stale_lock: None,
            plan_file: None,
            grace: GRACE,
            retry: args.retry,
            limits: args.limits,
            state_files: None,
            allow_large_state: args.allow_large_state,
            ignored_paths: Vec::new(),
            burrito: true,
            pod: true,
            provider_mirror: environment.pod.hermitcrab.clone(),
            layer: Some(LayerHandle::Cluster {
                cluster,
                namespace: run.namespace.clone(),
                name: run.layer.clone(),
                layer: Box::new(order.layer),
            }),
            run,
        })
    }
}

/// Where tools are installed in a pod.
fn tools(mut tools: ToolArgs) -> ToolArgs {
    tools.bin_dir.get_or_insert_with(|| PathBuf::from(BIN_DIR));
    tools
}

/// The outputs of other layers that the layer takes.
fn inputs(order: &Order, run: &RunKey, action: &Action) -> Result<(Inputs, PlanOptions), JobError> {
    let mut inputs = Inputs::new(&InputArgs::default(), Some(&order.layer), run)?;
    if !action.takes_inputs() {
        inputs.list.clear();
    }
    let mut options = PlanOptions::default();
    inputs.add_to(&mut options.variables);
    Ok((inputs, options))
}

/// The layer's working directory inside the source.
fn working_path(order: &Order) -> Result<PathBuf, JobError> {
    let path = order.layer.spec.path.as_deref().unwrap_or_default();
    inside(Path::new(path), "the layer's spec.path")
}

/// Warns about variables that have no effect in a pod. Those by which a state would go elsewhere are refused.
fn check_variables(without_effect: &[String]) -> Result<(), JobError> {
    const OF_STATES: [&str; 3] = ["PLANCHA_STATE", "PLANCHA_STATE_IN", "PLANCHA_STATE_OUT"];
    if let Some(name) = without_effect.iter().find(|name| OF_STATES.contains(&name.as_str())) {
        return Err(JobError::Config(format!(
            "{name} has no effect in a pod of Burrito's, so the state would not be where it says: remove {name}, and name \
             the place of the state by a backend in the code"
        )));
    }
    if !without_effect.is_empty() {
        tracing::warn!(
            "without effect in a pod of Burrito's, whose layer and run decide: {}",
            without_effect.join(", ")
        );
    }
    Ok(())
}

/// The value of a variable that the controllers always set.
fn required<'a>(value: Option<&'a str>, variable: &str) -> Result<&'a str, JobError> {
    value.ok_or_else(|| {
        JobError::Config(format!(
            "{variable} is not set: `runner start` is for Burrito's pods, whose controllers set it; elsewhere \
             use `runner plan` or `runner apply`"
        ))
    })
}

fn required_name(value: Option<&str>, variable: &str) -> Result<Name, JobError> {
    let text = required(value, variable)?;
    text.parse().map_err(|error| JobError::Config(format!("{variable}: {error}")))
}

fn requested_action(
    action: &str,
    order: &Order,
    effective: &EffectiveSpec,
) -> Result<Action, JobError> {
    Ok(match action {
        "apply" if effective.apply_without_plan => {
            // The plan is only named for its digest: one that cannot be named is left out.
            Action::Apply(Apply::Unplanned(artifact(order).ok()))
        }
        "apply" => Action::Apply(Apply::Run(artifact(order)?)),
        _ => Action::Plan { detailed_exitcode: false },
    })
}

/// The tools that a layer and its repository request, and the fields that name the versions.
struct RequestedTools {
    tool: ToolName,
    version: Option<(String, &'static str)>,
    terragrunt: Option<(String, &'static str)>,
}

impl RequestedTools {
    fn new(layer: &LayerSpec, effective: &EffectiveSpec) -> Result<Self, JobError> {
        let tool = effective.tool.ok_or_else(|| {
            JobError::Config(
                "Please enable either Terraform or OpenTofu in the layer or its repository"
                    .to_owned(),
            )
        })?;
        let named = |tool: &ToolSpec| tool.version.as_ref().is_some_and(|text| !text.is_empty());
        let field = match tool {
            ToolName::Terraform if named(&layer.terraform) => "the layer's spec.terraform.version",
            ToolName::Terraform => "the repository's spec.terraform.version",
            _ if named(&layer.opentofu) => "the layer's spec.opentofu.version",
            _ => "the repository's spec.opentofu.version",
        };
        let terragrunt_field = if named(&layer.terragrunt) {
            "the layer's spec.terragrunt.version"
        } else {
            "the repository's spec.terragrunt.version"
        };
        Ok(Self {
            tool,
            version: effective.version.clone().map(|version| (version, field)),
            terragrunt: effective.terragrunt.clone().map(|version| (version, terragrunt_field)),
        })
    }
}

/// The plan that the controller named for the apply. An empty attempt is the latest.
fn artifact(order: &Order) -> Result<PlanName, JobError> {
    let artifact = &order.run.spec.artifact;
    let of_run = |field: &'static str| {
        move |error| {
            JobError::Config(format!(
                "the run's spec.artifact.{field}: {error}; it names the plan to apply: the layer must be planned \
                 before"
            ))
        }
    };
    let attempt = match artifact.attempt.as_str() {
        "" => None,
        attempt => Some(attempt.parse().map_err(of_run("attempt"))?),
    };
    Ok(PlanName { run: artifact.run.parse().map_err(of_run("run"))?, attempt })
}

fn bundle(order: &Order, namespace: &Name) -> Result<BundleKey, JobError> {
    let spec = &order.layer.spec;
    let of_layer = |field: &'static str| {
        move |error| JobError::Config(format!("the layer's {field}: {error}"))
    };
    // The repository was read from the cluster, so the layer names it.
    let repository = spec.repository.as_ref();
    let name = repository.and_then(|repository| repository.name.as_deref()).unwrap_or_default();
    let owner = repository.and_then(|repository| repository.namespace.as_deref());
    let revision = &order.run.spec.layer.revision;
    Ok(BundleKey {
        namespace: owner
            .unwrap_or(namespace.as_ref())
            .parse()
            .map_err(of_layer("spec.repository.namespace"))?,
        name: name.parse().map_err(of_layer("spec.repository.name"))?,
        git_ref: spec
            .branch
            .as_deref()
            .unwrap_or_default()
            .parse()
            .map_err(of_layer("spec.branch"))?,
        revision: revision
            .parse()
            .map_err(|error| JobError::Config(format!("the run's spec.layer.revision: {error}")))?,
    })
}

fn datastore(pod: &Pod, args: &DatastoreArgs, ca_file: Option<&Path>) -> Result<Client, JobError> {
    let settings = client_settings(pod, args, ca_file)?;
    Client::new(settings).map_err(|error| JobError::Config(error.to_string()))
}

/// The settings for the datastore that the controllers set.
pub(super) fn client_settings(
    pod: &Pod,
    args: &DatastoreArgs,
    ca_file: Option<&Path>,
) -> Result<Settings, JobError> {
    let is_tls = pod.datastore_tls.as_deref().map_or(Ok(false), |text| {
        bool_of_go(text).ok_or_else(|| {
            JobError::Config(format!(
                "invalid value `{text}` of BURRITO_DATASTORE_TLS: expected true or false"
            ))
        })
    });
    let scheme = if is_tls? { "https" } else { "http" };
    let host = pod.datastore.as_deref().unwrap_or(DATASTORE);
    let url = match &args.datastore {
        Some(url) => url.expose_secret().to_owned(),
        None => format!("{scheme}://{host}"),
    };
    let place = match &args.datastore {
        Some(_) => FLAG,
        None => "BURRITO_DATASTORE_HOSTNAME",
    };
    let url = parse_url(&url, place).map_err(JobError::Config)?;
    let mut settings = settings(url, args);
    settings.token = Token::File(args.token_file.clone().unwrap_or_else(|| TOKEN.into()));
    settings.ca_files.extend(ca_file.map(Path::to_owned));
    // The mounted certificate is trusted, even if SSL_CERT_FILE does not name it.
    settings.ca_files.extend(Path::new(CA).exists().then(|| PathBuf::from(CA)));
    Ok(settings)
}

/// Where the code of the plan is.
fn plan_place(repository: Option<String>, path: &Path, environment: &Environment) -> PlanPlace {
    PlanPlace {
        repository,
        path: Some(path.to_string_lossy().into_owned()),
        workspace: Some(workspace(environment, None)),
        ..PlanPlace::default()
    }
}
