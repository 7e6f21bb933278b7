//! One command for several layers: each is a job of its own, in the order of what they need.
//!
//! [`targets`] finds the layers, [`order`] decides which may start, and [`table`] makes one exit code and a table of their
//! ends. What a run of one layer is, is not known here.

pub(crate) mod order;
mod table;
mod targets;

use std::io;
use std::path::Path;
use std::sync::Arc;

use datastore_api::chain;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;

use crate::cli::{
    CheckArgs, ConvergeArgs, DestroyArgs, Environment, LayersArgs, MigrateArgs, MonitoringArgs,
    NamedFile, PeriodicArgs, RunArgs,
};
use crate::execute::layers::order::{Need, Order};
use crate::execute::layers::table::Row;
use crate::execute::layers::targets::Target;
use crate::execute::observe::Observed;
use crate::execute::{Ended, Outputs, Shared, execute_job, start_output};
use crate::failure::{Failure, last_line};
use crate::order::job::{Job, JobError, Rejected};
use crate::order::pipes;
use crate::process::Signals;
use crate::process::label::Labelled;
use crate::run::check::status::store_blocked as store_blocked_status;
use crate::run::error::RunError;

/// A command that works on several layers.
#[derive(Clone, Debug)]
pub(crate) enum Each {
    Check(Box<CheckArgs>),
    Converge(Box<ConvergeArgs>),
    Destroy(Box<DestroyArgs>),
    Migrate(Box<MigrateArgs>),
}

impl Each {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Check(_) => "check",
            Self::Converge(_) => "converge",
            Self::Destroy(_) => "destroy",
            Self::Migrate(_) => "migrate",
        }
    }

    pub(crate) fn run(&mut self) -> &mut RunArgs {
        match self {
            Self::Check(args) => &mut args.run,
            Self::Converge(args) => &mut args.run,
            Self::Destroy(args) => &mut args.run,
            Self::Migrate(args) => &mut args.run,
        }
    }

    /// When it is repeated. A destroy and a migration are not.
    pub(crate) fn periodic(&self) -> Option<(PeriodicArgs, &MonitoringArgs)> {
        match self {
            Self::Check(args) => Some((args.periodic, &args.monitoring)),
            Self::Converge(args) => Some((args.periodic, &args.monitoring)),
            Self::Destroy(_) | Self::Migrate(_) => None,
        }
    }

    /// How its runs are observed. `layer`: that of the run, if it is known.
    pub(crate) fn observed(&self, shared: Shared<'_>, layer: Option<&Target>) -> Observed {
        let error_after = match self {
            Self::Check(args) => args.judging.error_after,
            Self::Converge(args) => args.judging.error_after,
            Self::Destroy(_) | Self::Migrate(_) => 1,
        };
        let board = Arc::clone(shared.board);
        Observed { board, layer: layer.map(Target::layer), error_after }
    }

    fn layers(&self) -> &LayersArgs {
        match self {
            Self::Check(args) => &args.layers,
            Self::Converge(args) => &args.layers,
            Self::Destroy(args) => &args.layers,
            Self::Migrate(args) => &args.layers,
        }
    }

    /// Whether a layer comes before those that it needs: what uses an object is destroyed before it, and what reads a state is
    /// migrated before it.
    fn is_reversed(&self) -> bool {
        matches!(self, Self::Destroy(_) | Self::Migrate(_))
    }

    /// An argument that belongs to one layer or run, and was given for several.
    fn of_one_layer(&mut self) -> Option<&'static str> {
        let digest = match self {
            Self::Converge(args) => {
                args.approve_destructive.is_some().then_some("--approve-destructive")
            }
            Self::Destroy(args) => args.approve.is_some().then_some("--approve"),
            Self::Check(_) | Self::Migrate(_) => None,
        };
        let run = self.run();
        let given = [
            (run.run.is_some(), "--run"),
            (run.attempt.is_some(), "--attempt"),
            (run.path.is_some(), "--path"),
            (run.work_dir.is_some(), "--work-dir"),
            (run.identity.name.is_some(), "--name"),
            (run.identity.layer.is_some(), "--layer"),
            (run.plan_file.is_some(), "--plan-file"),
            (run.state_files.state_in.is_some(), "--state-in"),
            (run.state_files.state_out.is_some(), "--state-out"),
            (run.result.is_some(), "--result"),
            (!run.inputs.var_from.is_empty(), "--var-from"),
            (!run.inputs.file_from.is_empty(), "--file-from"),
            (!run.inputs.require_output.is_empty(), "--require-output"),
        ];
        digest.or_else(|| given.into_iter().find_map(|(is_given, name)| is_given.then_some(name)))
    }

    /// The files that the runner itself reads.
    pub(crate) fn files(&mut self) -> Vec<NamedFile<'_>> {
        match self {
            Self::Check(args) => args.run.files(false),
            Self::Converge(args) => args.run.files(false),
            Self::Destroy(args) => args.run.files(args.approve.is_some()),
            Self::Migrate(args) => args.files(),
        }
    }

    /// The job of one root module.
    pub(crate) async fn job(
        self,
        burrito: bool,
        environment: &Environment,
    ) -> Result<Job, JobError> {
        match self {
            Self::Check(args) => Job::check(*args, environment).await,
            Self::Converge(args) => Job::converge(*args, environment).await,
            Self::Destroy(args) => Job::destroy(*args, burrito, environment).await,
            Self::Migrate(args) => Job::migrate(*args, burrito, environment).await,
        }
    }

    /// The command for one root module, with the needs that it names.
    pub(crate) fn with_needs(mut self) -> Self {
        let needs = self.layers().needs.clone();
        self.run().inputs.needs = needs;
        self
    }

    /// The command for one of these layers.
    fn of(&self, target: &Target, all: &[Target]) -> Self {
        let mut each = self.clone().with_needs();
        let run = each.run();
        run.inputs.in_command = all.iter().map(Target::id).collect();
        run.targets = Vec::new();
        run.identity.layer = Some(target.file.clone());
        run.identity.namespace = Some(target.namespace.clone());
        run.identity.name = Some(target.name.clone());
        each
    }
}

