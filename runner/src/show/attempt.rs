//! `runner show`: one attempt, with what is recorded of it and its plan.

use datastore_api::key::FileInfo;
use datastore_api::{AppliedKey, Attempt, Client, ClientError, File, PlanFormat, RunKey, Sha256};
use jiff::Timestamp;
use serde::Serialize;

use crate::cli::{Environment, ShowArgs};
use crate::run::artifacts::applied_key;
use crate::run::unsent::{command_to, unsent_apply};
use crate::show::error::ShowError;
use crate::show::header::{Applied, header};
use crate::show::record::{Known, is_of_file, read};
use crate::show::target::{self, Target};
use crate::show::terminal::screen::{Screen, with_screen};
use crate::show::terminal::spool::show_download;
use crate::show::terminal::text::{json, one_line};

/// `show --json`
#[derive(Serialize)]
struct AttemptJson<'a> {
    namespace: &'a str,
    layer: &'a str,
    run: &'a str,
    attempt: Attempt,
    /// The numbers of all attempts of the run.
    attempts: &'a [Attempt],
    files: &'a [FileInfo],
    /// `run.json`, as it was stored.
    report: Option<&'a serde_json::Value>,
    /// The record of the apply of this plan; null if there is none, left out if that is not known.
    #[serde(skip_serializing_if = "Applied::is_unknown")]
    applied: &'a Applied,
}

/// Shows an attempt.
pub(crate) async fn show(args: &ShowArgs, environment: &Environment) -> Result<(), ShowError> {
    let target = target::find(&args.target, &args.common, environment).await?;
    let Target { client, run, files, attempts, .. } = &target;
    let known = read(client, run, files).await?;
    let applied = find_applied(client, run, &known, environment).await?;
    let no_pager = args.common.no_pager;
    if args.json {
        let document = AttemptJson {
            namespace: run.namespace.as_ref(),
            layer: run.layer.as_ref(),
            run: run.run.as_ref(),
            attempt: files.attempt,
            attempts,
            files: &files.artifacts,
            report: known.json(),
            applied: &applied,
        };
        let text = json(&document).map_err(std::io::Error::from)?;
        return with_screen(environment, no_pager, async |screen: &mut Screen| {
            screen.write(&text).await
        })
        .await;
    }
    with_screen(environment, no_pager, async |screen: &mut Screen| {
        let text = header(&target, &known, &applied, screen.colours(), Timestamp::now());
        screen.write(&text).await?;
        show_plan(&target, &known, screen).await
    })
    .await
}

/// Finds out whether the plan of this attempt was applied.
async fn find_applied(
    client: &Client,
    run: &RunKey,
    known: &Known,
    environment: &Environment,
) -> Result<Applied, ClientError> {
    let plan = known.record().and_then(|record| record.plan.as_ref());
    let sha256 = plan.and_then(|plan| plan.sha256.as_ref()?.parse::<Sha256>().ok());
    let Some(sha256) = sha256 else { return Ok(Applied::Unknown) };
    let key: AppliedKey = applied_key(run, sha256);
    match client.get_applied(&key).await {
        Ok(Some(json)) => Ok(Applied::parse(&json)),
        Ok(None) => {
            let (state_home, url) = (environment.state_home.as_deref(), &client.settings().url);
            let unsent = unsent_apply(state_home, run, sha256, url);
            Ok(unsent.map_or(Applied::No, |kept| {
                Applied::unsent(&kept.record, command_to(client, false, &kept.dir))
            }))
        }
        Err(error) if is_of_file(&error) => {
            tracing::warn!("whether the plan was applied cannot be read: {error}");
            Ok(Applied::Unknown)
        }
        Err(error) => Err(error),
    }
}

/// Prints the plan, as the tool has shown it; for an apply, the plan that it applied.
async fn show_plan(target: &Target, known: &Known, screen: &mut Screen) -> Result<(), ShowError> {
    let Target { client, run, files, .. } = target;
    let pretty = File::Plan(PlanFormat::Pretty);
    let own = client.get_file(run, Some(files.attempt), &pretty).await?;
    let (plan, title) = match own {
        Some(plan) => (Some(plan), String::new()),
        None => match planned_by(run, known) {
            Some((planned_by, attempt)) => (
                client.get_file(&planned_by, Some(attempt), &pretty).await?,
                format!("The plan of {}/{attempt}:\n\n", one_line(planned_by.run.as_ref())),
            ),
            None => (None, String::new()),
        },
    };
    let Some(plan) = plan else { return Ok(()) };
    screen.write(&format!("\n{title}")).await?;
    let mut has_started = false;
    show_download(plan, screen, |painter, piece| {
        let text = painter.push(piece);
        // The tool begins with empty lines.
        let text = if has_started { &text } else { text.trim_start_matches('\n') };
        has_started |= !text.is_empty();
        Ok(text.to_owned())
    })
    .await
}

/// The attempt that made the plan of an apply.
fn planned_by(run: &RunKey, known: &Known) -> Option<(RunKey, Attempt)> {
    let plan = known.record()?.plan.as_ref()?;
    let planned_by = RunKey { run: plan.run.as_ref()?.parse().ok()?, ..run.clone() };
    Some((planned_by, plan.attempt?))
}
