//! What `gc` deletes beside artifacts: claims of attempts, and records of applied plans; and which runs are at work.

use std::collections::HashSet;
use std::time::Duration;

use datastore_api::{File, PlanFormat};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};

use crate::cli::error::CommandError;
use crate::cli::gc::context::{Context, Swept, failed, layer};
use crate::cli::gc::select::Item;
use crate::store::{APPLIED, CLAIMS, Claim, Key, LIVE, Object, StoreError, live_attempt};

/// The age from which a claim without files is deleted. A younger one may belong to a run in progress.
const UNUSED_CLAIM_AGE: Duration = Duration::from_hours(7 * 24);
/// How long the record of an applied plan outlives the plan.
const APPLIED_RECORD_AGE: Duration = Duration::from_hours(30 * 24);
/// Digests of plans that are looked up at the same time.
const PARALLEL_READS: usize = 16;
/// How many objects are deleted at the same time.
const PARALLEL_DELETIONS: usize = 16;

impl Context<'_> {
    /// The directories of a layer's runs with an attempt that may be at work: its live log is younger than the least age, or its
    /// claim has no files yet. Read now: an attempt may have started long after this command. `items` are the layer's artifacts.
    pub(super) async fn working_runs(
        &self,
        layer: &str,
        items: &[Item],
    ) -> Result<HashSet<String>, CommandError> {
        let used = used_claims(items);
        let live = self.store.list(&format!("{LIVE}{layer}/")).map_err(failed("list"))?;
        let claims = self.store.list(&format!("{CLAIMS}{layer}/")).map_err(failed("list"))?;
        let mut objects = std::pin::pin!(live.chain(claims));
        let mut working = HashSet::new();
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            let age = Duration::try_from(self.now.duration_since(object.modified));
            let age = age.unwrap_or_default();
            let run = match (live_attempt(&object.key), Claim::of(&object)) {
                (Some((run, _)), _) if age < self.rules.min_age => run.to_string(),
                (_, Some(claim)) if age <= UNUSED_CLAIM_AGE && !used.contains(&claim) => claim.run,
                _ => continue,
            };
            working.insert(format!("layers/{run}/"));
        }
        Ok(working)
    }

    /// Deletes the claims of a layer whose run was deleted, and old ones without files.
    pub(super) async fn delete_claims(
        &self,
        layer: &str,
        items: &[Item],
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let used = used_claims(items);
        let removed = std::mem::take(&mut swept.removed_directories);
        let is_expired = |object: &Object, age| {
            let Some(claim) = Claim::of(object) else { return false };
            removed.contains(&format!("layers/{}/", claim.run))
                || age > UNUSED_CLAIM_AGE && !used.contains(&claim)
        };
        self.delete(&format!("{CLAIMS}{layer}/"), swept, is_expired).await?;
        swept.removed_directories = removed;
        Ok(())
    }

    /// Deletes the records of a layer's applied plans, once no stored plan has the digest of the record. A digest that is not
    /// known may be that. Every stored plan must be younger than the record as well: that of an order does not name its plan.
    pub(super) async fn delete_applied(
        &self,
        layer: &str,
        items: &[Item],
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let is_plan = |item: &&Item| matches!(item.key, Key::File(.., File::Plan(PlanFormat::Bin)));
        let plans = items.iter().filter(is_plan).collect::<Vec<_>>();
        let oldest = plans.iter().map(|plan| plan.modified).min();
        let is_old = |object: &Object, age| {
            age > APPLIED_RECORD_AGE && oldest.is_none_or(|oldest| oldest > object.modified)
        };
        let records = self.expired(&format!("{APPLIED}{layer}/"), is_old)?;
        let mut records = records.map_ok(|record| record.key).try_collect::<Vec<_>>().await?;
        if !records.is_empty() {
            let stored = stream::iter(plans).map(|plan| self.digest(plan));
            let stored = stored.buffer_unordered(PARALLEL_READS).filter_map(std::future::ready);
            let stored = stored.collect::<HashSet<_>>().await;
            let is_stored = |record: &String| {
                stored.iter().any(|plan| plan.as_ref().is_none_or(|plan| record.ends_with(plan)))
            };
            records.retain(|record| !is_stored(record));
        }
        let records = stream::iter(records).map(Ok);
        self.delete_keys(records, swept).await
    }

    /// The digest of a plan, without reading it: `Some(None)` if it is not known, `None` if the plan is not stored any more.
    async fn digest(&self, plan: &Item) -> Option<Option<String>> {
        match self.store.stat(&plan.key).await {
            Err(StoreError::NotFound) => None,
            version => {
                Some(version.ok().and_then(|version| Some(version.meta.digest()?.to_string())))
            }
        }
    }

    /// Deletes old claims and records of layers without artifacts. `layers` are the layers with artifacts.
    pub(super) async fn delete_of_layers_without_artifacts(
        &self,
        layers: &HashSet<String>,
    ) -> Result<Swept, CommandError> {
        let mut swept = Swept::default();
        for (prefix, max_age) in [(CLAIMS, UNUSED_CLAIM_AGE), (APPLIED, APPLIED_RECORD_AGE)] {
            let is_expired = |object: &Object, age| {
                let path = object.key.strip_prefix(prefix);
                path.is_some_and(|path| !layers.contains(layer(path))) && age > max_age
            };
            self.delete(prefix, &mut swept, is_expired).await?;
        }
        self.delete_live_of_others(layers, &mut swept).await?;
        self.delete_lists_of_others(layers, &mut swept).await;
        Ok(swept)
    }

    /// Deletes the objects below `prefix` that have expired, judged by the object and its age.
    pub(super) async fn delete(
        &self,
        prefix: &str,
        swept: &mut Swept,
        is_expired: impl Fn(&Object, Duration) -> bool,
    ) -> Result<(), CommandError> {
        let expired = self.expired(prefix, is_expired)?;
        self.delete_keys(expired.map_ok(|object| object.key), swept).await
    }

    /// The objects below `prefix` that have expired, judged by the object and its age. There are none in a dry run.
    fn expired<F: Fn(&Object, Duration) -> bool>(
        &self,
        prefix: &str,
        is_expired: F,
    ) -> Result<impl Stream<Item = Result<Object, CommandError>> + use<'_, F>, CommandError> {
        let Self { store, rules, now, .. } = *self;
        let objects = store.list(prefix).map_err(failed("list"))?;
        let expired = objects.try_filter(move |object| {
            let age = Duration::try_from(now.duration_since(object.modified));
            let age = age.unwrap_or_default();
            let is_linked = store.is_linked(&object.key);
            let is_deleted =
                !rules.dry_run && !is_linked && age >= rules.min_age && is_expired(object, age);
            std::future::ready(is_deleted)
        });
        Ok(expired.map_err(failed("list")))
    }

    async fn delete_keys(
        &self,
        keys: impl Stream<Item = Result<String, CommandError>>,
        swept: &mut Swept,
    ) -> Result<(), CommandError> {
        let deletions = keys.map(async |key| {
            let key = key?;
            let deleted = self.store.delete(&key).await;
            Ok::<_, CommandError>((key, deleted))
        });
        let mut deletions = std::pin::pin!(deletions.buffered(PARALLEL_DELETIONS));
        while let Some((key, deleted)) = deletions.try_next().await? {
            if let Err(error) = deleted {
                swept.failure(&key, &error);
            }
        }
        Ok(())
    }
}

/// The claims of attempts that have files.
fn used_claims(items: &[Item]) -> HashSet<Claim> {
    let used = items.iter().filter_map(|item| match &item.key {
        Key::File(run, attempt, _) => Some(Claim { run: run.to_string(), attempt: *attempt }),
        _ => None,
    });
    used.collect()
}
