//! The newest plan of a place, in the order in which the datastore got the runs.

use std::path::Path;

use datastore_api::key::AttemptFiles;
use datastore_api::{ClientError, File, Name, PlanFormat, RunKey, Sha256};
use futures::future::try_join_all;

use crate::basis::binding::{Binding, BindingError, VerifyKey};
use crate::basis::place::PlanPlace;
use crate::report::{PlanRecord, PlanTimes};
use crate::run::artifacts::plans::failed_attempt;
use crate::run::artifacts::{Artifacts, Defect, StoredPlan};
use crate::source::error::CheckoutError;
use crate::source::git::OrderedRevision;

/// The most requests, all at the same time, by which the newest plan is compared with those of the next runs. Each takes two,
/// and a third one with a key.
const COMPARING_REQUESTS: usize = 10;

/// What the plan must be of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) place: &'a PlanPlace,
    /// The revision that it must be of, of a repository elsewhere.
    pub(crate) revision: Option<&'a OrderedRevision<'a>>,
    /// The source directory.
    pub(crate) source: Option<&'a Path>,
    /// The key of its signature.
    pub(crate) key: Option<&'a VerifyKey>,
    /// The digest of a plan of `runner destroy` that was approved. Without it, such plans are skipped.
    pub(crate) approved: Option<Sha256>,
}

impl Wanted<'_> {
    /// The revision of which a plan was made, and the ordered one, if they differ. An approved plan is known by its digest.
    async fn other_revision(
        &self,
        record: &PlanRecord,
    ) -> Result<Option<(String, String)>, SearchError> {
        let ordered = self.revision.filter(|_| self.approved.is_none());
        let (Some(ordered), Some(theirs)) = (ordered, record.named_revision.as_deref()) else {
            return Ok(None);
        };
        let may_be = ordered.may_be(Some(theirs), record.commit()).await.map_err(Box::new)?;
        Ok((!may_be).then(|| (theirs.to_owned(), ordered.name().to_owned())))
    }
}

