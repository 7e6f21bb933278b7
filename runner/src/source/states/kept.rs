//! Kept states, and the records of how they get into their backends.
//!
//! The record is beside the state (or beside the link that leads to it), and has its SHA-256 digest. The directory of a
//! run that applies has one for all states that the run may leave. A state without a record, or with one of another
//! state, may be of any workspace.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::process::private_file;
use crate::source::regular::{self, unless_missing};
use crate::source::states;

/// The record for all states in the directory of a run.
const OF_DIRECTORY: &str = "push.json";
/// The record of one state is named like the state, with this at its end.
const SUFFIX: &str = ".json";
const VERSION: u32 = 1;

/// How a state gets into its backend: what its apply ran with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PushRecord {
    version: u32,
    /// The tool, or terragrunt.
    pub(crate) program: String,
    /// The workspace, `default` included.
    pub(crate) workspace: Option<String>,
    /// The module inside the source.
    pub(crate) path: PathBuf,
    /// The digest of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
}

impl PushRecord {
    /// The record of an apply.
    pub(crate) fn new(program: String, workspace: Option<String>, path: &Path) -> Self {
        // JSON has only UTF-8, and the path is only shown.
        let path = path.to_string_lossy().into_owned().into();
        Self { version: VERSION, program, workspace, path, sha256: None }
    }

    /// Records it beside `name`: the state itself, or a link that leads to it.
    pub(crate) fn write(&self, state: &Path, name: &Path) -> io::Result<()> {
        let sha256 = Some(regular::sha256(state)?);
        Self { sha256, ..self.clone() }.write_to(&beside(name))
    }

    /// Records it for all states in a directory.
    pub(crate) fn write_for_directory(&self, dir: &Path) -> io::Result<()> {
        self.write_to(&dir.join(OF_DIRECTORY))
    }

    fn write_to(&self, path: &Path) -> io::Result<()> {
        let mut file = private_file(path)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()
    }

    fn read(path: &Path) -> Option<Self> {
        let record = serde_json::from_slice::<Self>(&regular::read(path).ok()?).ok()?;
        (record.version == VERSION).then_some(record)
    }
}

/// A kept state, and how it gets into its backend, if that is known.
#[derive(Clone, Debug)]
pub(crate) struct KeptState {
    pub(crate) file: PathBuf,
    pub(crate) record: Option<PushRecord>,
}

impl KeptState {
    /// The state in a file. Its record is beside `name`: the file itself, or a link that leads to it.
    pub(crate) fn read(file: PathBuf, name: &Path) -> Self {
        let record = PushRecord::read(&beside(name)).filter(|record| {
            let actual = regular::sha256(&file).ok();
            actual.is_some() && record.sha256 == actual
        });
        Self { file, record }
    }

    /// A state in the directory of a run.
    pub(crate) fn in_directory(file: PathBuf, dir: &Path) -> Self {
        let name = file.clone();
        let state = Self::read(file, &name);
        Self { record: state.record.or_else(|| PushRecord::read(&dir.join(OF_DIRECTORY))), ..state }
    }
}

/// Whether a file is named like the record of a kept state.
pub(crate) fn is_record(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.strip_suffix(SUFFIX).is_some_and(|state| states::is_kept(OsStr::new(state)))
}

/// Removes the records in a directory whose states are not there any more.
pub(crate) fn remove_orphaned_records(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_record = path.file_name().is_some_and(is_record);
        if is_record && unless_missing(fs::symlink_metadata(path.with_extension("")))?.is_none() {
            unless_missing(fs::remove_file(path))?;
        }
    }
    Ok(())
}

fn beside(name: &Path) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    path.push(SUFFIX);
    path.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn record_of_a_path_that_is_not_utf_8_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = Path::new(OsStr::from_bytes(b"live/\xff")).to_owned();
        let record = PushRecord::new("tofu".to_owned(), None, &path);
        record.write_for_directory(dir.path()).unwrap();
        let state = KeptState::in_directory(dir.path().join("errored.tfstate"), dir.path());
        assert_eq!(state.record.unwrap().program, "tofu");
    }
}
