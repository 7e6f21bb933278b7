//! Examines the credentials before init. What a finding means is decided in [`crate::tool::preflight`].

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use datastore_api::{ArtifactName, Client, File, Name, RunKey};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::Deserialize;

use crate::basis::plan_file;
use crate::cli::PreflightMode;
use crate::order::job::Apply;
use crate::run::artifacts::{MAX_REPORT, REPORT};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run};
use crate::source::references;
use crate::source::references::installed::Called;
use crate::tool::argv::limits_plan;
use crate::tool::preflight::{self, Configuration, Findings, METADATA_DISABLED, Question, Refusal};
use crate::version::ToolName;

/// How many of the last runs are read for their durations, in which time.
const LAST_RUNS: usize = 8;
const HISTORY_LIMIT: Duration = Duration::from_secs(2);
/// Credentials that live longer are not compared with the durations of runs.
const LONG: SignedDuration = SignedDuration::from_hours(12);

/// The parts of a report that say how long a run took.
#[derive(Deserialize)]
struct Took {
    action: String,
    outcome: String,
    #[serde(default)]
    steps: Vec<StepTook>,
}

#[derive(Deserialize)]
struct StepTook {
    seconds: f64,
}

impl Run<'_> {
    /// Examines the credentials that the code uses: refuses what is certain to fail, and warns about the rest. With terragrunt
    /// nothing is known of the code before it runs.
    pub(super) async fn check_credentials(&self, prepared: &mut Prepared) -> Result<(), RunError> {
        let job = self.job;
        if job.preflight == PreflightMode::Off || prepared.terragrunt.is_some() {
            return Ok(());
        }
        let configuration = configuration(prepared).await?;
        let dir = prepared.workspace.dir.clone();
        let question = Question {
            configuration: &configuration,
            variables: &self.environment.credentials,
            home: self.environment.home.as_deref(),
            dir: &dir,
            now: Timestamp::now(),
            is_targeted: self.is_targeted(prepared.installed.tool),
            has_backend_arguments: self
                .has_argument("-backend", &["TF_CLI_ARGS", "TF_CLI_ARGS_init"]),
        };
        let mut findings = preflight::examine(&question);
        if job.preflight == PreflightMode::Online && findings.refused.is_empty() {
            preflight::ask(&question, job.tools.ca_file.as_deref(), &mut findings).await;
        }
        self.refuse_or_warn(findings, question.now).await?;
        if !job.burrito && preflight::ask_metadata_service(&question).await {
            let line = format!(
                "the only possible source of AWS credentials is the EC2 metadata service, which does not respond: {} is run with \
                 {METADATA_DISABLED}=true, so that it does not wait for it",
                prepared.installed.tool
            );
            tracing::info!("{line}");
            prepared.env.push((METADATA_DISABLED.to_owned(), OsString::from("true")));
        }
        Ok(())
    }

    async fn refuse_or_warn(&self, findings: Findings, now: Timestamp) -> Result<(), RunError> {
        let Findings { refused, mut warnings, expiries } = findings;
        let soon = |at: Timestamp| at.duration_since(now) < LONG;
        if refused.is_empty()
            && expiries.iter().any(|expiry| soon(expiry.at))
            && let Some(usual) = self.usual_duration().await
        {
            warnings.extend(expiries.iter().filter_map(|expiry| expiry.warning(now, usual)));
        }
        warnings.sort();
        warnings.dedup();
        for warning in warnings {
            tracing::warn!("{warning}");
            self.log.line(&warning)?;
        }
        match Refusal::joined(refused) {
            Some(refusal) => Err(RunError::Credentials(refusal)),
            None => Ok(()),
        }
    }

    /// Whether the plan may leave out some of the providers: one that is stored may have been made so. To destroy or to
    /// refresh an empty state needs none.
    fn is_targeted(&self, tool: ToolName) -> bool {
        let from = self.job.action.apply();
        let is_stored = from.is_some_and(|from| !matches!(from, Apply::Unplanned(_)));
        self.plans_a_part()
            || is_stored && tool == ToolName::Tofu
            || is_stored && plan_file::may_be_targeted(&self.scratch.join(PLAN_FILE))
    }

    /// Whether options limit the plan to a part of the layer.
    pub(in crate::run) fn plans_a_part(&self) -> bool {
        let variables = ["TF_CLI_ARGS", "TF_CLI_ARGS_plan", "TF_CLI_ARGS_apply"];
        let values = variables.map(|name| self.environment.inputs.get(OsStr::new(name)));
        let limits = |value: &SecretSlice<u8>| {
            let text = String::from_utf8_lossy(value.expose_secret());
            text.split_whitespace().any(|word| limits_plan(word.trim_matches(['"', '\''])))
        };
        self.job.action.applies_a_part()
            || self.job.options.limit_plan()
            || values.into_iter().flatten().any(limits)
    }

    /// Whether one of these variables contains an option that begins so.
    fn has_argument(&self, option: &str, variables: &[&str]) -> bool {
        let values =
            variables.iter().filter_map(|name| self.environment.inputs.get(OsStr::new(name)));
        values
            .into_iter()
            .any(|value| memchr::memmem::find(value.expose_secret(), option.as_bytes()).is_some())
    }

    /// How long the tool worked in the middle one of the last runs of this layer and action that succeeded. `None`: none is
    /// known, or the datastore does not say so in time.
    async fn usual_duration(&self) -> Option<Duration> {
        let client = self.job.datastore.as_ref()?;
        let durations =
            tokio::time::timeout(HISTORY_LIMIT, self.last_durations(client)).await.ok()?;
        middle(durations)
    }

    async fn last_durations(&self, client: &Client) -> Vec<Duration> {
        let RunKey { namespace, layer, run } = &self.job.run;
        let Ok(page) = client.runs(namespace, layer, None).await else { return Vec::new() };
        let named = page.runs.into_iter().filter_map(|other| other.run.parse::<Name>().ok());
        let others = named.filter(|other| other != run).take(LAST_RUNS);
        let read = others.map(|other| {
            let run = RunKey { run: other, ..self.job.run.clone() };
            async move { took(client, &run, self.job.action.as_str()).await }
        });
        futures::future::join_all(read).await.into_iter().flatten().collect()
    }
}

