//! Removes what killed runs have left and nothing needs: directories without a complete record, and links and records of
//! states that are pushed. It removes no file that can be sent, and no state.

use std::io;
use std::path::Path;
use std::time::Duration;

use datastore_api::RunKey;
use fs_err as fs;

use crate::run::unsent::directory::{self, DATASTORE, Locking, SUMS};
use crate::run::unsent::find::{LeadsTo, attempts, layer_id, leads_to};
use crate::source::regular::unless_missing;
use crate::source::scratch::{PARTIAL, Scratch};
use crate::source::states;

/// In a younger directory a runner may be about to write.
const MIN_AGE: Duration = Duration::from_mins(1);

/// Removes such directories of this layer. One that cannot be removed does not keep the others.
pub(crate) fn remove_leftovers(state_home: Option<&Path>, scratch: &Scratch, run: &RunKey) {
    // What is not found stays.
    let left = scratch.left_unsent(&layer_id(run)).unwrap_or_default();
    let dirs = attempts(state_home, run).into_iter().chain(left);
    for dir in dirs {
        if let Err(error) = remove_if_left(&dir) {
            tracing::debug!("{} stays: {error}", dir.display());
        }
    }
}

fn remove_if_left(dir: &Path) -> io::Result<()> {
    let Locking::Locked(lock) = directory::lock(dir)? else { return Ok(()) };
    // Without locks, a living run may write there.
    if !lock.is_exclusive() {
        return Ok(());
    }
    for name in states::kept(dir) {
        if leads_to(&name) == LeadsTo::Removed {
            unless_missing(fs::remove_file(name))?;
        }
    }
    states::remove_orphaned_records(dir)?;
    let mut paths = vec![dir.to_owned()];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(PARTIAL) && ![DATASTORE, SUMS].contains(&&*name) {
            return Ok(());
        }
        paths.push(entry.path());
    }
    for path in paths {
        // A state is copied without the lock.
        if fs::symlink_metadata(path)?.modified()?.elapsed().unwrap_or_default() < MIN_AGE {
            return Ok(());
        }
    }
    directory::remove(dir).map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::SystemTime;

    use super::*;
    use crate::run::unsent::find::of_layer;

    fn set_age(path: &Path, age: Duration) {
        std::fs::File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    /// A directory with these files, all of this age.
    fn left(parent: &Path, name: &str, files: &[&str], age: Duration) -> PathBuf {
        let dir = parent.join(name);
        fs::create_dir_all(&dir).unwrap();
        for file in files {
            fs::write(dir.join(file), "{}").unwrap();
            set_age(&dir.join(file), age);
        }
        set_age(&dir, age);
        dir
    }

    #[test]
    fn directories_without_a_record_are_removed() {
        let (home, tmp) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scratch = Scratch::create_in(tmp.path()).unwrap();
        let name = |name: &str| name.parse().unwrap();
        let run = RunKey { namespace: name("default"), layer: name("x"), run: name("a") };
        let old = 2 * MIN_AGE;
        let layer = of_layer(home.path(), &run);
        let gone = [
            left(&layer.join("a"), "0", &[".partial-a", ".partial-b"], old),
            left(&layer.join("a"), "1", &[".partial-a", "SHA256SUMS", "datastore.url"], old),
            left(&layer.join("b"), "0", &["errored.tfstate.json"], Duration::ZERO),
            left(&layer.join("c"), "0", &[], old),
        ];
        let young = left(&layer.join("d"), "0", &[".partial-a"], old);
        fs::write(young.join(".partial-b"), "").unwrap();
        set_age(&young, old);
        let stay = [
            young,
            left(&layer.join("e"), "0", &[], Duration::ZERO),
            left(&layer.join("f"), "0", &[".partial-a", "attempt.json"], old),
            left(&layer.join("g"), "0", &["errored.tfstate", "errored.tfstate.json"], old),
            left(&layer.join("h"), "0", &["other"], old),
            left(&layer.join("i"), "0", &[".partial-a"], old),
        ];
        let _lock = directory::lock(stay.last().unwrap()).unwrap();
        // A state that was pushed, in a directory with other files; and one whose directory is missing.
        for (dir, state) in
            [(&gone[2], stay[4].join("errored.tfstate")), (&stay[0], "/none/x".into())]
        {
            fs::os::unix::fs::symlink(state, dir.join("errored.tfstate")).unwrap();
        }

        remove_leftovers(Some(home.path()), &scratch, &run);

        // The removal of the record has changed its directory.
        assert!(!gone[2].join("errored.tfstate.json").exists());
        assert!(fs::symlink_metadata(gone[2].join("errored.tfstate")).is_err());
        fs::symlink_metadata(stay[0].join("errored.tfstate")).unwrap();
        set_age(&gone[2], old);
        remove_leftovers(Some(home.path()), &scratch, &run);
        for dir in gone {
            assert!(!dir.exists(), "{}", dir.display());
        }
        assert!(!layer.join("a").exists());
        for dir in &stay {
            assert!(dir.exists(), "{}", dir.display());
        }
        assert!(stay[3].join("errored.tfstate.json").exists());
    }
}
