//! What an apply writes into its lock files. They are removed when it ends, so who finds it there knows that the runner
//! was killed: its tool may still work, or have left a state, whatever the layer and the directory for temporary files.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::{
    MissingCode, Scratch, UNSENT, adopt_record, is_orphaned, is_own, is_used, missing_code,
    states_left,
};
use crate::source::states::{KeptState, PushRecord};

/// A killed apply, or this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KilledApply {
    /// The private directory of its run. Another run may have the path by now.
    scratch: PathBuf,
    /// Its layer, with the namespace.
    layer: String,
    /// The same record as in that directory.
    push: PushRecord,
}

impl KilledApply {
    /// What this apply is for a later one if the runner is killed.
    pub(crate) fn of_this_run(scratch: &Scratch, layer: &str, push: &PushRecord) -> Self {
        let dir = std::path::absolute(&scratch.dir).unwrap_or_else(|_| scratch.dir.clone());
        Self { scratch: dir, layer: layer.trim().to_owned(), push: push.clone() }
    }

    /// Its layer, with the namespace.
    pub(crate) fn layer(&self) -> &str {
        &self.layer
    }

    /// The name of its private directory.
    pub(crate) fn name(&self) -> Option<&Path> {
        self.scratch.file_name().map(Path::new)
    }

    /// Whether a kept state is of the same state and workspace.
    pub(crate) fn is_of(&self, state: &KeptState) -> bool {
        let same = |theirs: &PushRecord| {
            (theirs.state, &theirs.workspace) == (self.push.state, &self.push.workspace)
        };
        state.record.as_ref().is_none_or(same)
    }

    /// Its private directory, if that is still there.
    fn dir(&self) -> io::Result<Option<&Path>> {
        let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        match fs::symlink_metadata(&self.scratch) {
            Err(error) if missing.contains(&error.kind()) => return Ok(None),
            found => found?,
        };
        let is_ours = self.scratch.is_absolute() && is_own(&self.scratch);
        let is_same = || PushRecord::of_directory(&self.scratch).as_ref() == Some(&self.push);
        Ok(Some(&*self.scratch).filter(|_| is_ours && is_same()))
    }

    /// Its private directory, if its tool still works.
    pub(crate) fn orphaned(&self) -> io::Result<Option<PathBuf>> {
        Ok(self.dir()?.filter(|dir| is_orphaned(dir)).map(Path::to_owned))
    }

    /// The states that it has left. Without its private directory, those where its code stays.
    pub(crate) fn left_states(&self) -> io::Result<Vec<KeptState>> {
        match self.dir()? {
            Some(dir) if is_used(dir) => Ok(Vec::new()),
            Some(dir) => states_left(dir),
            None => KeptState::of_code(&self.push, &self.scratch),
        }
    }

    /// The directory of files that it could not store.
    pub(crate) fn left_unsent(&self) -> io::Result<Option<PathBuf>> {
        let Some(dir) = self.dir()?.filter(|dir| !is_used(dir)) else { return Ok(None) };
        adopt_record(dir);
        Ok(Some(dir.join(UNSENT)).filter(|dir| dir.is_dir()))
    }

    /// Its code, if that is out of reach.
    pub(crate) fn missing_code(&self) -> io::Result<Option<MissingCode>> {
        Ok(self.dir()?.filter(|dir| !is_used(dir)).and_then(missing_code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_of_the_same_apply_is_searched() {
        let parent = tempfile::tempdir().unwrap();
        let push = |path: &str| PushRecord::new("terraform".to_owned(), None, Path::new(path));
        let scratch = Scratch::create_in(parent.path()).unwrap();
        let apply = KilledApply::of_this_run(&scratch, "default/x\n", &push("a"));
        scratch.keep_all();
        let dir = scratch.join("");
        let state = dir.join("errored.tfstate");
        let left = || apply.left_states().unwrap().into_iter().map(|left| left.file);
        fs::write(&state, "{}").unwrap();
        scratch.record_apply("default/x\n", &push("a")).unwrap();
        assert_eq!(left().count(), 0, "its run works");
        drop(scratch);
        assert_eq!(left().collect::<Vec<_>>(), [&*state]);
        // Another run has the path by now.
        push("b").write_for_directory(&dir).unwrap();
        assert_eq!(left().count(), 0);
        push("a").write_for_directory(&dir).unwrap();
        assert_eq!(left().count(), 1);
        // A lock file may name any directory.
        let other = parent.path().join("other");
        fs::rename(&dir, &other).unwrap();
        assert_eq!(left().count(), 0);
        let other = KilledApply { scratch: other, ..apply.clone() };
        assert!(other.left_states().unwrap().is_empty());
        assert!(other.missing_code().unwrap().is_none() && other.orphaned().unwrap().is_none());
    }
}
