//! What `gc` removes beside artifacts: claims of attempts, and records of applied plans.

use std::collections::HashSet;
use std::io::Write;
use std::time::Duration;

use datastore_api::{File, PlanFormat};
use futures::TryStreamExt as _;

use super::{CommandError, Sweep, failed};
use crate::error::chain;
use crate::gc::Item;
use crate::store::{APPLIED, CLAIMS, Claim, Key, Object};

/// A claim without files may be that of a run under way; none takes longer.
const UNUSED: Duration = Duration::from_hours(7 * 24);
/// The record of a plan that is no longer stored stays so long all the same.
const REMEMBERED: Duration = Duration::from_hours(30 * 24);

impl Sweep<'_> {
    /// Removes the claims of a layer whose run has been deleted, and those that were never used.
    pub(super) async fn claims(
        &mut self,
        layer: &str,
        items: &[Item],
        emptied: &HashSet<String>,
        out: &mut impl Write,
    ) -> Result<(), CommandError> {
        let used = items.iter().filter_map(|item| match &item.key {
            Key::File(run, attempt, _) => Some(Claim { run: run.to_string(), attempt: *attempt }),
            _ => None,
        });
        let used = used.collect::<HashSet<_>>();
        self.remove(&format!("{CLAIMS}{layer}/"), out, |object, age| {
            let Some(claim) = Claim::of(object) else { return false };
            emptied.contains(&claim.run) || age > UNUSED && !used.contains(&claim)
        })
        .await
    }

    /// Removes the records of a layer's applied plans that can no longer be stored: every plan that is
    /// left is younger than its record.
    pub(super) async fn applied(
        &mut self,
        layer: &str,
        items: &[Item],
        out: &mut impl Write,
    ) -> Result<(), CommandError> {
        let is_plan = |item: &&Item| matches!(item.key, Key::File(.., File::Plan(PlanFormat::Bin)));
        let oldest = items.iter().filter(is_plan).map(|plan| plan.modified).min();
        self.remove(&format!("{APPLIED}{layer}/"), out, |object, age| {
            age > REMEMBERED && oldest.is_none_or(|oldest| oldest > object.modified)
        })
        .await
    }

    /// Does both for layers that have no artifact left.
    pub(super) async fn of_layers_without_artifacts(
        &mut self,
        out: &mut impl Write,
    ) -> Result<(), CommandError> {
        let layers = std::mem::take(&mut self.layers);
        let is_empty = |key: &str| !layers.contains(layer(key));
        self.remove(CLAIMS, out, |object, age| {
            object.key.strip_prefix(CLAIMS).is_some_and(is_empty) && age > UNUSED
        })
        .await?;
        self.remove(APPLIED, out, |object, age| {
            object.key.strip_prefix(APPLIED).is_some_and(is_empty) && age > REMEMBERED
        })
        .await
    }

    /// Deletes the objects below `prefix` that `goes` chooses, by themselves and their age.
    async fn remove(
        &mut self,
        prefix: &str,
        out: &mut impl Write,
        goes: impl Fn(&Object, Duration) -> bool,
    ) -> Result<(), CommandError> {
        let Self { store, rules, now, .. } = *self;
        let mut objects = store.list(prefix).map_err(failed("list"))?;
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            let age = Duration::try_from(now.duration_since(object.modified)).unwrap_or_default();
            if rules.dry_run || age < rules.min_age || !goes(&object, age) {
                continue;
            }
            if let Err(error) = store.delete(&object.key).await {
                self.failed += 1;
                writeln!(out, "could not delete {}: {}", object.key, chain(&error))?;
            }
        }
        Ok(())
    }
}

/// `<namespace>/<layer>`, with which a path begins.
fn layer(path: &str) -> &str {
    path.match_indices('/').nth(1).map_or(path, |(end, _)| &path[..end])
}
