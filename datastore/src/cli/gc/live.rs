//! What `gc` does with live logs: it completes interrupted completions, and deletes the logs of deleted runs, and those of runners
//! that were lost long ago and have stored nothing else.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use datastore_api::{Attempt, RunKey, chain};
use futures::TryStreamExt as _;
use jiff::Timestamp;

use crate::cli::error::CommandError;
use crate::cli::gc::claims::layer;
use crate::cli::gc::context::{Context, Swept, failed};
use crate::cli::gc::select::Item;
use crate::store::{Key, LIVE, Object, live_attempt};

/// The age from which the log of a lost runner is deleted, if its attempt has no files.
const LOST_LOG_AGE: Duration = Duration::from_hours(30 * 24);
/// The age from which a completion counts as interrupted.
pub(super) const INTERRUPTED_AGE: Duration = Duration::from_mins(10);

impl Context<'_> {
    /// Completes logs whose completion was interrupted, and deletes pieces beside complete logs.
    pub(super) async fn complete_logs(&self, swept: &mut Swept) -> Result<(), CommandError> {
        if self.rules.dry_run {
            return Ok(());
        }
        let age = INTERRUPTED_AGE.max(self.rules.min_age);
        let completed = self.store.tidy_logs(self.now, age).await.map_err(failed("list"))?;
        for (log, error) in completed.failures {
            swept.failed += 1;
            swept.line(&format!("could not complete the log of {log}: {}", chain(&error)));
        }
        Ok(())
    }

    /// The runs of a layer that have a live log or a ledger beside it.
    pub(super) async fn live_runs(&self, layer: &str) -> Result<HashSet<RunKey>, CommandError> {
        let objects = self.store.list(&format!("{LIVE}{layer}/")).map_err(failed("list"))?;
        let runs = objects
            .try_filter_map(async |object| Ok(live_attempt(&object.key).map(|(run, _)| run)));
        runs.try_collect().await.map_err(failed("list"))
    }

    /// Deletes the live logs of a layer whose run was deleted, and old ones of attempts without files.
    pub(super) async fn delete_live(
        &self,
        layer: &str,
        items: &[Item],
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let with_files = items.iter().filter_map(|item| match &item.key {
            Key::File(run, attempt, _) => Some((run.clone(), *attempt)),
            _ => None,
        });
        let with_files = with_files.collect::<HashSet<_>>();
        let newest = self.newest_of(&format!("{LIVE}{layer}/")).await?;
        let removed = std::mem::take(&mut swept.removed_directories);
        let is_expired = |object: &Object, _| {
            let Some(attempt) = live_attempt(&object.key) else { return false };
            let newest = newest.get(&attempt);
            removed.contains(&format!("layers/{}/", attempt.0))
                || !with_files.contains(&attempt) && self.is_lost(newest)
                || self.is_too_old(object, newest)
        };
        self.delete(&format!("{LIVE}{layer}/"), swept, is_expired).await?;
        swept.removed_directories = removed;
        Ok(())
    }

    /// Deletes old live logs of layers without artifacts. `layers` are the layers with artifacts.
    pub(super) async fn delete_live_of_others(
        &self,
        layers: &HashSet<String>,
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let newest = self.newest_of(LIVE).await?;
        let is_expired = |object: &Object, _| {
            let Some(attempt) = live_attempt(&object.key) else { return false };
            let path = object.key.strip_prefix(LIVE).unwrap_or_default();
            !layers.contains(layer(path)) && self.is_lost(newest.get(&attempt))
        };
        self.delete(LIVE, swept, is_expired).await
    }

    /// When the newest object of each attempt was stored.
    async fn newest_of(
        &self,
        prefix: &str,
    ) -> Result<HashMap<(RunKey, Attempt), Timestamp>, CommandError> {
        let mut newest = HashMap::new();
        let mut objects = self.store.list(prefix).map_err(failed("list"))?;
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            if let Some(attempt) = live_attempt(&object.key) {
                let time = newest.entry(attempt).or_insert(object.modified);
                *time = object.modified.max(*time);
            }
        }
        Ok(newest)
    }

    fn is_lost(&self, newest: Option<&Timestamp>) -> bool {
        newest.is_some_and(|newest| self.age(*newest) > LOST_LOG_AGE)
    }

    /// Whether the rules delete such an object at this age. `newest`: of all of the attempt that is live.
    fn is_too_old(&self, object: &Object, newest: Option<&Timestamp>) -> bool {
        let kind = Key::from_path(&object.key).map(|key| key.kind());
        let max_age = kind.and_then(|kind| self.rules.max_age.get(&kind));
        max_age.zip(newest).is_some_and(|(max_age, newest)| self.age(*newest) > *max_age)
    }

    fn age(&self, time: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(time)).unwrap_or_default()
    }
}
