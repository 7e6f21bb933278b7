//! What follows an apply that succeeded, in this run or in an earlier one. Nothing of it may cause a
//! second apply.
//!
//! First the record that it was made; then the annotations, tried again; then the other files; last
//! `run.json`. One thing that fails does not keep the others from being done, and what could not be
//! stored is kept.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::Duration;

use datastore_api::client::Upload;
use datastore_api::{ClientError, File, PlanFormat, Sha256, chain};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::order::job::Apply;
use crate::order::layer::{self, Annotations};
use crate::process::{Signals, Stop};
use crate::report::Outcome;
use crate::run::action::{Run, RunError};
use crate::run::apply_record::Record;
use crate::run::artifacts::{Artifacts, Recorded};
use crate::run::stored_plan;
use crate::run::unsent::{self, Unsent};
use crate::source::checkout::Source;

/// Before each further try to annotate.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// The annotations are given up after this.
const ANNOTATING: Duration = Duration::from_mins(1);

/// It was applied, but not all of the rest could be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppliedError {
    #[error("applied, but the annotations could not be written: {reason} ({values})")]
    Unannotated { reason: String, values: String, next: String },
    #[error("applied, but not all of it is stored: {reason}")]
    Unsent { reason: String, next: String },
}

/// What of an apply could not be done.
#[derive(Debug, Default)]
struct Left {
    /// Files that are not stored, and why.
    lost: Vec<(&'static str, String)>,
    /// Why the layer is not annotated.
    unannotated: Option<String>,
}

/// The time that is left for all of it together once the runner was asked to stop.
struct Budget<'a> {
    signals: &'a Signals,
    limit: Duration,
    since: OnceCell<Instant>,
}

impl Budget<'_> {
    /// The future's output, or the signal that came, once its time is over.
    async fn within<T>(&self, future: impl Future<Output = T>) -> Result<T, Stop> {
        let late = async {
            let stop = self.signals.wait().await;
            let since = *self.since.get_or_init(Instant::now);
            tokio::time::sleep_until(since + self.limit).await;
            stop
        };
        tokio::select! {
            biased;
            output = future => Ok(output),
            stop = late => Err(stop),
        }
    }

    /// The name of a file, and why it is not stored; nothing if it is.
    async fn lost(
        &self,
        name: &'static str,
        upload: impl Future<Output = Result<(), ClientError>>,
    ) -> Option<(&'static str, String)> {
        match self.within(upload).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((name, chain(&error))),
            Err(stop) => Some((name, RunError::Stopped(stop).to_string())),
        }
    }
}

