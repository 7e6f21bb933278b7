//! The plan to apply: it is chosen, downloaded to a private file, and verified with the recorded digest. Only then the
//! tool gets it.

mod error;

use std::borrow::Cow;
use std::path::Path;

use datastore_api::client::Upload;
use datastore_api::{ClientError, RunKey, Sha256};
use fs_err as fs;

use crate::basis::Basis;
use crate::basis::binding::{Binding, BindingError, RENDERINGS, Workspace};
use crate::basis::place::PlanPlace;
use crate::basis::plan_file;
use crate::cli::{Environment, PlanName, SnapshotMode};
use crate::order::job::{Apply, Job};
use crate::order::layer::LayerHandle;
use crate::process::private_file;
use crate::report::{PlanRecord, PlanReport};
use crate::run::artifacts::{Artifacts, Defect, NewestPlan, StoredPlan, Wanted};
pub(crate) use crate::run::stored_plan::error::StoredPlanError;
use crate::source::checkout::Source;
use crate::source::git::OrderedRevision;
use crate::source::modules::has_configuration;

/// Chooses the plan to apply, and compares everything that is known before the checkout. `None`: the tool plans and
/// applies in one step. Renderings are compared by way of the private file `rendering`.
pub(crate) async fn choose(
    job: &Job,
    from: &Apply,
    artifacts: Option<&Artifacts>,
    environment: &Environment,
    rendering: &Path,
) -> Result<Option<Choice>, StoredPlanError> {
    let here = place(job, from);
    let ordered = OrderedRevision::of(&job.source, environment).filter(|_| !job.pod);
    let ordered = ordered.as_ref();
    let mut stored = match (from, artifacts) {
        (Apply::Unplanned(_), _) if job.verify_key.is_some() => {
            return Err(BindingError::Unplanned.into());
        }
        (Apply::Unplanned(_), _) => return Ok(None),
        (Apply::File(_), _) => None,
        (Apply::Run(PlanName { run, attempt }), Some(artifacts)) => {
            let plan = artifacts.plan_of(run, *attempt).await?;
            let plan = plan.ok_or_else(|| missing(job, from))?;
            if plan.defect == Some(Defect::NoPlan) {
                return Err(missing_plan(job, Some(plan.to_string())));
            }
            Some(plan)
        }
        (Apply::Newest, Some(artifacts)) => Some(newest(job, &here, ordered, artifacts).await?),
        // A job without a datastore never names a stored plan.
        (Apply::Run(_) | Apply::Newest, None) => return Err(missing(job, from)),
    };
    if let Some(plan) = &stored
        && plan.record.as_ref().is_some_and(|record| !record.is_finished())
    {
        return Err(StoredPlanError::Unfinished(plan.to_string()));
    }
    let binding = match (&mut stored, artifacts) {
        (Some(plan), Some(artifacts)) => binding(job, plan, artifacts, rendering).await?,
        _ if job.verify_key.is_some() => {
            let plan = "in a file".to_owned();
            return Err(BindingError::Unsigned { plan }.into());
        }
        _ => None,
    };
    let (name, record) = record_of(from, stored.as_ref())?;
    check_kind(job, from, &name, record.as_ref())?;
    let basis = Basis::new(job, from, &here, name, record)?;
    // An approved plan is known by its digest.
    if let Some(ordered) = ordered.filter(|_| job.action.approved().is_none()) {
        basis.check_ordered_revision(ordered).await?;
    }
    Ok(Some(Choice { stored, basis, binding }))
}

/// The name of the plan to apply, and what is recorded of it.
fn record_of(
    from: &Apply,
    stored: Option<&StoredPlan>,
) -> Result<(String, Option<PlanRecord>), StoredPlanError> {
    Ok(match (from, stored) {
        (Apply::File(path), _) => {
            let record = plan_file::record(path).map_err(|cause| StoredPlanError::Record {
                path: plan_file::record_path(path),
                cause,
            })?;
            (path.display().to_string(), record)
        }
        (_, Some(plan)) => (plan.to_string(), plan.record.clone()),
        (_, None) => (String::new(), None),
    })
}

/// Refuses a plan of `runner destroy` for an apply, one with `-destroy` that is not named, and every other plan for a destroy.
fn check_kind(
    job: &Job,
    from: &Apply,
    plan: &str,
    record: Option<&PlanRecord>,
) -> Result<(), StoredPlanError> {
    let plan = plan.to_owned();
    // Burrito's controllers, or the first part of this command, have named it as well.
    let is_named = matches!(from, Apply::File(_)) || job.named.plan || job.pod;
    let is_named = is_named || job.action.made().is_some();
    match (job.action.destroys(), record) {
        (false, Some(record)) if record.destroys() => {
            let sha256 = record.plan.as_ref().map(|plan| plan.sha256);
            let command = job.apply_command.as_ref().zip(sha256);
            let approve = command.map(|(command, sha256)| command.clone().approve(sha256));
            Err(StoredPlanError::Destroys { plan, approve })
        }
        (false, Some(record)) if record.destroys_by_argument() && !is_named => {
            Err(StoredPlanError::DestroysByArgument(plan))
        }
        (true, record) if !record.is_some_and(PlanRecord::destroys) => {
            Err(StoredPlanError::NotDestroy(plan))
        }
        _ => Ok(()),
    }
}

