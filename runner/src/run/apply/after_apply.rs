//! The steps after an apply that succeeded, in this run or in an earlier one. No failure here may cause a second
//! apply.
//!
//! First the record of the apply is stored, then the annotations are written (with retries), then the log and the
//! short text are stored, the record once more if that had failed, and `run.json` last. If one step fails, the others are still done. Files that could not be
//! stored are kept in a directory, from which `runner upload` sends them. The tool reads the outputs beside that.

mod kept_records;

use std::cell::{OnceCell, RefCell};
use std::time::Duration;

use datastore_api::client::Upload;
use datastore_api::{ClientError, File, PlanFormat, Sha256, chain};
use futures::future::OptionFuture;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::order::job::Apply;
use crate::order::layer::{self, Annotations};
use crate::process::{Signals, Stop};
use crate::report::{AppliedRecord, Outcome};
use crate::run::apply::annotated_sum;
use crate::run::artifacts::{Artifacts, LEDGER, Recorded};
use crate::run::error::{AppliedError, RunError};
use crate::run::inputs::error::BROKEN;
use crate::run::prepare::Prepared;
use crate::run::step::Ahead;
use crate::run::stored_plan;
use crate::run::unsent::{Contents, Lost, Unsent};
use crate::run::{PLAN_FILE, Run};
use crate::source::checkout::Source;

/// The pauses between attempts to write the annotations.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// All attempts to write the annotations together take no longer.
const ANNOTATION_TIMEOUT: Duration = Duration::from_mins(1);

/// The part of the time after a signal for a step, where the next one is as important.
const HALF: f32 = 0.5;
/// The part for one with lesser ones behind it.
const MOST: f32 = 0.75;

/// The steps that failed.
#[derive(Debug, Default)]
struct Failed {
    /// Files that are not stored, and why.
    lost: Vec<Lost>,
    /// Why the layer is not annotated.
    unannotated: Option<String>,
}

/// The time for all steps together after a signal.
struct Budget<'a> {
    signals: &'a Signals,
    limit: Duration,
    since: OnceCell<Instant>,
}

impl Budget<'_> {
    /// The output of the future, or the signal, if this part of the time that is left after it is over: something remains for
    /// the steps that follow.
    async fn within<T>(&self, part: f32, future: impl Future<Output = T>) -> Result<T, Stop> {
        let late = async {
            let stop = self.signals.wait().await;
            let since = *self.since.get_or_init(Instant::now);
            let left = (since + self.limit).saturating_duration_since(Instant::now());
            tokio::time::sleep(left.mul_f32(part)).await;
            stop
        };
        tokio::select! {
            biased;
            output = future => Ok(output),
            stop = late => Err(stop),
        }
    }

    /// `None` if the file is stored, else its name and the reason.
    async fn lost(
        &self,
        name: &'static str,
        upload: impl Future<Output = Result<(), ClientError>>,
    ) -> Option<Lost> {
        match self.within(MOST, upload).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some((name, chain(&error))),
            Err(stop) => Some((name, RunError::Stopped(stop).to_string())),
        }
    }
}