impl Run<'_> {
    /// The record of an earlier apply that was not sent, and where it is kept: of this plan, else of this
    /// run.
    pub(crate) fn unsent_record(&self, plan: Option<Sha256>) -> Option<(PathBuf, Record)> {
        let run = &self.job.run;
        // Without a datastore nothing is ever unsent.
        self.job.datastore.as_ref()?;
        let kept = unsent::records(self.environment.state_home.as_deref(), run);
        kept.into_iter().find(|(_, record)| match plan {
            Some(plan) => record.is_of(plan),
            None => record.run == run.run.as_ref(),
        })
    }

    /// Sends what an earlier run could not send; that it is applied is known all the same.
    pub(crate) async fn send_unsent(&self, dir: &std::path::Path) {
        let Some(client) = self.artifacts.as_ref().map(Artifacts::client) else { return };
        match self.signals.within(self.last_words(), unsent::send(client, dir)).await {
            Ok(Ok(_)) => tracing::info!("sent what was kept in {}", dir.display()),
            Ok(Err(error)) => tracing::warn!("{} is not sent: {}", dir.display(), chain(&error)),
            Err(_) => tracing::warn!("{} is not sent: stopped", dir.display()),
        }
    }

    /// An earlier run or attempt did it: that takes neither code nor tool.
    pub(crate) async fn applied_before(
        &mut self,
        from: &Apply,
        record: Record,
    ) -> Result<(), RunError> {
        self.report.applied_by(&record);
        if self.report.revision.is_none()
            && let Source::Bundle(bundle) = &self.job.source
        {
            self.report.revision = Some(bundle.revision.to_string());
        }
        let which = format!("attempt {} of run {}", record.attempt, record.run);
        let line = format!("{which} has applied this: nothing is applied again");
        tracing::info!("{line}");
        self.log.line(&line)?;
        let mut sum = record.sum;
        if sum.is_none() {
            sum = self.sum_of(from, record.applied.parse().ok()).await?;
        }
        Box::pin(self.applied(sum, None)).await
    }

    /// The sum of a plan that was applied, for the annotation.
    async fn sum_of(&self, from: &Apply, plan: Option<Sha256>) -> Result<Option<String>, RunError> {
        if let Some(plan) = plan {
            return Ok(Some(plan.to_base64()));
        }
        let file = self.scratch.join(crate::run::action::PLAN_FILE);
        let ordered = stored_plan::sum_of_the_ordered(from, self.artifacts.as_ref(), &file);
        let sum = self.signals.or(ordered).await.map_err(RunError::Stopped)?;
        let sum = sum.unwrap_or_else(|error| {
            tracing::warn!("the digest of the plan is unknown: {error}");
            None
        });
        Ok(sum.map(Sha256::to_base64).or_else(|| crate::run::action::annotated_sum(self.job)))
    }

    /// The tool has just applied: records that, and does the rest.
    pub(crate) async fn has_applied(&mut self, sum: Option<String>) -> Result<(), RunError> {
        let attempt = self.artifacts.as_ref().map(Artifacts::attempt).unwrap_or_default();
        let record = Record::new(&self.job.run, attempt, &self.report, sum.clone());
        self.report.applied = Some(record.applied.clone());
        Box::pin(self.applied(sum, Some(record))).await
    }

    /// Does what follows an apply. `sum` becomes `apply-sum`; `record` is that of an apply that this run
    /// has made.
    async fn applied(
        &mut self,
        sum: Option<String>,
        record: Option<Record>,
    ) -> Result<(), RunError> {
        self.report.outcome = Outcome::Applied;
        self.report.succeeded(0);
        let signals = self.signals;
        let budget = Budget { signals, limit: self.last_words(), since: OnceCell::new() };
        let unsent = record.as_ref().and_then(|record| self.begin_unsent(record));
        let mut left = Left::default();
        let recorded = match (&self.artifacts, &record) {
            (Some(artifacts), Some(record)) => {
                let recorded = budget.within(Box::pin(artifacts.record(record))).await;
                let Recorded { known, lost } = recorded.unwrap_or_else(|stop| Recorded {
                    known: false,
                    lost: Some(RunError::Stopped(stop).to_string()),
                });
                left.lost.extend(lost.map(|why| ("the record of the apply", why)));
                known
            }
            (artifacts, None) => artifacts.is_some(),
            (None, Some(_)) => false,
        };
        let revision = self.report.revision.as_deref();
        let annotations = layer::apply_annotations(Timestamp::now(), sum.as_deref(), revision);
        left.unannotated = self.annotate_applied(&annotations, &budget).await.err();
        self.store_applied(&mut left, &budget).await;

        // What is stored says how it ends; that it could not be stored is known only then.
        self.conclude(&left, &annotations, recorded, unsent.as_ref());
        let json = self.report.to_json();
        if let Some(artifacts) = &self.artifacts {
            let put = artifacts.put_report(&self.report);
            left.lost.extend(budget.lost("run.json", put).await);
        }
        let error = self.conclude(&left, &annotations, recorded, unsent.as_ref());
        self.keep_or_remove(unsent, &left, &json);
        match error {
            // Upstream's controllers answer a failure by another apply, unless they find the record.
            Some(error) if self.job.burrito && !(recorded && left.unannotated.is_some()) => {
                tracing::warn!("{error}");
                if let Some(next) = Failure::from(&error).next() {
                    tracing::warn!("{next}");
                }
                Ok(())
            }
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// What the run ends with; the report says so, too.
    fn conclude(
        &mut self,
        left: &Left,
        annotations: &Annotations,
        recorded: bool,
        unsent: Option<&Unsent>,
    ) -> Option<RunError> {
        let error = self.verdict(left, annotations, recorded, unsent);
        if let Some(error) = &error {
            self.report.applied_but(&Failure::from(error));
        }
        if self.job.burrito {
            self.report.exit = u8::from(left.unannotated.is_some() && recorded);
        }
        error
    }

    fn begin_unsent(&self, record: &Record) -> Option<Unsent> {
        self.artifacts.as_ref()?;
        let state_home = self.environment.state_home.as_deref();
        match Unsent::of_apply(state_home, self.scratch, &self.job.run, record) {
            Ok(unsent) => Some(unsent),
            Err(error) => {
                tracing::warn!("what cannot be stored now will be lost: {error}");
                None
            }
        }
    }

    /// Writes the annotations, and tries again for a while.
    async fn annotate_applied(
        &self,
        annotations: &Annotations,
        budget: &Budget<'_>,
    ) -> Result<(), String> {
        let tries = async {
            let mut pauses = PAUSES.into_iter();
            loop {
                let Err(error) = self.write(annotations).await else { return Ok(()) };
                let reason = match &error {
                    RunError::Annotate { source, .. } => chain(source),
                    error => chain(error),
                };
                let Some(pause) = pauses.next() else { return Err(reason) };
                tracing::warn!("the annotations could not be written, trying again: {reason}");
                tokio::time::sleep(pause).await;
            }
        };
        let limited = tokio::time::timeout(ANNOTATING, tries);
        match budget.within(limited).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => Err(format!("no answer for {} s", ANNOTATING.as_secs())),
            Err(stop) => Err(RunError::Stopped(stop).to_string()),
        }
    }

    /// Stores the log and the short text.
    async fn store_applied(&self, left: &mut Left, budget: &Budget<'_>) {
        let Some(artifacts) = &self.artifacts else { return };
        let short = (File::Plan(PlanFormat::Short), Upload::bytes(SUCCESSFUL));
        let (log, short) = tokio::join!(
            budget.lost("run.log", artifacts.put_log(self.log.path())),
            budget.lost("short.diff", artifacts.put_unless_kept(&short)),
        );
        left.lost.extend(log.into_iter().chain(short));
    }

    /// What the run ends with, and what to do about it.
    fn verdict(
        &self,
        left: &Left,
        annotations: &Annotations,
        recorded: bool,
        unsent: Option<&Unsent>,
    ) -> Option<RunError> {
        let mut next = Vec::new();
        if !left.lost.is_empty() {
            let client = self.job.datastore.as_ref();
            next.push(match (unsent, client) {
                (Some(unsent), Some(client)) => {
                    let command = unsent.command(client, self.job.burrito);
                    format!("send what is missing with `{command}`")
                }
                _ => "the missing files are lost; the apply itself is done".to_owned(),
            });
        }
        let error = if let Some(reason) = &left.unannotated {
            // A later run finds the record, in the datastore or beside it, and applies nothing.
            let is_found = recorded || unsent.is_some_and(|unsent| unsent.is_found);
            next.push(match (is_found, &self.report.plan) {
                (true, _) if self.job.pod => {
                    "the next attempt finds the record, applies nothing, and writes them".to_owned()
                }
                (true, Some(_)) => {
                    "apply the same plan again: nothing is applied twice, and they are written".to_owned()
                }
                (true, None) => format!(
                    "run the same apply again with `--run {}` and without --again: nothing is applied \
                     twice, and they are written",
                    self.job.run.run
                ),
                (false, _) => "write them by hand: another apply would be made anew".to_owned(),
            });
            let reason = reason.clone();
            AppliedError::Unannotated {
                reason,
                values: layer::shown(annotations),
                next: next.join("; "),
            }
        } else if left.lost.is_empty() {
            return None;
        } else {
            let reasons = left.lost.iter().map(|(name, why)| format!("{name}: {why}"));
            let reason = reasons.collect::<Vec<_>>().join("; ");
            AppliedError::Unsent { reason, next: next.join("; ") }
        };
        Some(RunError::Applied(error))
    }

    /// Keeps what is not stored, or nothing where all is.
    fn keep_or_remove(&self, unsent: Option<Unsent>, left: &Left, report: &str) {
        let Some(unsent) = unsent else { return };
        if left.lost.is_empty() {
            if let Err(error) = unsent.remove() {
                tracing::warn!("{error}");
            }
            return;
        }
        unsent.stay(self.scratch);
        for (name, _) in &left.lost {
            let kept = match *name {
                "run.log" => unsent.keep_file(name, self.log.path()),
                "short.diff" => unsent.keep(name, SUCCESSFUL.as_bytes()),
                "run.json" => unsent.keep(name, report.as_bytes()),
                _ => Ok(()),
            };
            if let Err(error) = kept {
                tracing::warn!("{name} is neither stored nor kept: {error}");
            }
        }
    }
}

/// Upstream's text for an apply.
const SUCCESSFUL: &str = "Apply Successful";
