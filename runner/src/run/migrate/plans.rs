//! The plans of a migration: both tools must plan no changes.

use std::io::Read;

use fs_err as fs;

use crate::process::private_file;
use crate::report::ToolReport;
use crate::run::error::RunError;
use crate::run::migrate::error::MigrationError;
use crate::run::plan::summary::{self, Changed, ChangesOf, Collector, PlanError};
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run};

/// How many changes are named in an error.
const NAMED: usize = 10;

/// What a plan would change, and what has changed outside of the tool: one text for each, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PlannedChanges(Vec<String>);

/// Collects the changes of one list.
#[derive(Default)]
struct Collected {
    changes: Vec<String>,
    drift: Vec<String>,
}

impl Collector for Collected {
    type After = serde::de::IgnoredAny;
    type Rest = serde::de::IgnoredAny;

    fn add(&mut self, changed: Changed) {
        self.changes.extend(text(&changed));
    }

    fn add_drift(&mut self, drift: Changed) {
        self.drift.extend(text(&drift).map(|drift| format!("{drift} outside of the tool")));
    }
}

/// A change as a text, if anything changes.
fn text(changed: &Changed) -> Option<String> {
    let (change, moved) = (&changed.change, changed.moved_from());
    if !change.is_change() && moved.is_none() {
        return None;
    }
    let address = changed.address.as_deref().unwrap_or("?");
    let what = match moved {
        Some(from) => format!("moved from {from}"),
        None => change.actions.join(" and "),
    };
    let import = if change.is_import() { ", import" } else { "" };
    Some(format!("{address} ({what}{import})"))
}

impl PlannedChanges {
    /// Reads the output of `show -json`.
    fn read(json: impl Read) -> Result<Self, PlanError> {
        let ChangesOf { resources, outputs, .. } = summary::read::<Collected>(json)?;
        let Collected { changes: mut all, drift } = resources;
        all.extend(outputs.changes.into_iter().map(|output| format!("output {output}")));
        all.extend(drift);
        Ok(Self(all))
    }

    /// Refuses a plan with changes. `tool` has made it.
    pub(super) fn check(&self, tool: &str) -> Result<(), MigrationError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut changes = self.0.iter().take(NAMED).cloned().collect::<Vec<_>>();
        if self.0.len() > NAMED {
            changes.push(format!("and {} more", self.0.len() - NAMED));
        }
        Err(MigrationError::Changes { tool: tool.to_owned(), changes })
    }

    /// How the plan of the new tool differs, as lines for people.
    pub(super) fn difference(&self, new: &Self) -> Vec<String> {
        let removed = self.0.iter().filter(|change| !new.0.contains(change));
        let added = new.0.iter().filter(|change| !self.0.contains(change));
        let lines = removed.map(|change| format!("- {change}"));
        lines.chain(added.map(|change| format!("+ {change}"))).collect()
    }
}

impl Run<'_> {
    /// Plans with the present tool.
    pub(super) async fn planned_changes(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<PlannedChanges, RunError> {
        let [bin, json] = [PLAN_FILE, "plan.json"].map(|name| self.scratch.join(name));
        let options = &self.job.options;
        let empty = || private_file(&bin).map(drop);
        self.step_with_retries(prepared, "plan", empty, |tool| tool.plan(&bin, options)).await?;
        self.step_into("show json", &prepared.tool().show_json(&bin), &json).await?;
        self.redact_plan(&json).await;
        let read = {
            let json = json.clone();
            tokio::task::spawn_blocking(move || {
                Ok::<_, RunError>(PlannedChanges::read(fs::File::open(&json)?)?)
            })
        };
        let changes = read.await.map_err(std::io::Error::other)??;
        fs::remove_file(&bin)?;
        fs::remove_file(&json)?;
        Ok(changes)
    }

    /// The present tool and its version.
    pub(super) fn tool_name(&self) -> String {
        let shown = |tool: &ToolReport| format!("{} {}", tool.name, tool.version);
        self.report.tool.as_ref().map(shown).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> PlannedChanges {
        PlannedChanges::read(json.as_bytes()).unwrap()
    }

    #[test]
    fn only_changes_count_of_resources_outputs_and_outside_of_the_tool() {
        let none = read(
            r#"{"format_version": "1.2", "resource_changes": [
                {"address": "a.b", "change": {"actions": ["no-op"]}},
                {"address": "data.x.y", "change": {"actions": ["read"]}}],
             "output_changes": {"o": {"actions": ["no-op"]}}, "resource_drift": []}"#,
        );
        assert_eq!(none, PlannedChanges::default());
        none.check("tofu 1.10.0").unwrap();
        let some = read(
            r#"{"format_version": "1.2", "resource_changes": [
                {"address": "a.b", "change": {"actions": ["delete", "create"]}},
                {"address": "a.new", "previous_address": "a.old", "change": {"actions": ["no-op"]}},
                {"address": "a.i", "change": {"actions": ["no-op"], "importing": {"id": "x"}}}],
             "output_changes": {"o": {"actions": ["update"]}},
             "resource_drift": [{"address": "a.c", "change": {"actions": ["update"]}}]}"#,
        );
        let error = some.check("tofu 1.10.0").unwrap_err().to_string();
        assert_eq!(
            error,
            "tofu 1.10.0 plans changes: a.b (delete and create), a.new (moved from a.old), a.i (no-op, import), \
             output o (update), a.c (update) outside of the tool"
        );
        assert_eq!(none.difference(&some)[0], "+ a.b (delete and create)");
        assert_eq!(some.difference(&none).len(), 5);
        assert!(some.difference(&some).is_empty());
    }

    #[test]
    fn many_changes_are_cut() {
        let all = PlannedChanges((0..13).map(|n| format!("a.b[{n}] (create)")).collect());
        let error = all.check("terraform 1.11.4").unwrap_err().to_string();
        assert!(error.ends_with("a.b[9] (create), and 3 more"), "{error}");
    }
}