/// The plans cannot be searched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchError {
    #[error("the datastore")]
    Datastore(#[from] ClientError),
    /// The repository cannot be asked for the ordered revision.
    #[error(transparent)]
    Repository(#[from] Box<CheckoutError>),
}

/// The result of a search for a layer's newest plan.
#[derive(Debug)]
pub(crate) enum NewestPlan {
    Found(Box<StoredPlan>),
    /// The layer has plans of other places only; this is the newest.
    Elsewhere {
        plan: String,
        place: String,
    },
    /// The newest one is not whole.
    Defective {
        plan: String,
        defect: Defect,
        /// The newest one that is.
        older: Option<String>,
    },
    /// With a key: the newest one is not signed, or its files do not agree.
    Untrusted(BindingError),
    /// It was made with the argument `-destroy`: it is applied only where it is named.
    DestroysByArgument(String),
    /// The first one of the list, and another that was started after it had been made.
    Uncertain {
        plan: String,
        later: String,
    },
    Missing,
}

/// What the files of one plan show.
enum Examined {
    Usable(PlanTimes),
    Unfinished,
    /// It destroys everything, and needs its approval.
    Destroys,
    /// Its arguments had `-destroy`.
    DestroysByArgument,
    /// A check or converge has made it: it is applied only where it is named.
    Judged,
    /// Its digest is not the approved one.
    NotApproved,
    Elsewhere {
        place: String,
    },
    /// It was made of another branch or tag.
    OtherRevision {
        theirs: String,
        ours: String,
    },
    Defective(Defect),
    Untrusted(BindingError),
}

impl Artifacts {
    /// The newest finished plan of the layer that was made for this place, or whose place is not recorded. One that is not
    /// whole is never replaced by an older one, nor is one with `-destroy`: nobody wants the one before it. With a key, only what
    /// is signed decides that a plan is skipped.
    pub(crate) async fn newest_plan(&self, wanted: Wanted<'_>) -> Result<NewestPlan, SearchError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let (mut cursor, mut other, mut defective) = (None, None, None);
        loop {
            let page = self.client.runs(namespace, layer, cursor.as_deref()).await?;
            let names = page.runs.iter().filter_map(|run| run.run.parse::<Name>().ok());
            let names = names.collect::<Vec<_>>();
            for (index, run) in names.iter().enumerate() {
                let taken = self.plan_of_run(run, wanted, &mut other).await?;
                let Some((plan, examined)) = taken else { continue };
                let name = plan.to_string();
                match (examined, defective) {
                    (Examined::Defective(defect), first) => {
                        defective = first.or(Some((name, defect)));
                    }
                    (Examined::Usable(times), None) => {
                        return Ok(
                            match self.later_plan(times, &names[index + 1..], wanted).await? {
                                Some(later) => NewestPlan::Uncertain { plan: name, later },
                                None => NewestPlan::Found(Box::new(plan)),
                            },
                        );
                    }
                    (Examined::Usable(_), Some((newest, defect))) => {
                        return Ok(NewestPlan::Defective {
                            plan: newest,
                            defect,
                            older: Some(name),
                        });
                    }
                    (Examined::DestroysByArgument, None) => {
                        return Ok(NewestPlan::DestroysByArgument(name));
                    }
                    (Examined::Untrusted(error), None) => return Ok(NewestPlan::Untrusted(error)),
                    (_, first) => defective = first,
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(match (defective, other) {
            // `datastore gc` may have removed plans, the oldest first.
            (Some((plan, defect)), _) if defect != Defect::NoPlan => {
                NewestPlan::Defective { plan, defect, older: None }
            }
            (None, Some((plan, place))) => NewestPlan::Elsewhere { plan, place },
            _ => NewestPlan::Missing,
        })
    }

    /// A plan of the next runs of the list that was started after the one of these times had been made.
    async fn later_plan(
        &self,
        newest: PlanTimes,
        runs: &[Name],
        wanted: Wanted<'_>,
    ) -> Result<Option<String>, SearchError> {
        // An approved plan is known by its digest.
        if newest.planned.is_none() || wanted.approved.is_some() {
            return Ok(None);
        }
        let compared = COMPARING_REQUESTS / if wanted.key.is_some() { 3 } else { 2 };
        // The repository is asked only about a plan that is later.
        let of_any = Wanted { revision: None, ..wanted };
        let next = runs.iter().take(compared).map(|run| self.latest_plan_of_run(run, of_any));
        let plans = try_join_all(next).await?.into_iter().flatten();
        for (plan, _) in plans.filter(|(_, times)| times.is_after(newest)) {
            if let Examined::Usable(_) = self.examine(&plan, wanted).await? {
                return Ok(Some(plan.to_string()));
            }
        }
        Ok(None)
    }

    /// The plan that a run has stored last, if it may be applied, and when it was made.
    async fn latest_plan_of_run(
        &self,
        run: &Name,
        wanted: Wanted<'_>,
    ) -> Result<Option<(StoredPlan, PlanTimes)>, SearchError> {
        let bin = File::Plan(PlanFormat::Bin);
        let has_plan =
            |files: &&AttemptFiles| files.artifacts.iter().any(|file| file.name == bin.name());
        let attempts = self.client.attempts(&self.sibling(run)).await?.attempts;
        let Some(files) = attempts.iter().rev().find(has_plan) else { return Ok(None) };
        let Some(plan) = self.plan_in(run, files).await? else { return Ok(None) };
        Ok(match self.examine(&plan, wanted).await? {
            Examined::Usable(times) => Some((plan, times)),
            _ => None,
        })
    }

    /// The latest plan of a run that is not skipped. `other`: the first plan of another place, and that place.
    async fn plan_of_run(
        &self,
        run: &Name,
        wanted: Wanted<'_>,
        other: &mut Option<(String, String)>,
    ) -> Result<Option<(StoredPlan, Examined)>, SearchError> {
        let attempts = self.client.attempts(&self.sibling(run)).await?.attempts;
        let mut later = None;
        for files in attempts.iter().rev() {
            let Some(plan) = self.plan_in(run, files).await? else {
                later = later.or(failed_attempt(files));
                continue;
            };
            match self.examine(&plan, wanted).await? {
                Examined::Unfinished => {
                    tracing::info!("skipping {plan}: its run did not finish");
                    later = later.or(plan.attempt);
                }
                Examined::Destroys => tracing::warn!(
                    "skipping {plan}: it destroys everything; `runner destroy --approve` applies it"
                ),
                Examined::Judged | Examined::NotApproved => {}
                Examined::Elsewhere { place } => {
                    tracing::info!("skipping {plan}: it was made for another place ({place})");
                    other.get_or_insert_with(|| (plan.to_string(), place));
                }
                Examined::OtherRevision { theirs, ours } => {
                    tracing::warn!(
                        "skipping {plan}: it was made of the revision {theirs}, and this apply is of {ours}; \
                         --plan {plan} applies it"
                    );
                    other.get_or_insert_with(|| {
                        (plan.to_string(), format!("the revision {theirs}"))
                    });
                }
                examined => {
                    if let Some(later) = later {
                        tracing::warn!("attempt {later} of {run} stored no plan: taking {plan}");
                    }
                    return Ok(Some((plan, examined)));
                }
            }
        }
        Ok(None)
    }

    /// Examines one plan: what it lacks, and its place.
    async fn examine(
        &self,
        plan: &StoredPlan,
        wanted: Wanted<'_>,
    ) -> Result<Examined, SearchError> {
        let name = plan.to_string();
        let binding = match self.binding_for(plan, wanted.key).await? {
            Ok(binding) => binding,
            Err(_) if wanted.approved.is_some() && plan.sha256() != wanted.approved => {
                return Ok(Examined::NotApproved);
            }
            Err(error) => return Ok(Examined::Untrusted(error)),
        };
        let is_signed = wanted.key.is_some() && binding.is_some();
        let bound = binding.as_ref().filter(|_| is_signed || plan.record.is_none());
        let digest = bound.map(|binding| binding.plan).or_else(|| plan.sha256());
        if wanted.approved.is_some() && digest != wanted.approved {
            return Ok(Examined::NotApproved);
        }
        if !is_signed && plan.defect.is_none() {
            if !plan.is_finished() {
                return Ok(Examined::Unfinished);
            }
            if wanted.key.is_some() {
                return Ok(Examined::Untrusted(BindingError::Unsigned { plan: name }));
            }
        }
        let record = match &binding {
            Some(binding) if is_signed => Some(binding.signed_record()),
            Some(binding) => Some(binding.record(None)),
            None => plan.record.clone(),
        };
        if wanted.approved.is_none() && record.as_ref().is_some_and(PlanRecord::destroys) {
            return Ok(Examined::Destroys);
        }
        if record.as_ref().is_some_and(PlanRecord::is_judged) {
            return Ok(Examined::Judged);
        }
        if let Some(record) = &record {
            if !record.is_of(wanted.place, wanted.source) {
                return Ok(Examined::Elsewhere { place: record.shown_place() });
            }
            if let Some((theirs, ours)) = wanted.other_revision(record).await? {
                return Ok(Examined::OtherRevision { theirs, ours });
            }
            if record.destroys_by_argument() {
                return Ok(Examined::DestroysByArgument);
            }
        }
        if let Some(defect) = plan.defect.clone() {
            return Ok(Examined::Defective(defect));
        }
        let report = plan.record.as_ref();
        let signed = binding.filter(|_| is_signed);
        let difference = signed.as_ref().and_then(|signed| signed.difference_of_report(report?));
        if let Some(what) = difference {
            return Ok(Examined::Untrusted(BindingError::Report { plan: name, what }));
        }
        let times = signed.map(|signed| signed.times);
        Ok(Examined::Usable(times.or(report.map(|report| report.times)).unwrap_or_default()))
    }

    /// The binding of a plan, if it decides: with a key, or where `run.json` cannot be read.
    async fn binding_for(
        &self,
        plan: &StoredPlan,
        key: Option<&VerifyKey>,
    ) -> Result<Result<Option<Binding>, BindingError>, ClientError> {
        if key.is_none() && plan.record.is_some() {
            return Ok(Ok(None));
        }
        let Some(json) = self.binding_of(plan).await? else { return Ok(Ok(None)) };
        let stored = (&self.sibling(&plan.run), plan.attempt);
        let parsed = Binding::parse(&json, &plan.to_string(), stored, key);
        Ok(match parsed {
            Ok(binding) => Ok(Some(binding)),
            Err(error) if key.is_some() => Err(error),
            Err(_) => Ok(None),
        })
    }
}