/// How long the tool worked in a run of this action that succeeded.
async fn took(client: &Client, run: &RunKey, action: &str) -> Option<Duration> {
    let name = REPORT.parse::<ArtifactName>().ok()?;
    let report = client.get_file(run, None, &File::Other(name)).await.ok()??;
    let report = serde_json::from_slice::<Took>(&report.bytes(MAX_REPORT).await.ok()?).ok()?;
    let is_done = matches!(&*report.outcome, "changes" | "no_changes" | "applied");
    if report.action != action || !is_done || report.steps.is_empty() {
        return None;
    }
    Duration::try_from_secs_f64(report.steps.iter().map(|step| step.seconds).sum()).ok()
}

/// The middle one.
fn middle(mut durations: Vec<Duration>) -> Option<Duration> {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied()
}

/// What the code in this directory, and in the modules that it calls by a path, uses.
async fn configuration(prepared: &Prepared) -> Result<Configuration, RunError> {
    let dir = prepared.workspace.dir.clone();
    let read = move || {
        let mut configuration = Configuration::default();
        for (name, file) in references::named(&dir, &Called::new())? {
            configuration.add(&file, name.parent() == Some(Path::new("")));
        }
        Ok::<_, std::io::Error>(configuration)
    };
    Ok(tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_duration_is_the_middle_one() {
        let of =
            |seconds: &[u64]| middle(seconds.iter().copied().map(Duration::from_secs).collect());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some(Duration::from_secs(7)));
        assert_eq!(of(&[900, 3, 5]), Some(Duration::from_secs(5)));
    }
}
