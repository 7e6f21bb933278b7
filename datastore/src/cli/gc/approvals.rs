//! What `gc` deletes of approvals.
//!
//! The newest offer of a set of changes is kept for ever: the next one would else have its number, and with it a digest that
//! was used before.

use std::collections::HashMap;
use std::time::Duration;

use datastore_api::approval::MAX_LIFETIME;
use futures::TryStreamExt as _;

use crate::cli::error::CommandError;
use crate::cli::gc::context::{Context, Swept, failed};
use crate::store::{APPROVALS, ApprovalKey, Key, Object};

/// The age from which an approval is deleted: 30 days after the longest lifetime.
const APPROVAL_AGE: Duration = Duration::from_secs(MAX_LIFETIME + 30 * 24 * 60 * 60);

impl Context<'_> {
    /// Deletes old approvals that newer ones of the same set have followed.
    pub(super) async fn delete_approvals(&self, swept: &mut Swept) -> Result<(), CommandError> {
        let mut newest = HashMap::new();
        let mut objects = self.store.list(APPROVALS).map_err(failed("list"))?;
        while let Some(object) = objects.try_next().await.map_err(failed("list"))? {
            if let Some(key) = approval(&object) {
                let generation = newest.entry(set(&key)).or_insert(key.generation);
                *generation = key.generation.max(*generation);
            }
        }
        let is_expired = |object: &Object, age| {
            let followed = approval(object).is_some_and(|key| {
                newest.get(&set(&key)).is_some_and(|newest| key.generation < *newest)
            });
            followed && age > APPROVAL_AGE
        };
        self.delete(APPROVALS, swept, is_expired).await
    }
}

fn approval(object: &Object) -> Option<ApprovalKey> {
    match Key::from_path(&object.key)? {
        Key::Approval(key, _) => Some(key),
        _ => None,
    }
}

/// The key without its generation.
fn set(key: &ApprovalKey) -> ApprovalKey {
    ApprovalKey { generation: 0, ..key.clone() }
}
