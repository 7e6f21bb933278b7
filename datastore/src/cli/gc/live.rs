//! What `gc` does with live logs: it completes interrupted completions, and deletes the logs of deleted runs, and those of runners
//! that were lost long ago and have stored nothing else.

use std::collections::HashSet;
use std::time::Duration;

use datastore_api::{Attempt, RunKey, chain};
use futures::TryStreamExt as _;

use crate::cli::error::CommandError;
use crate::cli::gc::context::{Context, LiveObjects, Swept, failed, layer};
use crate::cli::gc::select::Item;
use crate::store::{Key, LIVE, Object, live_attempt};

/// The age from which the log of a lost runner is deleted, if its attempt has no files.
const LOST_LOG_AGE: Duration = Duration::from_hours(30 * 24);
/// The age from which a completion counts as interrupted.
const INTERRUPTED_AGE: Duration = Duration::from_mins(10);

impl Context<'_> {
    /// Completes logs whose completion was interrupted, and deletes pieces beside complete logs. Returns what is live after that.
    pub(super) async fn complete_logs(
        &self,
        swept: &mut Swept,
    ) -> Result<LiveObjects, CommandError> {
        let mut live = self.live_objects().await?;
        if self.rules.dry_run || live.newest.is_empty() {
            return Ok(live);
        }
        let age = INTERRUPTED_AGE.max(self.rules.min_age);
        let tidied = self.store.tidy_logs(self.now, age).await.map_err(failed("list"))?;
        for (log, error) in tidied.failures {
            swept.failed += 1;
            swept.line(&format!("could not complete the log of {log}: {}", chain(&error)));
        }
        if tidied.removed > 0 {
            live = self.live_objects().await?;
        }
        Ok(live)
    }

    async fn live_objects(&self) -> Result<LiveObjects, CommandError> {
        let mut live = LiveObjects::default();
        let mut objects = self.store.list(LIVE).map_err(failed("list"))?;
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            let Some(attempt) = live_attempt(&object.key) else { continue };
            let time = live.newest.entry(attempt.clone()).or_insert(object.modified);
            *time = object.modified.max(*time);
            let path = object.key.strip_prefix(LIVE).unwrap_or_default();
            live.of_layers.entry(layer(path).to_owned()).or_default().push((attempt, object));
        }
        Ok(live)
    }

    /// Deletes the live logs of a layer whose run was deleted, and old ones of attempts without files.
    pub(super) async fn delete_live(
        &self,
        layer: &str,
        items: &[Item],
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let Some(objects) = self.live.of_layers.get(layer) else { return Ok(()) };
        let with_files = items.iter().filter_map(|item| match &item.key {
            Key::File(run, attempt, _) => Some((run, *attempt)),
            _ => None,
        });
        let with_files = with_files.collect::<HashSet<_>>();
        for (attempt, object) in objects {
            let is_removed = swept.removed_directories.contains(&format!("layers/{}/", attempt.0));
            let has_files = with_files.contains(&(&attempt.0, attempt.1));
            if is_removed || self.is_expired(attempt, object, has_files) {
                self.delete_object(object, swept).await;
            }
        }
        Ok(())
    }

    /// Deletes old live logs of layers without artifacts. `layers` are the layers with artifacts.
    pub(super) async fn delete_live_of_others(
        &self,
        layers: &HashSet<String>,
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let others = self.live.of_layers.iter().filter(|(layer, _)| !layers.contains(*layer));
        for (attempt, object) in others.flat_map(|(_, objects)| objects) {
            if self.is_expired(attempt, object, false) {
                self.delete_object(object, swept).await;
            }
        }
        Ok(())
    }

    /// Whether an object is too old: by the rules, or because its runner was lost long ago and has stored no files. It counts how
    /// old the newest object of the attempt is.
    fn is_expired(&self, attempt: &(RunKey, Attempt), object: &Object, has_files: bool) -> bool {
        let Some(newest) = self.live.newest.get(attempt) else { return false };
        let age = Duration::try_from(self.now.duration_since(*newest)).unwrap_or_default();
        let kind = Key::from_path(&object.key).map(|key| key.kind());
        let max_age = kind.and_then(|kind| self.rules.max_age.get(&kind));
        !has_files && age > LOST_LOG_AGE || max_age.is_some_and(|max_age| age > *max_age)
    }

    pub(super) async fn delete_object(&self, object: &Object, swept: &mut Swept) {
        let Self { store, rules, now, .. } = *self;
        let age = Duration::try_from(now.duration_since(object.modified)).unwrap_or_default();
        if rules.dry_run || age < rules.min_age || store.is_linked(&object.key) {
            return;
        }
        if let Err(error) = store.delete_unchanged(object).await {
            swept.failure(&object.key, &error);
        }
    }
}