/// The newest plan of this place.
async fn newest(
    job: &Job,
    here: &PlanPlace,
    revision: Option<&OrderedRevision<'_>>,
    artifacts: &Artifacts,
) -> Result<StoredPlan, StoredPlanError> {
    let source = job.source.directory();
    let key = job.verify_key.as_ref();
    let approved = job.action.approved();
    let wanted = Wanted { place: here, revision, source: source.as_deref(), key, approved };
    match artifacts.newest_plan(wanted).await? {
        NewestPlan::Found(plan) => Ok(*plan),
        NewestPlan::Untrusted(error) => Err(error.into()),
        NewestPlan::DestroysByArgument(plan) => Err(StoredPlanError::DestroysByArgument(plan)),
        NewestPlan::Uncertain { plan, later } => Err(StoredPlanError::Uncertain { plan, later }),
        NewestPlan::Missing => Err(match approved {
            Some(sha256) => StoredPlanError::NotStored { sha256, layer: layer(job) },
            None => missing_plan(job, None),
        }),
        NewestPlan::Defective { plan, defect, older } => {
            Err(StoredPlanError::Defective { plan, defect, older })
        }
        NewestPlan::Elsewhere { plan, place } => {
            let ours = match revision {
                Some(revision) => format!("{here}, revision {}", revision.name()),
                None => here.to_string(),
            };
            let layer = layer(job);
            Err(StoredPlanError::NoneHere { layer, plan, theirs: place, ours })
        }
    }
}

/// The place that the plan must be of. Where the apply works in the plan's snapshot, a directory outside of git says nothing
/// about its path: only a path that the job names must be that of the plan.
fn place<'a>(job: &'a Job, from: &Apply) -> Cow<'a, PlanPlace> {
    let works_in_snapshot = match (&job.source, job.snapshot) {
        (_, SnapshotMode::Always) => true,
        (Source::Directory(dir), SnapshotMode::Auto) => {
            job.work_dir.is_none() && is_without_code(job, dir)
        }
        _ => false,
    };
    if job.place.path.is_some() || !works_in_snapshot || matches!(from, Apply::File(_)) {
        return Cow::Borrowed(&job.place);
    }
    let path = Some(&job.path).filter(|path| !path.as_os_str().is_empty());
    let path = path.map(|path| path.to_string_lossy().into_owned());
    Cow::Owned(PlanPlace { path: path.clone(), path_in_source: path, ..job.place.clone() })
}

/// The binding of a plan, verified. From then on it is the plan's record: `run.json` may be replaced.
async fn binding(
    job: &Job,
    plan: &mut StoredPlan,
    artifacts: &Artifacts,
    rendering: &Path,
) -> Result<Option<Binding>, StoredPlanError> {
    let name = plan.to_string();
    let Some(json) = artifacts.binding_of(plan).await? else {
        if plan.record.as_ref().is_some_and(|record| record.bound) {
            return Err(BindingError::Missing { plan: name }.into());
        }
        if job.verify_key.is_some() {
            return Err(BindingError::Unsigned { plan: name }.into());
        }
        return Ok(None);
    };
    let run = RunKey { run: plan.run.clone(), ..job.run.clone() };
    let binding = Binding::parse(&json, &name, (&run, plan.attempt), job.verify_key.as_ref())?;
    if job.verify_key.is_some() {
        check_renderings(plan, &binding, artifacts, rendering).await?;
    }
    plan.record = Some(binding.record(plan.record.take()));
    Ok(Some(binding))
}

/// Refuses a plan whose renderings or counts are not those that were made: somebody may have reviewed them.
async fn check_renderings(
    plan: &StoredPlan,
    binding: &Binding,
    artifacts: &Artifacts,
    to: &Path,
) -> Result<(), StoredPlanError> {
    if !binding.has_renderings() {
        return Ok(());
    }
    let name = plan.to_string();
    let recorded = plan.record.as_ref().and_then(|record| record.plan.as_ref());
    binding.check_counts(&name, recorded.and_then(|recorded| recorded.counts))?;
    for format in RENDERINGS {
        let sha256 = artifacts.fetch_rendering(plan, format, to).await?;
        binding.check_rendering(&name, format, sha256)?;
        if sha256.is_some() {
            fs::remove_file(to)?;
        }
    }
    Ok(())
}

