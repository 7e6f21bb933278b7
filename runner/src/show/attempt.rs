//! `runner show`: one attempt, with what is recorded of it and its plan.

use datastore_api::key::FileInfo;
use datastore_api::{AppliedKey, Attempt, Client, ClientError, File, PlanFormat, RunKey, Sha256};
use jiff::Timestamp;
use serde::Serialize;

use crate::basis::binding::{self, Binding, BindingError, VerifyKey};
use crate::cli::{Environment, ShowArgs};
use crate::order::job::JobError;
use crate::process::text::{json, one_line};
use crate::report::ledger::{Ledger, Resource};
use crate::run::artifacts::{MAX_REPORT, applied_key, other};
use crate::run::unsent::{command_to, unsent_apply};
use crate::show::error::ShowError;
use crate::show::header::{Applied, header};
use crate::show::ledger;
use crate::show::record::{Known, has, is_of_file, read, read_file};
use crate::show::signature::Signature;
use crate::show::target::{self, Target};
use crate::show::terminal::screen::{Screen, with_screen};
use crate::show::terminal::spool::{Text, show_text, whole};

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
    /// Of the plan; null if it is not bound to anything.
    signature: &'a Signature,
    /// What an apply has started and not completed; left out if it has no ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    unfinished: Option<Vec<&'a Resource>>,
}

/// Shows an attempt.
pub(crate) async fn show(args: &ShowArgs, environment: &Environment) -> Result<(), ShowError> {
    let key =
        args.verify_key.as_deref().map(VerifyKey::read).transpose().map_err(JobError::from)?;
    let target = target::find(&args.target, &args.common, environment).await?;
    let Target { client, run, files, attempts, .. } = &target;
    let known = read(client, run, files).await?;
    let plan = PlanOf::new(&target, &known);
    let binding = match &plan {
        Some(plan) => plan.binding(client, &known, key.as_ref()).await?,
        None => None,
    };
    let signature = Signature::new(binding.as_ref(), plan.is_some(), args.verify_key.as_deref());
    if let (Some(plan), Some(binding)) = (&plan, &binding) {
        plan.check_counts(binding, &known)?;
    }
    let applied = find_applied(client, run, &known, environment).await?;
    let ledger = ledger::read(client, run, files).await?;
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
            signature: &signature,
            unfinished: ledger.as_ref().map(|ledger| Ledger::unanswered(ledger).collect()),
        };
        let text = json(&document).map_err(std::io::Error::from)?;
        return with_screen(environment, no_pager, async |screen: &mut Screen| {
            screen.write(&text).await
        })
        .await;
    }
    let text = match &plan {
        Some(plan) => plan.text(client, binding.as_ref()).await?,
        None => None,
    };
    with_screen(environment, no_pager, async |screen: &mut Screen| {
        let found = (&applied, &signature, ledger.as_ref());
        let facts = header(&target, &known, found, screen.colours(), Timestamp::now());
        screen.write(&facts).await?;
        match plan.zip(text) {
            Some((plan, text)) => show_plan(&plan, text, screen).await,
            None => Ok(()),
        }
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

/// The plan of an attempt: the one that it has made, or applied.
struct PlanOf {
    run: RunKey,
    attempt: Attempt,
    /// Whether this attempt has made it.
    is_own: bool,
}

impl PlanOf {
    fn new(target: &Target, known: &Known) -> Option<Self> {
        let Target { run, files, .. } = target;
        if [File::Plan(PlanFormat::Pretty).name(), binding::FILE]
            .iter()
            .any(|name| has(files, name))
        {
            return Some(Self { run: run.clone(), attempt: files.attempt, is_own: true });
        }
        let plan = known.record()?.plan.as_ref()?;
        let run = RunKey { run: plan.run.as_ref()?.parse().ok()?, ..run.clone() };
        Some(Self { run, attempt: plan.attempt?, is_own: false })
    }

    fn name(&self) -> String {
        format!("{}/{}", one_line(self.run.run.as_ref()), self.attempt)
    }

    /// What the plan is bound to. If that cannot be read, what is shown is not compared with the plan; with a key it is
    /// refused, as it is without its signature.
    async fn binding(
        &self,
        client: &Client,
        known: &Known,
        key: Option<&VerifyKey>,
    ) -> Result<Option<Binding>, ShowError> {
        let plan = self.name();
        let file = other(binding::FILE);
        let read = read_file(client, &self.run, self.attempt, &file, MAX_REPORT).await?;
        let read = match read {
            Some(json) => {
                Binding::parse(&json, &plan, (&self.run, Some(self.attempt)), key).map(Some)
            }
            None if self.is_own && known.record().is_some_and(|record| record.bound) => {
                Err(BindingError::Missing { plan: plan.clone() })
            }
            None if key.is_some() => Err(BindingError::Unsigned { plan: plan.clone() }),
            None => Ok(None),
        };
        match read {
            Ok(binding) => Ok(binding),
            Err(error) if key.is_some() => Err(error.into()),
            Err(error @ BindingError::Differs { .. }) => Err(error.into()),
            Err(error) => {
                tracing::warn!("what is shown of the plan {plan} is not compared with it: {error}");
                Ok(None)
            }
        }
    }

    /// Refuses counts in `run.json` that are not the plan's.
    fn check_counts(&self, binding: &Binding, known: &Known) -> Result<(), ShowError> {
        let Some(record) = known.record() else { return Ok(()) };
        let applied = record.plan.as_ref().and_then(|plan| plan.sha256.as_ref()?.parse().ok());
        // A pod that repeats a number replaces a plan that was applied.
        if self.is_own || applied == Some(binding.plan) {
            binding.check_counts(&self.name(), record.counts())?;
        }
        Ok(())
    }

    /// The plan as the tool has shown it. A text that is bound is compared before any of it is shown.
    async fn text(
        &self,
        client: &Client,
        binding: Option<&Binding>,
    ) -> Result<Option<Text>, ShowError> {
        let pretty = File::Plan(PlanFormat::Pretty);
        let download = client.get_file(&self.run, Some(self.attempt), &pretty).await?;
        let Some(download) = download else { return Ok(None) };
        let Some(binding) = binding.filter(|binding| binding.has_renderings()) else {
            return Ok(Some(Text::Arriving(Box::new(download))));
        };
        let (text, sha256) = whole(download).await?;
        binding.check_rendering(&self.name(), PlanFormat::Pretty, Some(sha256))?;
        Ok(Some(text))
    }
}

/// Prints the plan, as the tool has shown it; for an apply, the plan that it applied.
async fn show_plan(plan: &PlanOf, text: Text, screen: &mut Screen) -> Result<(), ShowError> {
    let title =
        if plan.is_own { String::new() } else { format!("The plan of {}:\n\n", plan.name()) };
    screen.write(&format!("\n{title}")).await?;
    let mut has_started = false;
    show_text(text, screen, |painter, piece| {
        let text = painter.push(piece);
        // The tool begins with empty lines.
        let text = if has_started { &text } else { text.trim_start_matches('\n') };
        has_started |= !text.is_empty();
        Ok(text.to_owned())
    })
    .await
}