/// Runs the command for each of its layers. `None`: it names a root module, not layers, unless it has named layers before
/// (`named_layers`): then all of them were removed.
pub(crate) async fn run(mut each: Each, shared: Shared<'_>, named_layers: bool) -> Option<u8> {
    let refused = |error: &JobError| {
        shared.board.count_error();
        last_line::log(&Failure::from(error))
    };
    let run = each.run();
    let (namespace, has_source) = (run.identity.namespace.as_ref(), run.source.is_some());
    let targets = match targets::find(&run.targets, namespace, has_source) {
        Ok(None) if named_layers => {
            if let Some(missing) = run.targets.iter().find(|target| !Path::new(target).exists()) {
                let reason =
                    format!("{missing}, where the manifests of the layers were, does not exist");
                return Some(refused(&JobError::Config(reason)));
            }
            tracing::warn!("there are no manifests of layers any more: nothing is done");
            Vec::new()
        }
        Ok(targets) => targets?,
        Err(error) => return Some(refused(&error)),
    };
    if let Some(flag) = each.of_one_layer() {
        let reason = format!(
            "{flag} belongs to one layer: leave it out, or name one layer with --layer; what a manifest can say is an \
                     annotation of it"
        );
        return Some(refused(&JobError::Usage(reason)));
    }
    // A pipe can be read only once.
    if let Err(error) = pipes::read(each.files()).await {
        return Some(refused(&error));
    }
    let may_be_elsewhere = each.is_reversed() || each.run().datastore.datastore.is_some();
    let needs = &each.layers().needs;
    let order = match Order::new(&targets, needs, each.is_reversed(), may_be_elsewhere) {
        Ok(order) => order,
        Err(error) => return Some(refused(&error)),
    };
    Some(run_all(&each, &targets, order, shared).await)
}

/// Runs all layers, those that are independent at the same time. After a signal no other one starts.
async fn run_all(each: &Each, targets: &[Target], mut order: Order, shared: Shared<'_>) -> u8 {
    let mut args = each.clone();
    let limit = args.run().limits.timeout;
    let signals = match listen(shared) {
        Ok(signals) => signals,
        Err(error) => return last_line::log(&Failure::from(&RunError::Io(error))),
    };
    let is_target = |layer: &_| targets.iter().any(|target| target.layer() == *layer);
    shared.board.keep_only(is_target);
    let stops_at_failure = matches!(each, Each::Migrate(_));
    let parallel = if stops_at_failure { 1 } else { usize::from(each.layers().parallel) };
    let mut rows = targets.iter().map(|target| Row::new(&target.id())).collect::<Vec<_>>();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < parallel && signals.stopped().is_none() {
            match order.next() {
                Some((index, Need::Met)) => {
                    let target = &targets[index];
                    let (each, signals) = (each.of(target, targets), signals.child(limit));
                    let run = Box::pin(run_layer(each, target, shared, signals));
                    let label = target.id();
                    running.push(Labelled::new(&label, async move { (index, run.await) }));
                }
                Some((index, Need::Failed(by))) => {
                    tracing::warn!("{} is blocked by {}", targets[index].id(), targets[by].id());
                    rows[index] = rows[index].blocked_by(&rows[by]);
                    shared.board.block(targets[index].layer(), each.name(), &targets[by].id());
                }
                None => break,
            }
        }
        let Some((index, ended)) = running.next().await else { break };
        let has_failed = !rows[index].end(&ended);
        order.end(index, has_failed);
        if has_failed && stops_at_failure {
            order.stop(index);
        }
    }
    let blocked =
        rows.iter().zip(targets).filter_map(|(row, target)| Some((row.blocker()?, target)));
    let blocked = blocked.map(|(by, target)| store_blocked(each.of(target, targets), by, shared));
    let stop = signals.or(join_all(blocked)).await.err();
    for line in table::lines(each.name(), &rows) {
        tracing::info!("{line}");
    }
    table::exit_code(&rows, stop)
}

/// The signals that stop the layers.
fn listen(shared: Shared<'_>) -> io::Result<Signals> {
    match shared.signals {
        Some(signals) => Ok(signals.clone()),
        None => start_output(shared.environment).and_then(|()| Signals::listen(None)),
    }
}

/// Stores that a layer was not started, where its status is kept. That changes nothing about the result.
async fn store_blocked(each: Each, by: &str, shared: Shared<'_>) {
    let (action, environment) = (each.name(), shared.environment);
    if each.periodic().is_none() {
        return;
    }
    // What is wrong with the job is said once the layer may start.
    let Ok(job) = each.job(false, environment).await else { return };
    if let Err(error) = store_blocked_status(&job, action, by, &environment.redaction).await {
        tracing::warn!("the status of {} is not stored: {}", job.run.layer, chain(&error));
        shared.board.count_error();
    }
}

/// Runs one layer.
async fn run_layer(mut each: Each, target: &Target, shared: Shared<'_>, signals: Signals) -> Ended {
    let Shared { environment, board, .. } = shared;
    let (name, observed) = (each.name(), each.observed(shared, Some(target)));
    let outputs = Outputs::of(each.run(), environment).observed(observed);
    let job = async { Ok::<_, Rejected>(each.job(false, environment).await?) };
    let run = execute_job(name, job, environment, outputs, &signals);
    board.watch(&target.id(), Box::pin(run)).await
}