/// The plan to apply.
#[derive(Debug)]
pub(crate) struct Choice {
    /// None for a plan in a file.
    pub(crate) stored: Option<StoredPlan>,
    pub(crate) basis: Basis,
    /// None for a plan in a file and for one of an earlier release.
    pub(crate) binding: Option<Binding>,
}

impl Choice {
    /// Whether the plan is of the source that the job names: of the same repository, which is compared with the rest of
    /// the place, or there is no source at all. Other sources are compared by their contents.
    fn is_of_source(&self, job: &Job) -> bool {
        let place = self.binding.as_ref().and_then(|binding| binding.place.as_ref());
        match &job.source {
            Source::Git(_) => {
                job.place.repository.is_some()
                    && place.is_some_and(|place| place.repository.is_some())
            }
            Source::Directory(dir) => is_without_code(job, dir),
            _ => false,
        }
    }

    /// The plan's name, for messages.
    pub(crate) fn name(&self) -> String {
        self.stored.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// The plan's report and its `plan-sum`, if the plan changes nothing and has kept that of the layer's last apply. Such a
    /// plan never reaches the tool, so its bytes are not compared. With another `plan-sum` or `plan-run` by now, or where
    /// the sum is not known, the plan is compared as any other: all such plans have kept the same sum.
    pub(crate) fn kept_sum(&self, job: &Job) -> Option<(PlanReport, String)> {
        let stored = self.stored.as_ref()?;
        let record = stored.record.as_ref()?;
        let sum = record.kept_sum.as_ref()?;
        let plan = PlanReport {
            run: Some(stored.run.to_string()),
            attempt: stored.attempt,
            ..record.plan.clone()?
        };
        let annotation = |name| job.layer.as_ref().and_then(|layer| layer.layer().annotation(name));
        let names_this = |name: &str| {
            name.parse::<PlanName>().is_ok_and(|PlanName { run, attempt }| {
                run == stored.run && (attempt.is_none() || attempt == stored.attempt)
            })
        };
        // Burrito's controllers have named the plan.
        let is_newest = (job.pod || annotation("plan-run").is_none_or(names_this))
            && annotation("plan-sum").is_some_and(|annotated| annotated == sum);
        is_newest.then(|| (plan, sum.clone()))
    }

    /// Where the code of the plan comes from, as its binding has it.
    pub(crate) fn source(&self) -> Option<&str> {
        self.binding.as_ref()?.source()
    }

    /// The snapshot in which the plan is applied. `None`: the source is used.
    pub(crate) fn snapshot(&self, job: &Job) -> Result<Option<&Workspace>, StoredPlanError> {
        let snapshot = self.binding.as_ref().and_then(|binding| binding.workspace.as_ref());
        let is_used = match job.snapshot {
            SnapshotMode::Never => false,
            SnapshotMode::Always => true,
            // A pod's work directory is always named; it ends with the pod.
            SnapshotMode::Auto => job.pod || job.work_dir.is_none() && self.is_of_source(job),
        };
        match snapshot {
            None if job.snapshot == SnapshotMode::Always => {
                if job.pod {
                    tracing::warn!(
                        "the plan {} has no snapshot: working on the bundle",
                        self.name()
                    );
                    return Ok(None);
                }
                Err(StoredPlanError::NoSnapshot(self.name()))
            }
            snapshot => Ok(snapshot.filter(|_| is_used)),
        }
    }
}

/// Whether the job names no source, and the directory `dir` has no code for it.
fn is_without_code(job: &Job, dir: &Path) -> bool {
    !job.named.source && !has_configuration(&dir.join(&job.path))
}

/// Writes the plan to the private file `to` and verifies its digest. `None`: there is none.
pub(crate) async fn fetch(
    job: &Job,
    from: &Apply,
    choice: Option<&Choice>,
    artifacts: Option<&Artifacts>,
    to: &Path,
) -> Result<Option<PlanReport>, StoredPlanError> {
    match (from, choice.and_then(|choice| choice.stored.as_ref()), artifacts) {
        (Apply::File(path), _, _) => {
            let record = choice.and_then(|choice| choice.basis.recorded_plan());
            from_file(job, path, record, to).await.map(Some)
        }
        (_, Some(plan), Some(artifacts)) => {
            let fetched = from_datastore(job, plan, artifacts, to).await?;
            if let Some(binding) = choice.and_then(|choice| choice.binding.as_ref()) {
                binding.check_plan(&plan.to_string(), fetched.sha256)?;
            }
            Ok(Some(fetched))
        }
        _ => Ok(None),
    }
}

/// The value for `apply-sum` of the plan that Burrito's controllers named, for an apply that makes its own plan. They compare
/// it with the layer's `plan-sum`, and start another apply if it differs. `None`: there is no such plan.
pub(crate) async fn ordered_plan_sum(
    from: &Apply,
    artifacts: Option<&Artifacts>,
    to: &Path,
) -> Result<Option<String>, StoredPlanError> {
    let (Apply::Unplanned(Some(name)) | Apply::Run(name), Some(artifacts)) = (from, artifacts)
    else {
        return Ok(None);
    };
    let plan = artifacts.plan_of(&name.run, name.attempt).await?;
    let Some(plan) = plan else { return Ok(None) };
    if let Some(kept) = plan.record.as_ref().and_then(|record| record.kept_sum.clone()) {
        return Ok(Some(kept));
    }
    let sum = artifacts.fetch_plan(&plan, to).await?;
    if sum.is_some() {
        fs::remove_file(to)?;
    }
    Ok(sum.map(Sha256::to_base64))
}

async fn from_file(
    job: &Job,
    path: &Path,
    record: Option<&PlanReport>,
    to: &Path,
) -> Result<PlanReport, StoredPlanError> {
    let mut source = fs::File::open(path).map_err(StoredPlanError::Unreadable)?;
    std::io::copy(&mut source, &mut private_file(to)?)?;
    let sha256 = Upload::file(to).await?.sha256();
    let name = path.display().to_string();
    matches_named(job, &name, sha256)?;
    if let Some(record) = record {
        let place = plan_file::record_path(path).display().to_string();
        check(&name, &place, &record.sha256.to_string(), &sha256.to_string())?;
    }
    let counts = record.and_then(|record| record.counts);
    Ok(PlanReport { sha256, run: None, attempt: None, counts })
}

async fn from_datastore(
    job: &Job,
    plan: &StoredPlan,
    artifacts: &Artifacts,
    to: &Path,
) -> Result<PlanReport, StoredPlanError> {
    let name = plan.to_string();
    let own = plan.record.as_ref().and_then(|record| record.plan.as_ref());
    let sha256 = artifacts.fetch_plan(plan, to).await.map_err(|cause| match cause {
        cause @ (ClientError::Damaged { .. } | ClientError::Digest { .. }) => {
            let expected = own.map(|own| own.sha256);
            StoredPlanError::Damaged { plan: name.clone(), expected, cause: Box::new(cause) }
        }
        cause => cause.into(),
    })?;
    let sha256 = sha256.ok_or_else(|| missing_plan(job, Some(name.clone())))?;
    if !matches_named(job, &name, sha256)? {
        let expected = own.map(|plan| plan.sha256.to_string());
        let expected = expected.ok_or_else(|| StoredPlanError::Unchecked(name.clone()))?;
        let is_bound = plan.record.as_ref().is_some_and(|record| record.bound);
        let place = if is_bound { "its binding.json" } else { "its run.json" };
        check(&name, place, &expected, &sha256.to_string())?;
    }
    let run = Some(plan.run.to_string());
    Ok(PlanReport { sha256, run, attempt: plan.attempt, counts: own.and_then(|plan| plan.counts) })
}

/// Whether somebody has named the digest, which then must be that of this plan: the approval of a destroy, the part of the same
/// command that has made the plan, or the layer's `plan-sum`.
fn matches_named(job: &Job, plan: &str, sha256: Sha256) -> Result<bool, StoredPlanError> {
    if let Some(approved) = job.action.approved() {
        check(plan, "the approval", &approved.to_string(), &sha256.to_string())?;
        // Its annotations are about plans of `runner plan`.
        return Ok(true);
    }
    if let Some(made) = job.action.made() {
        // The layer as it was read has the annotations of an earlier plan.
        check(plan, "the plan of this command", &made.to_string(), &sha256.to_string())?;
        return Ok(true);
    }
    let layer = job.layer.as_ref().map(LayerHandle::layer);
    let Some(expected) = layer.and_then(|layer| layer.annotation("plan-sum")) else {
        return Ok(false);
    };
    check(plan, "the annotation plan-sum", expected, &sha256.to_base64())?;
    Ok(true)
}

fn check(plan: &str, place: &str, expected: &str, actual: &str) -> Result<(), StoredPlanError> {
    if expected == actual {
        return Ok(());
    }
    Err(StoredPlanError::DigestMismatch {
        plan: plan.to_owned(),
        place: place.to_owned(),
        expected: expected.to_owned(),
        actual: actual.to_owned(),
    })
}

fn missing(job: &Job, from: &Apply) -> StoredPlanError {
    let plan = match from {
        Apply::Run(plan) => Some(plan.to_string()),
        _ => None,
    };
    missing_plan(job, plan)
}

fn missing_plan(job: &Job, plan: Option<String>) -> StoredPlanError {
    StoredPlanError::Missing { plan, layer: layer(job), pod: job.pod }
}

fn layer(job: &Job) -> String {
    let RunKey { namespace, layer, .. } = &job.run;
    format!("{namespace}/{layer}")
}