impl Run<'_> {
    /// Repeats the steps after an apply that an earlier run or attempt has made. This needs neither code nor tool.
    pub(super) async fn record_earlier_apply(
        &mut self,
        from: &Apply,
        record: AppliedRecord,
    ) -> Result<(), RunError> {
        self.send_kept(&record).await;
        self.record_under_key(&record).await;
        self.report.applied = Some(record.applied.clone());
        self.report.plan.clone_from(&record.plan);
        if record.run != self.job.run.run.as_ref() || Some(record.attempt) != self.attempt() {
            self.report.applied_before = Some(record.applied_by());
            // This attempt created, updated and deleted nothing.
            if let Some(plan) = &mut self.report.plan {
                plan.counts = None;
            }
        }
        self.report.revision.clone_from(&record.revision);
        if self.report.revision.is_none()
            && let Source::Bundle(bundle) = &self.job.source
        {
            self.report.revision = Some(bundle.revision.to_string());
        }
        let which = format!("attempt {} of run {}", record.attempt, record.run);
        let at = record.at.map(|at| format!(" (applied at {at:.0})")).unwrap_or_default();
        let line = format!("{which} has applied this: nothing is applied again{at}");
        tracing::info!("{line}");
        self.log.line(&line)?;
        let mut sum = record.sum.clone();
        if sum.is_none() {
            sum = self.sum_of(from, record.applied.parse().ok()).await?;
        }
        if self.job.action.destroys() {
            self.copy_final_state(&record).await;
        }
        Box::pin(self.finish_apply(sum, None, None)).await
    }

    /// The digest of an applied plan, for the annotation `apply-sum`.
    async fn sum_of(&self, from: &Apply, plan: Option<Sha256>) -> Result<Option<String>, RunError> {
        if let Some(plan) = plan {
            return Ok(Some(plan.to_base64()));
        }
        let file = self.scratch.join(PLAN_FILE);
        let ordered = stored_plan::ordered_plan_sum(from, self.artifacts.as_ref(), &file);
        let sum = self.signals.or(ordered).await.map_err(RunError::Stopped)?;
        let sum = sum.unwrap_or_else(|error| {
            tracing::warn!("the digest of the plan is unknown: {error}");
            None
        });
        Ok(sum.or_else(|| annotated_sum(self.job)))
    }

    /// Records the apply that the tool has just made, and does the other steps.
    pub(super) async fn record_apply(
        &mut self,
        sum: Option<String>,
        prepared: Option<&Prepared>,
    ) -> Result<(), RunError> {
        let record = self.applied_record(sum.clone());
        self.report.applied = Some(record.applied.clone());
        Box::pin(self.finish_apply(sum, Some(record), prepared)).await
    }

    fn applied_record(&self, sum: Option<String>) -> AppliedRecord {
        let attempt = self.artifacts.as_ref().map(Artifacts::attempt).unwrap_or_default();
        let mut record = AppliedRecord::new(&self.job.run, attempt, &self.report, sum);
        (record.order, record.order_key) = (self.order.clone(), self.order_key);
        record
    }

    /// Keeps the record of the apply before the tool starts: a repeated order must not apply again if the runner is killed
    /// when the tool has applied.
    pub(super) fn keep_ahead(&self, prepared: &Prepared, sum: Option<&str>) {
        // With terragrunt, the line that says so may be of another module, which a hook applies.
        let Some(artifacts) = self.artifacts.as_ref().filter(|_| prepared.terragrunt.is_none())
        else {
            return;
        };
        let record = self.applied_record(sum.map(str::to_owned)).of_unknown_time();
        if let Err(error) = self.keeper().keep_ahead(&record, artifacts.client()) {
            tracing::debug!("if the runner is killed, a repeated order will apply again: {error}");
        }
    }

    /// Does the steps after an apply. `sum` is the value for `apply-sum`; `record` is that of an apply that this run has
    /// made, `prepared` that with which it was made, if the state is read again.
    async fn finish_apply(
        &mut self,
        sum: Option<String>,
        record: Option<AppliedRecord>,
        prepared: Option<&Prepared>,
    ) -> Result<(), RunError> {
        self.report.outcome = Outcome::Applied;
        self.report.exit = 0;
        let signals = self.signals;
        let budget = Budget { signals, limit: self.upload_grace(), since: OnceCell::new() };
        let mut unsent = record.as_ref().and_then(|record| self.keep_record(record));
        self.log.remove_output();
        let revision = self.report.revision.as_deref();
        let annotations = layer::apply_annotations(Timestamp::now(), sum.as_deref(), revision);
        let mut failed = Failed::default();
        let outputs = OptionFuture::from(prepared.map(|prepared| self.outputs_ahead(prepared)));
        let (recorded, outputs) = {
            let recording = async {
                let record = record.as_ref();
                let recorded =
                    self.record_and_annotate(record, &annotations, &mut failed, &budget).await;
                // At once: the tool may hang.
                self.keep_lost(&failed, unsent.as_mut());
                recorded
            };
            tokio::join!(recording, Box::pin(outputs))
        };
        if let Some(prepared) = prepared {
            Box::pin(self.conclude_states(prepared, outputs.flatten())).await;
        }

        // `run.json` contains the result so far. Its own upload may still fail.
        self.conclude(&failed, &annotations, recorded, unsent.as_ref());
        if let Some(artifacts) = &self.artifacts {
            let put = artifacts.put_report(&self.report);
            if let Some(lost) = budget.lost("run.json", put).await {
                if let Some(unsent) = &mut unsent {
                    unsent.keep_lost("run.json", Contents::Bytes(self.report.to_json().as_bytes()));
                }
                failed.lost.push(lost);
            }
        }
        let error = self.conclude(&failed, &annotations, recorded, unsent.as_ref());
        if failed.lost.is_empty()
            && let Some(unsent) = unsent
            && let Err(error) = unsent.remove()
        {
            tracing::warn!("{error}");
        }
        match error {
            // Burrito's controllers answer a failed run by another apply, unless the record is found.
            Some(error) if self.job.burrito && !(recorded && failed.unannotated.is_some()) => {
                tracing::warn!("{error}");
                if let Some(hint) = &self.report.hint {
                    tracing::warn!("{hint}");
                }
                Ok(())
            }
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Stores the record of the apply, the annotations, the log and the short text. Returns whether the record is stored.
    async fn record_and_annotate(
        &self,
        record: Option<&AppliedRecord>,
        annotations: &Annotations,
        failed: &mut Failed,
        budget: &Budget<'_>,
    ) -> bool {
        let to_store = self.artifacts.as_ref().zip(record);
        let mut recorded = match to_store {
            Some((artifacts, record)) => store_record(artifacts, record, budget).await,
            None => Recorded { is_known: record.is_none() && self.artifacts.is_some(), lost: None },
        };
        if !self.job.action.destroys() {
            failed.unannotated = self.annotate_applied(annotations, budget).await.err();
        }
        Box::pin(self.store_applied(failed, budget)).await;
        if let (Some((artifacts, record)), Some(_)) = (to_store, &recorded.lost) {
            // The datastore may have restarted meanwhile, and other runs learn of this apply from nothing else.
            let again = store_record(artifacts, record, budget).await;
            recorded = Recorded { is_known: recorded.is_known || again.is_known, lost: again.lost };
        }
        failed.lost.extend(recorded.lost.map(|why| ("the record of the apply", why)));
        recorded.is_known
    }

    /// Records which version of the tool has written the state, after a converge its outputs, and after a destroy what is left.
    async fn conclude_states(&mut self, prepared: &Prepared, outputs: Ahead) {
        self.raise_layer_tool(&prepared.installed).await;
        Box::pin(self.store_outputs(prepared, outputs)).await;
        if self.job.action.destroys() {
            self.record_final_state(prepared).await;
        }
    }

    /// The result of the run, which is also written into the report.
    fn conclude(
        &mut self,
        failed: &Failed,
        annotations: &Annotations,
        recorded: bool,
        unsent: Option<&Unsent>,
    ) -> Option<RunError> {
        let error = self.applied_error(failed, annotations, recorded, unsent);
        if let Some(error) = &error {
            (self.record_error)(error, &mut self.report);
            self.report.mask(&self.environment.redaction);
            self.report.outcome = Outcome::Applied;
        }
        if self.job.burrito {
            self.report.exit = u8::from(failed.unannotated.is_some() && recorded);
        }
        error
    }

    /// Keeps the record on disk before it is sent, so that a killed runner leaves it.
    fn keep_record(&self, record: &AppliedRecord) -> Option<Unsent> {
        let client = self.artifacts.as_ref()?.client();
        match self.keeper().keep_record(record, client) {
            Ok(unsent) => Some(unsent),
            Err(error) => {
                tracing::warn!("files that cannot be stored now will be lost: {error}");
                None
            }
        }
    }

    /// Writes the annotations, with retries.
    async fn annotate_applied(
        &self,
        annotations: &Annotations,
        budget: &Budget<'_>,
    ) -> Result<(), String> {
        let last = RefCell::new(None);
        let tries = async {
            let mut pauses = PAUSES.into_iter();
            loop {
                let Err(error) = self.annotate(annotations).await else { return Ok(()) };
                let reason = match &error {
                    RunError::Annotate { source, .. } => chain(source),
                    error => chain(error),
                };
                let Some(pause) = pauses.next() else { return Err(reason) };
                tracing::warn!("the annotations could not be written; trying again: {reason}");
                last.replace(Some(reason));
                tokio::time::sleep(pause).await;
            }
        };
        let limited = tokio::time::timeout(ANNOTATION_TIMEOUT, tries);
        match budget.within(HALF, limited).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => Err(last
                .take()
                .unwrap_or_else(|| format!("no answer for {} s", ANNOTATION_TIMEOUT.as_secs()))),
            Err(stop) => Err(RunError::Stopped(stop).to_string()),
        }
    }

    /// Stores the log, the short text and the last state of the ledger.
    async fn store_applied(&self, failed: &mut Failed, budget: &Budget<'_>) {
        let Some(artifacts) = &self.artifacts else { return };
        self.mask_log().await;
        let short = (File::Plan(PlanFormat::Short), Upload::bytes(SUCCESSFUL));
        let (log, short, ledger) = tokio::join!(
            budget.lost("run.log", artifacts.put_log(self.log.path())),
            budget.lost("short.diff", artifacts.put_unless_kept(&short)),
            budget.lost(LEDGER, self.store_ledger()),
        );
        failed.lost.extend(log.into_iter().chain(short).chain(ledger));
    }

    /// The error for the steps that failed, and for a state that could not be written, with what to do about it.
    fn applied_error(
        &self,
        failed: &Failed,
        annotations: &Annotations,
        recorded: bool,
        unsent: Option<&Unsent>,
    ) -> Option<RunError> {
        let error = self.error_of_steps(failed, annotations, recorded, unsent);
        let error = self.with_broken_outputs(error);
        let Some(state) = &self.unwritten else { return error.map(RunError::Applied) };
        let (other, hint) = match error {
            Some(error) => (Some(error.to_string()), format!("{}; {}", state.hint(), error.hint())),
            None => (None, state.hint()),
        };
        let other = other.unwrap_or_default();
        Some(RunError::Applied(AppliedError::Unwritten { state: state.to_string(), other, hint }))
    }

    /// Adds the required outputs that have no value, which decide how the run has failed.
    fn with_broken_outputs(&self, error: Option<AppliedError>) -> Option<AppliedError> {
        if self.broken_outputs.is_empty() {
            return error;
        }
        let names = self.broken_outputs.clone();
        let (other, hint) = match error {
            Some(error) => (error.to_string(), format!("{BROKEN}; {}", error.hint())),
            None => (String::new(), BROKEN.to_owned()),
        };
        Some(AppliedError::OutputBroken { names, other, hint })
    }

    fn error_of_steps(
        &self,
        failed: &Failed,
        annotations: &Annotations,
        recorded: bool,
        unsent: Option<&Unsent>,
    ) -> Option<AppliedError> {
        let mut hints = Vec::new();
        if !failed.lost.is_empty() {
            let client = self.job.datastore.as_ref();
            hints.push(match (unsent, client) {
                (Some(unsent), Some(client)) => {
                    unsent.advice(&failed.lost, client, self.job.burrito)
                }
                _ => "the missing files are lost; the apply itself is done".to_owned(),
            });
        }
        Some(if let Some(reason) = &failed.unannotated {
            // A later run finds the record, in the datastore or on this disk, and applies nothing.
            // The disk of a pod is removed with it.
            let is_found = recorded || unsent.is_some() && !self.loses_disk();
            hints.push(match (is_found, &self.report.plan) {
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
                (false, _) => "write them by hand: running the apply again would apply a second time".to_owned(),
            });
            let reason = reason.clone();
            AppliedError::Unannotated {
                reason,
                values: layer::shown(annotations),
                hint: hints.join("; "),
            }
        } else if failed.lost.is_empty() {
            return None;
        } else {
            let reasons = failed.lost.iter().map(|(name, why)| format!("{name}: {why}"));
            let reason = reasons.collect::<Vec<_>>().join("; ");
            AppliedError::Unsent { reason, hint: hints.join("; ") }
        })
    }

    /// Keeps the log, the short text and the ledger, if they are not stored.
    fn keep_lost(&self, failed: &Failed, unsent: Option<&mut Unsent>) {
        let Some(unsent) = unsent else { return };
        for (name, _) in &failed.lost {
            match *name {
                "run.log" => unsent.keep_lost(name, Contents::CopyOf(self.log.path())),
                "short.diff" => unsent.keep_lost(name, Contents::Bytes(SUCCESSFUL.as_bytes())),
                LEDGER => unsent.keep_lost(name, Contents::Bytes(self.ledger_json().as_bytes())),
                _ => {}
            }
        }
    }
}

async fn store_record(
    artifacts: &Artifacts,
    record: &AppliedRecord,
    budget: &Budget<'_>,
) -> Recorded {
    let stored = budget.within(HALF, Box::pin(artifacts.record(record))).await;
    stored.unwrap_or_else(|stop| Recorded {
        is_known: false,
        lost: Some(RunError::Stopped(stop).to_string()),
    })
}

/// The short text that Burrito's runner stores for an apply.
const SUCCESSFUL: &str = "Apply Successful";
