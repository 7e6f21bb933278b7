//! One lock for each key that is in use. A commit that hangs delays only commits of its own key.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::path::Path;
use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// The locks of all keys. Clones share them.
#[derive(Clone, Default)]
pub(in crate::store) struct KeyLocks(Arc<Mutex<HashMap<Path, Lock>>>);

/// A locked key, or one whose lock a caller waits for, until this is dropped.
pub(in crate::store) struct KeyLock<'a> {
    locks: &'a KeyLocks,
    path: Path,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    /// Locks a key.
    pub(in crate::store) async fn lock(&self, path: &Path) -> KeyLock<'_> {
        // Exists before the lock is acquired, so that a caller who stops waiting removes the entry too.
        let mut key = KeyLock { locks: self, path: path.clone(), guard: None };
        let lock = Arc::clone(self.all().entry(path.clone()).or_default());
        key.guard = Some(lock.lock_owned().await);
        key
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<Path, Lock>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut all = self.locks.all();
        // Every other caller has a clone.
        if all.get(&self.path).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(&self.path);
        }
    }
}

impl fmt::Debug for KeyLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLocks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_locked_key_excludes_only_itself_and_leaves_nothing() {
        let (locks, path) = (KeyLocks::default(), Path::from("layers/a"));
        let one = locks.lock(&path).await;
        for number in 0..1000 {
            drop(locks.lock(&format!("layers/b{number}").into()).await);
        }
        let again = timeout(Duration::from_millis(20), locks.lock(&path));
        assert!(again.await.is_err());
        assert_eq!(locks.all().len(), 1);
        drop(one);
        assert!(locks.all().is_empty());
        drop(locks.lock(&path).await);
        assert!(locks.all().is_empty());
    }
}
