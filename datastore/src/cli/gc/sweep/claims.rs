//! What `gc` removes beside artifacts: claims of attempts, and records of applied plans.

use std::collections::HashSet;
use std::time::Duration;

use datastore_api::{File, PlanFormat};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::gc::select::Rules;
use crate::cli::gc::sweep::owner::{Owner, Summary, failed};
use crate::store::{APPLIED, CLAIMS, Claim, Key, Object, Store};

/// A claim without files may be that of a run in progress; none takes longer.
const UNUSED: Duration = Duration::from_hours(7 * 24);
/// The record of a plan that is no longer stored stays so long all the same.
const REMEMBERED: Duration = Duration::from_hours(30 * 24);
/// Objects deleted at once.
const DELETIONS: usize = 16;

impl Owner<'_> {
    /// Deletes the claims of a layer whose run has been deleted, and those that were never used.
    pub(super) async fn delete_claims(
        &self,
        layer: &str,
        swept: &mut Summary,
    ) -> Result<(), CommandError> {
        let used = self.items.iter().filter_map(|item| match &item.key {
            Key::File(run, attempt, _) => Some(Claim { run: run.to_string(), attempt: *attempt }),
            _ => None,
        });
        let used = used.collect::<HashSet<_>>();
        let removed_runs = std::mem::take(&mut swept.removed_runs);
        let selected = |object: &Object, age| {
            let Some(claim) = Claim::of(object) else { return false };
            removed_runs.contains(&format!("layers/{}/", claim.run))
                || age > UNUSED && !used.contains(&claim)
        };
        let prefix = format!("{CLAIMS}{layer}/");
        delete(self.store, self.rules, self.now, &prefix, swept, selected).await?;
        swept.removed_runs = removed_runs;
        Ok(())
    }

    /// Deletes the records of a layer's applied plans that can no longer be stored: every plan that is
    /// left is younger than its record.
    pub(super) async fn delete_applied(
        &self,
        layer: &str,
        swept: &mut Summary,
    ) -> Result<(), CommandError> {
        let plans = self
            .items
            .iter()
            .filter(|item| matches!(item.key, Key::File(.., File::Plan(PlanFormat::Bin))));
        let oldest = plans.map(|plan| plan.modified).min();
        let selected = |object: &Object, age| {
            age > REMEMBERED && oldest.is_none_or(|oldest| oldest > object.modified)
        };
        let prefix = format!("{APPLIED}{layer}/");
        delete(self.store, self.rules, self.now, &prefix, swept, selected).await
    }
}

/// Deletes old claims and records of layers that have no artifact; `layers` are those that have some.
pub(super) async fn sweep_layers_without_artifacts(
    store: &Store,
    rules: &Rules,
    now: Timestamp,
    layers: &HashSet<String>,
) -> Result<Summary, CommandError> {
    let mut swept = Summary::default();
    for (prefix, max_age) in [(CLAIMS, UNUSED), (APPLIED, REMEMBERED)] {
        let selected = |object: &Object, age| {
            let path = object.key.strip_prefix(prefix);
            path.is_some_and(|path| !layers.contains(layer(path))) && age > max_age
        };
        delete(store, rules, now, prefix, &mut swept, selected).await?;
    }
    Ok(swept)
}

/// Deletes the objects below `prefix` that are selected, by themselves and their age.
async fn delete(
    store: &Store,
    rules: &Rules,
    now: Timestamp,
    prefix: &str,
    swept: &mut Summary,
    selected: impl Fn(&Object, Duration) -> bool,
) -> Result<(), CommandError> {
    let objects = store.list(prefix).map_err(failed("list"))?;
    let deletions = objects
        .try_filter(|object| {
            let age = Duration::try_from(now.duration_since(object.modified)).unwrap_or_default();
            std::future::ready(!rules.dry_run && age >= rules.min_age && selected(object, age))
        })
        .map(async |object| {
            let Object { key, .. } = object?;
            let deleted = store.delete(&key).await;
            Ok((key, deleted))
        });
    let mut deletions = std::pin::pin!(deletions.buffered(DELETIONS));
    while let Some((key, deleted)) = deletions.try_next().await.map_err(failed("list"))? {
        if let Err(error) = deleted {
            swept.failure(&key, &error);
        }
    }
    Ok(())
}

/// `<namespace>/<layer>`, with which a path begins.
fn layer(path: &str) -> &str {
    path.match_indices('/').nth(1).map_or(path, |(end, _)| &path[..end])
}
