//! The tool's renderings of a plan, as JSON and as text. Both are made at once where memory allows: with large providers,
//! each starts all of them again and takes seconds.

use std::path::Path;

use fs_err as fs;

use crate::process::has_free_memory;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::plan::summary::{PlanError, Summary};
use crate::tool::argv::Tool;
use crate::tool::terragrunt;

/// Two renderings are made at once if this many times the peak memory of the plan is free. Each needs about as much as the
/// plan itself.
const ROOM: u64 = 4;

impl Run<'_> {
    /// Renders the plan as JSON and as text, and summarizes the JSON.
    pub(super) async fn show(
        &mut self,
        tool: &Tool<'_>,
        bin: &Path,
        json: &Path,
        pretty: &Path,
    ) -> Result<Summary, RunError> {
        let since = self.report.started.into();
        let ran_in = tool.terragrunt.and_then(|_| terragrunt::ran_in(tool.dir, since));
        let mut tool = *tool;
        let memory = self.report.last_memory("plan").and_then(|peak| peak.checked_mul(ROOM));
        let at_once = tool.terragrunt.is_none() && memory.is_some_and(has_free_memory);
        let text = self.ahead("show", tool.show(bin), pretty);
        let text = async move { if at_once { text.await } else { None } };
        let (summary, text) =
            tokio::join!(self.show_json(&mut tool, ran_in.as_deref(), bin, json), text);
        let summary = summary?;
        self.step_into_unless(text, "show", &tool.show(bin), pretty).await?;
        self.environment.redaction.mask_file(pretty).await?;
        Ok(summary)
    }

    /// Renders the plan as JSON, masks what it marks as sensitive from then on, and summarizes it. Where terragrunt cannot
    /// show its plan, `tool` is the one without terragrunt, in the directory that terragrunt ran it in.
    async fn show_json<'t>(
        &mut self,
        tool: &mut Tool<'t>,
        ran_in: Option<&'t Path>,
        bin: &Path,
        json: &Path,
    ) -> Result<Summary, RunError> {
        match self.show_summary(tool, bin, json).await {
            Err(RunError::Tool { .. } | RunError::Plan(PlanError::Json(_)))
                if tool.terragrunt.is_some() =>
            {
                // Mock outputs may be allowed for a plan only, and showing one needs no outputs. A hook can print to the same
                // output.
                let line = "terragrunt cannot show its plan: running the tool without terragrunt to show it";
                tracing::warn!("{line}");
                self.log.line(line)?;
                tool.dir = ran_in.unwrap_or(tool.dir);
                tool.terragrunt = None;
                self.show_summary(tool, bin, json).await
            }
            shown => shown,
        }
    }

    async fn show_summary(
        &mut self,
        tool: &Tool<'_>,
        bin: &Path,
        json: &Path,
    ) -> Result<Summary, RunError> {
        self.step_into("show json", &tool.show_json(bin), json).await?;
        let document = fs::File::open(json)?;
        let summary = tokio::task::spawn_blocking(move || Summary::from_json(document));
        self.redact_plan(json).await;
        Ok(summary.await.map_err(std::io::Error::other)??)
    }
}
