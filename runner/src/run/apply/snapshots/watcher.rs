//! Finds the complete versions of a file that another program writes in place.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use datastore_api::Sha256;
use fs_err as fs;

use crate::basis::plan_file::StateVersion;
use crate::process::private_file;
use crate::source::regular::{self, unless_missing};

/// So long a change is waited for to be complete, and other changes to come with it.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// The last whole version.
const LAST: &str = "last.tfstate";

/// Follows one file.
#[derive(Debug)]
pub(super) struct Watcher {
    file: PathBuf,
    /// The directory of the copies.
    copies: PathBuf,
    /// How the file was when it was looked at last.
    seen: Option<Stamp>,
    /// When it has changed, if that version was not read since.
    changed: Option<Instant>,
    /// The version that the next one must follow.
    version: StateVersion,
    /// The last whole version.
    last: Option<(PathBuf, Sha256)>,
    count: usize,
}

/// What shows that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let metadata = fs::metadata(file).ok()?;
        let (inode, len) = (metadata.ino(), metadata.len());
        Some(Self { inode, len, modified: metadata.modified().ok() })
    }
}

/// The file with the last whole version, in the directory of the copies.
pub(super) fn last_in(copies: &Path) -> PathBuf {
    copies.join(LAST)
}

impl Watcher {
    /// A watcher of a file as it is now: only later versions are changes.
    pub(super) fn new(file: PathBuf, copies: PathBuf) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&copies)?;
        let seen = Stamp::of(&file);
        // What cannot be read now has no version that others must follow.
        let version = fs::File::open(&file).and_then(StateVersion::read).unwrap_or_default();
        Ok(Self { file, copies, seen, changed: None, version, last: None, count: 0 })
    }

    /// A copy of the file, if it has a new version that is whole. `is_last`: the other program has ended.
    pub(super) fn look(&mut self, is_last: bool) -> Option<PathBuf> {
        let stamp = Stamp::of(&self.file);
        if stamp != self.seen {
            self.seen = stamp;
            self.changed.get_or_insert_with(Instant::now);
        }
        let is_due = is_last || self.changed.is_some_and(|since| since.elapsed() >= DEBOUNCE);
        let stamp = stamp.filter(|stamp| is_due && stamp.len > 0)?;
        match self.read(stamp) {
            Ok(new) => {
                self.changed = None;
                new
            }
            // It is being written: the next look may find it whole.
            Err(error) => {
                tracing::debug!("{} is not whole: {error}", self.file.display());
                None
            }
        }
    }

    /// Copies the file. `None`: it is no new version of the state. An error: it is not whole.
    fn read(&mut self, stamp: Stamp) -> io::Result<Option<PathBuf>> {
        let copy = self.copies.join(format!("{}.tfstate", self.count));
        let read = self.copy(stamp, &copy);
        match &read {
            Ok(Some((version, sha256))) => {
                self.count += 1;
                self.version = version.clone();
                self.last = Some((copy.clone(), *sha256));
            }
            Ok(None) | Err(_) => {
                unless_missing(fs::remove_file(&copy))?;
            }
        }
        Ok(read?.map(|_| copy))
    }

    fn copy(&self, stamp: Stamp, to: &Path) -> io::Result<Option<(StateVersion, Sha256)>> {
        let mut file = private_file(to)?;
        io::copy(&mut regular::open_followed(&self.file)?, &mut file)?;
        if Stamp::of(&self.file) != Some(stamp) {
            return Err(io::Error::other("it has changed while it was read"));
        }
        let version = StateVersion::read(regular::open(to)?)?;
        let StateVersion { lineage, serial } = &self.version;
        let is_same = lineage.is_empty() || *lineage == version.lineage;
        if !is_same || version.serial < *serial {
            return Ok(None);
        }
        let sha256 = regular::sha256(to)?;
        let is_new = self.last.as_ref().is_none_or(|(_, last)| *last != sha256);
        Ok(is_new.then_some((version, sha256)))
    }

    /// The last whole version.
    pub(super) fn last(&self) -> Option<PathBuf> {
        self.last.as_ref().map(|(copy, _)| copy.clone())
    }

    /// Removes a copy that is not needed any more, unless it is the last one.
    pub(super) fn discard(&self, copy: &Path) {
        if self.last.as_ref().is_none_or(|(last, _)| last != copy)
            && let Err(error) = fs::remove_file(copy)
        {
            tracing::debug!("an earlier version of the state is not removed: {error}");
        }
    }

    /// Keeps the last whole version for later.
    pub(super) fn keep_last(&self) {
        if let Some((copy, _)) = &self.last
            && let Err(error) = fs::rename(copy, last_in(&self.copies))
        {
            tracing::debug!("the last version of the state is not kept: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Watched {
        dir: tempfile::TempDir,
        watcher: Watcher,
    }

    fn state(lineage: &str, serial: u64) -> String {
        format!(r#"{{"version": 4, "serial": {serial}, "lineage": "{lineage}", "resources": []}}"#)
    }

    impl Watched {
        fn new(text: Option<&str>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("terraform.tfstate");
            if let Some(text) = text {
                fs::write(&file, text).unwrap();
            }
            let watcher = Watcher::new(file, dir.path().join("copies")).unwrap();
            Self { dir, watcher }
        }

        fn write(&self, text: &str) {
            // So that the time of the change differs.
            std::thread::sleep(Duration::from_millis(20));
            fs::write(self.dir.path().join("terraform.tfstate"), text).unwrap();
        }

        /// What is found after the time for which a change is waited for.
        fn found(&mut self) -> Option<String> {
            let early = self.watcher.look(false);
            assert_eq!(early, None, "a change is waited for");
            if let Some(changed) = &mut self.watcher.changed {
                *changed -= DEBOUNCE;
            }
            self.watcher.look(false).map(|copy| fs::read_to_string(copy).unwrap())
        }
    }

    #[test]
    fn whole_versions_are_found_once_and_torn_ones_never() {
        let mut watched = Watched::new(Some(&state("l", 3)));
        assert_eq!(watched.found(), None, "nothing has changed");
        watched.write("");
        assert_eq!(watched.found(), None);
        let next = state("l", 4);
        watched.write(&next[..30]);
        assert_eq!(watched.watcher.look(false), None);
        watched.write(&next);
        assert_eq!(watched.watcher.look(false).map(|_| ()), Some(()), "it was waited for already");
        assert_eq!(watched.found(), None);
        // The serial does not rise if only metadata change.
        let same = next.replace("\"version\": 4", "\"version\": 5");
        watched.write(&same);
        assert_eq!(watched.found(), Some(same.clone()));
        watched.write(&same);
        assert_eq!(watched.found(), None, "the same content");
    }

    #[test]
    fn other_lineage_and_lower_serial_are_no_versions_of_the_state() {
        let mut watched = Watched::new(Some(&state("l", 3)));
        for other in [state("l", 2), state("m", 4)] {
            watched.write(&other);
            assert_eq!(watched.found(), None);
        }
        watched.write(&state("l", 3));
        assert_eq!(watched.found(), Some(state("l", 3)));
        let mut watched = Watched::new(None);
        watched.write(&state("m", 1));
        assert_eq!(watched.found(), Some(state("m", 1)), "the first one");
        watched.write(&state("l", 2));
        assert_eq!(watched.found(), None);
    }

    #[test]
    fn last_version_is_found_also_if_it_has_not_changed() {
        let mut watched = Watched::new(Some(&state("l", 3)));
        assert!(watched.watcher.look(true).is_some());
        assert_eq!(watched.watcher.look(true), None);
        watched.write("torn");
        assert_eq!(watched.watcher.look(true), None);
        watched.watcher.keep_last();
        let last = fs::read_to_string(last_in(&watched.dir.path().join("copies"))).unwrap();
        assert_eq!(last, state("l", 3));
    }
}
