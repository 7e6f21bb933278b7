//! What `gc` does with what the datastore has made of artifacts: lists of the changes of plans, and summaries of layers. It holds
//! their keys in memory: of each list that was read since its plan was stored, and of each layer.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use datastore_api::{File, PlanFormat};
use futures::TryStreamExt as _;

use crate::cli::error::CommandError;
use crate::cli::gc::context::{Context, Lists, Swept, failed, layer};
use crate::cli::gc::select::Item;
use crate::store::{CHANGES, Key, Object, SUMMARIES};

/// The age from which the summary of a layer without artifacts is deleted. It is made again if the layer has a status.
const UNUSED_SUMMARY_AGE: Duration = Duration::from_hours(7 * 24);

impl Context<'_> {
    pub(super) async fn lists(&self) -> Result<Lists, CommandError> {
        Ok(Lists {
            changes: self.by_layer(CHANGES).await?,
            summaries: self.by_layer(SUMMARIES).await?,
        })
    }

    async fn by_layer(&self, prefix: &str) -> Result<HashMap<String, Vec<Object>>, CommandError> {
        let mut found = HashMap::<_, Vec<_>>::new();
        let mut objects = self.store.list(prefix).map_err(failed("list"))?;
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            let path = object.key.strip_prefix(prefix).unwrap_or_default();
            found.entry(layer(path).to_owned()).or_default().push(object);
        }
        Ok(found)
    }

    /// Deletes the lists of a layer whose plan is not stored any more, and outdates its summary if anything was deleted.
    pub(super) async fn tidy_lists(&self, layer: &str, items: &[Item], swept: &mut Swept) {
        if let Some(lists) = self.lists.changes.get(layer) {
            let plans = items.iter().filter_map(|item| match &item.key {
                Key::File(run, attempt, File::Plan(PlanFormat::Json)) => Some((run, *attempt)),
                _ => None,
            });
            let plans = plans.collect::<HashSet<_>>();
            let removed = std::mem::take(&mut swept.removed_plans);
            for list in lists {
                let Some(Key::Changes(run, attempt, _)) = Key::from_path(&list.key) else {
                    continue;
                };
                let plan = (run, attempt);
                if removed.contains(&plan) || !plans.contains(&(&plan.0, plan.1)) {
                    self.delete_object(list, swept).await;
                }
            }
            swept.removed_plans = removed;
        }
        if swept.deleted > 0 && !self.rules.dry_run && self.lists.summaries.contains_key(layer) {
            self.outdate_summary(layer, swept).await;
        }
    }

    async fn outdate_summary(&self, layer: &str, swept: &mut Swept) {
        let names = layer.split_once('/');
        let names = names.map(|(namespace, name)| (namespace.parse(), name.parse()));
        let Some((Ok(namespace), Ok(name))) = names else { return };
        if let Err(error) = self.store.mark_changed(&namespace, &name).await {
            swept.failure(&format!("{SUMMARIES}{layer}/summary.json"), &error);
        }
    }

    /// Deletes the lists and old summaries of layers without artifacts. `layers` are the layers with artifacts.
    pub(super) async fn delete_lists_of_others(&self, layers: &HashSet<String>, swept: &mut Swept) {
        let Lists { changes, summaries } = self.lists;
        let others = |(layer, _): &(&String, &Vec<Object>)| !layers.contains(*layer);
        for list in changes.iter().filter(others).flat_map(|(_, lists)| lists) {
            self.delete_object(list, swept).await;
        }
        for summary in summaries.iter().filter(others).flat_map(|(_, summaries)| summaries) {
            let age = self.now.duration_since(summary.modified);
            if Duration::try_from(age).unwrap_or_default() > UNUSED_SUMMARY_AGE {
                self.delete_object(summary, swept).await;
            }
        }
    }
}
