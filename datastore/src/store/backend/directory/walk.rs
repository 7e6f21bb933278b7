//! Lists a directory in the order of its keys, as a bucket does.
//!
//! `object_store` lists a directory in the order of the file system. Commands that group objects by layer need the order of
//! the keys. A directory can have very many entries, so a listing may take long. It fails once the file system has not
//! answered for [`SILENCE`], and names the directory.

use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, sleep_until};

use crate::store::backend::directory::disk::Disk;
use crate::store::backend::directory::files::is_absent;
use crate::store::backend::directory::links::{Link, Links, link_at};
use crate::store::backend::directory::staged::is_staged;
use crate::store::object::Object;

/// Timeout of a batch that makes progress.
const MAX_BATCH: Duration = Duration::from_hours(1);
/// Objects in one batch; more would only need more memory.
const BATCH: usize = 1000;
/// How long a listing waits for one answer of the file system.
const SILENCE: Duration = Duration::from_secs(15);
/// The most entries of a directory that are read as one answer.
const ENTRIES: usize = 100;

/// The file system has not answered.
#[derive(Debug, thiserror::Error)]
#[error("{} does not answer: nothing was read for {SILENCE:?}\nhint: check the mount of its file system", .0.display())]
pub(in crate::store) struct Silent(PathBuf);

/// What a listing reads now, and since when.
#[derive(Debug)]
struct Progress(Mutex<(PathBuf, Instant)>);

/// A listing in progress: the entries still to visit, the next one last.
struct Walk {
    pending: Vec<Entry>,
    progress: Arc<Progress>,
    links: Arc<Links>,
}

/// A file or a directory below the root.
struct Entry {
    /// Its key; a directory's ends with `/`, so that entries sort as the keys below them do.
    key: String,
    is_directory: bool,
}

/// Every object below `prefix` (empty, or a path without a final `/`), in the order of the keys. It holds the names in
/// the ancestors of the current entry and [`BATCH`] objects in memory.
pub(in crate::store) fn objects(
    disk: Disk,
    prefix: &str,
) -> BoxStream<'static, object_store::Result<Object>> {
    let key = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let progress = Arc::new(Progress(Mutex::new((PathBuf::new(), Instant::now()))));
    let links = Arc::clone(disk.links());
    let walk = Walk { pending: vec![Entry { key, is_directory: true }], progress, links };
    let start = (disk, prefix.to_owned(), walk);
    let batches = stream::try_unfold(start, async |(disk, prefix, mut walk)| {
        let progress = Arc::clone(&walk.progress);
        progress.record(disk.root().path());
        let list = move |root: &FilePath| walk.batch(root).map(|objects| (objects, walk));
        let (objects, walk) = tokio::select! {
            listed = disk.list_job(MAX_BATCH, &prefix, list) => listed?,
            silent = progress.silence() => {
                return Err(object_store::Error::Generic { store: "directory", source: silent.into() });
            }
        };
        let next =
            (!objects.is_empty()).then(|| (stream::iter(objects).map(Ok), (disk, prefix, walk)));
        Ok::<_, object_store::Error>(next)
    });
    batches.try_flatten().boxed()
}

impl Progress {
    /// Records that the file system has answered, and what is read next.
    fn record(&self, path: &FilePath) {
        *self.state() = (path.to_owned(), Instant::now());
    }

    /// Returns once the file system has been silent for too long.
    async fn silence(&self) -> Silent {
        loop {
            let until = self.state().1 + SILENCE;
            if until <= Instant::now() {
                // Without the `/` at the end of a directory's key.
                return Silent(self.state().0.components().collect());
            }
            sleep_until(until).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, (PathBuf, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Walk {
    /// The next objects; none at the end.
    fn batch(&mut self, root: &FilePath) -> io::Result<Vec<Object>> {
        let mut objects = Vec::new();
        while objects.len() < BATCH
            && let Some(Entry { key, is_directory }) = self.pending.pop()
        {
            let path = root.join(&key);
            if is_directory {
                let mut entries = self.entries(root, &path, &key)?;
                entries.sort_unstable_by(|a, b| b.key.cmp(&a.key));
                self.pending.append(&mut entries);
            } else {
                self.progress.record(path.parent().unwrap_or(root));
                objects.extend(object(&path, key)?);
            }
        }
        Ok(objects)
    }

    /// The entries of a directory that may be part of a key; none if the directory is gone. Links that lead out of the
    /// root are left out, because they cannot be read, and links that lead back, because the listing would not end.
    fn entries(&self, root: &FilePath, directory: &FilePath, key: &str) -> io::Result<Vec<Entry>> {
        let Self { progress, links, .. } = self;
        progress.record(directory);
        let found = match std::fs::read_dir(directory) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            found => found?,
        };
        let mut entries = Vec::new();
        for (place, entry) in found.enumerate() {
            if place % ENTRIES == 0 {
                progress.record(directory);
            }
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let kind = match entry.file_type() {
                Err(error) if is_absent(&error) => continue,
                kind => kind?,
            };
            let mut is_directory = kind.is_dir();
            if kind.is_symlink() {
                let path = format!("{key}{name}");
                progress.record(&entry.path());
                let link = link_at(root, &path);
                links.record(path, link);
                if link != Link::Followed {
                    continue;
                }
                is_directory = entry.path().is_dir();
            }
            if is_directory {
                entries.push(Entry { key: format!("{key}{name}/"), is_directory });
            } else if !is_staged(&name) {
                entries.push(Entry { key: format!("{key}{name}"), is_directory });
            }
        }
        Ok(entries)
    }
}

/// A file as an object; `None` if it is gone.
fn object(file: &FilePath, key: String) -> io::Result<Option<Object>> {
    let meta = match std::fs::metadata(file) {
        Err(error) if is_absent(&error) => return Ok(None),
        meta => meta?,
    };
    let modified = jiff::Timestamp::try_from(meta.modified()?).unwrap_or_default();
    Ok(meta.is_file().then_some(Object { key, size: meta.len(), modified }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::metered::Calls;

    async fn keys(root: &FilePath, prefix: &str) -> Vec<String> {
        let objects = objects(Disk::new(root, Calls::default()), prefix);
        objects.map_ok(|object| object.key).try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn keys_are_listed_in_order_without_staged_files() {
        let root = tempfile::tempdir().unwrap();
        let names = ["a/b/1", "a-b/1", "a/b.c", "a/b-c/2", "a0", "z/1", "a/b/10", "a/b/2", "é/x"];
        for name in names {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, name).unwrap();
        }
        std::fs::write(root.path().join("a/b/3#1"), "staged").unwrap();
        std::fs::create_dir(root.path().join("empty")).unwrap();
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        assert_eq!(keys(root.path(), "").await, sorted);
        assert_eq!(keys(root.path(), "a/b").await, ["a/b/1", "a/b/10", "a/b/2"]);
        assert!(keys(root.path(), "a/none").await.is_empty());
        assert!(keys(root.path(), "a0").await.is_empty(), "a file is no prefix");
    }

    #[tokio::test]
    async fn a_listing_of_several_batches_is_complete() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..BATCH + 5 {
            std::fs::write(root.path().join(format!("{number:05}")), "").unwrap();
        }
        let listed = keys(root.path(), "").await;
        assert_eq!(listed.len(), BATCH + 5);
        assert!(listed.is_sorted());
    }
}
