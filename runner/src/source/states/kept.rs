//! Kept states, and the records of what they are of and how they get into their backends.
//!
//! The record is beside the state (or beside the link that leads to it), and has its SHA-256 digest. The record of a copy
//! also names the original, if that stays where the tool wrote it. The directory of a
//! run that applies has one for all states that the run may leave. A state without a record, or with one of another
//! state, may be of any workspace.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use datastore_api::Sha256;
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::process::private_file;
use crate::source::checkout::source_id::SourceId;
use crate::source::regular::{self, unless_missing};
use crate::source::states;
use crate::source::states::name::DatastoreName;

/// The record for all states in the directory of a run.
const OF_DIRECTORY: &str = "push.json";
/// The record of one state is named like the state, with this at its end.
const SUFFIX: &str = ".json";
/// So is what the tool printed, where the state is not whole.
const OUTPUT_SUFFIX: &str = ".output";
const VERSION: u32 = 1;

/// How a state gets into its backend: what its apply ran with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PushRecord {
    version: u32,
    /// The tool, or terragrunt.
    pub(crate) program: String,
    /// The workspace, `default` included.
    pub(crate) workspace: Option<String>,
    /// The module inside the repository.
    pub(crate) path: PathBuf,
    /// The repository of the code, or its path. Older versions did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// The directory of the module, if it stays when the run ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dir: Option<PathBuf>,
    /// The file that the tool wrote, if the state is a copy and the file stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) original: Option<PathBuf>,
    /// Where the tool has written the state, if it was not found there. What is kept then is an empty file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost_in: Option<PathBuf>,
    /// The file of the user to which the state belongs, if it is one (`--state-out`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state_out: Option<PathBuf>,
    /// Whether another process had written that file since the apply read it, so that the state must not replace it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) replaced: bool,
    /// The state in the datastore of which it is a version, if the datastore keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) datastore: Option<DatastoreName>,
    /// Whether the tool's output is incomplete, such as on a full disk: a state in it may be cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cut: bool,
    /// Whether it is not known if the apply has left a state, because the tool's output is incomplete. What is kept then
    /// is an empty file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unknown: bool,
    /// Identifies the state in its backend: code with another name or path may have the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Sha256>,
    /// The names of variables that said which backend it is. Their values may be secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) variables: Vec<String>,
    /// Where terragrunt runs the tool, if that is not below the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runs_in: Option<PathBuf>,
    /// Identifies the directory of the module: another one may have its path later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dir_id: Option<DirId>,
    /// The digest of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<Sha256>,
}

/// What stays the same when a directory is moved, and differs in a copy. A mount may have another device number later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DirId {
    inode: u64,
    /// When it was created, where the file system records that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<SystemTime>,
}

impl DirId {
    fn of(dir: &Path) -> Option<Self> {
        let metadata = fs::metadata(dir).ok()?;
        Some(Self { inode: metadata.ino(), created: metadata.created().ok() })
    }
}

impl PushRecord {
    /// The record of an apply.
    pub(crate) fn new(program: String, workspace: Option<String>, path: &Path) -> Self {
        // JSON has only UTF-8, and the path is only shown.
        let path = path.to_string_lossy().into_owned().into();
        Self {
            version: VERSION,
            program,
            workspace,
            path,
            source: None,
            dir: None,
            original: None,
            lost_in: None,
            state_out: None,
            replaced: false,
            datastore: None,
            cut: false,
            unknown: false,
            state: None,
            variables: Vec::new(),
            runs_in: None,
            dir_id: None,
            sha256: None,
        }
    }

    /// The record of a state that the tool has written in this directory, where it was not found.
    pub(crate) fn of_lost(self, dir: &Path) -> Self {
        Self { lost_in: Some(dir.to_string_lossy().into_owned().into()), ..self }
    }

    /// The same with the file of the user to which the state belongs.
    pub(crate) fn of_file(self, file: Option<&Path>) -> Self {
        Self { state_out: file.map(|file| file.to_string_lossy().into_owned().into()), ..self }
    }

    /// The same with the note that another process has written that file since.
    pub(crate) fn of_replaced(self, replaced: bool) -> Self {
        Self { replaced, ..self }
    }

    /// The same with the state in the datastore.
    pub(crate) fn in_datastore(self, datastore: Option<DatastoreName>) -> Self {
        Self { datastore, ..self }
    }

    /// The same with what identifies the state in its backend.
    pub(crate) fn of_state(self, state: Option<Sha256>) -> Self {
        Self { state, ..self }
    }

    /// The same with the names of the variables that said which backend it is.
    pub(crate) fn with_variables(self, variables: Vec<String>) -> Self {
        Self { variables, ..self }
    }

    /// The same with the note that the tool's output is incomplete.
    pub(crate) fn of_cut(self) -> Self {
        Self { cut: true, ..self }
    }

    /// The record of an apply that may have left a state.
    pub(crate) fn of_unknown(self) -> Self {
        Self { unknown: true, ..self }
    }

    /// The same with the directory where terragrunt runs the tool.
    pub(crate) fn run_in(self, dir: Option<&Path>) -> Self {
        // A path that JSON cannot have would lead elsewhere.
        let runs_in = dir.filter(|dir| dir.to_str().is_some()).map(Path::to_owned);
        Self { runs_in, ..self }
    }

    /// The record of a copy whose original stays.
    pub(crate) fn of_original(self, original: &Path) -> Self {
        // A path that JSON cannot have would lead elsewhere.
        let original = Some(original.to_owned()).filter(|path| path.to_str().is_some());
        Self { original, ..self }
    }

    /// Whether the original of a copy still has the same contents.
    pub(crate) fn is_equal_to(&self, original: &Path) -> bool {
        self.sha256.is_some() && regular::sha256(original).ok() == self.sha256
    }

    /// The same with the repository or path of the code, and with the directory of the module if it stays.
    pub(crate) fn of_code(self, source: Option<&SourceId>, dir: Option<&Path>) -> Self {
        let dir = dir.map(|dir| fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned()));
        // A path that JSON cannot have would lead elsewhere.
        let dir = dir.filter(|dir| dir.to_str().is_some());
        let dir_id = dir.as_deref().and_then(DirId::of);
        Self { source: source.map(|id| id.root().to_owned()), dir, dir_id, ..self }
    }

    /// Whether another directory has the path of the module's by now.
    pub(crate) fn is_replaced(&self) -> bool {
        let Some((dir, id)) = self.dir.as_deref().zip(self.dir_id.as_ref()) else { return false };
        DirId::of(dir).is_some_and(|now| now != *id)
    }

    /// The states that the tool has left where the code stays.
    pub(crate) fn left_in_code(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = match &self.dir {
            Some(dir) => states::errored_in_place(dir)?,
            None => Vec::new(),
        };
        if let Some(dir) = &self.runs_in {
            found.extend(states::errored(dir)?);
        }
        Ok(found)
    }

    /// The directory of the module, if it still exists.
    pub(crate) fn existing_dir(&self) -> Option<&Path> {
        self.dir.as_deref().filter(|dir| dir.is_dir())
    }

    /// Records it beside `name`: the state itself, or a link that leads to it.
    pub(crate) fn write(&self, state: &Path, name: &Path) -> io::Result<()> {
        let sha256 = Some(regular::sha256(state)?);
        Self { sha256, ..self.clone() }.write_to(&record_of(name))
    }

    /// Records it for all states in a directory.
    pub(crate) fn write_for_directory(&self, dir: &Path) -> io::Result<()> {
        self.write_to(&dir.join(OF_DIRECTORY))
    }

    /// The record for all states in a directory.
    pub(crate) fn of_directory(dir: &Path) -> Option<Self> {
        Self::read(&dir.join(OF_DIRECTORY))
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
    /// The file to push.
    pub(crate) file: PathBuf,
    /// Other files of the same state, which are removed with it.
    pub(crate) others: Vec<PathBuf>,
    /// The runner's own copy. It counts until the backend has the state.
    pub(crate) copy: Option<PathBuf>,
    /// The private directory of the run that has left the state, if that was killed.
    pub(crate) found_in: Option<PathBuf>,
    pub(crate) record: Option<PushRecord>,
    /// The repository of its code, or the path. It is known even if the file has another state by now.
    pub(crate) source: Option<String>,
}

impl KeptState {
    /// The state in a file. Its record is beside `name`: the file itself, or a link that leads to it.
    pub(crate) fn read(file: PathBuf, name: &Path) -> Self {
        let record = PushRecord::read(&record_of(name));
        let source = record.as_ref().and_then(|record| record.source.clone());
        let record = record.filter(|record| {
            let actual = regular::sha256(&file).ok();
            actual.is_some() && record.sha256 == actual
        });
        Self { file, others: Vec::new(), copy: None, found_in: None, record, source }
    }

    /// A state in the directory of a run.
    pub(crate) fn in_directory(file: PathBuf, dir: &Path) -> Self {
        let name = file.clone();
        let state = Self::read(file, &name);
        let of_directory = PushRecord::of_directory(dir);
        let source = of_directory.as_ref().and_then(|record| record.source.clone());
        let (record, source) = (state.record.or(of_directory), state.source.or(source));
        Self { record, source, found_in: Some(dir.to_owned()), ..state }
    }

    /// The states that the run of a directory has left where its code stays.
    pub(crate) fn of_kept_code(dir: &Path) -> io::Result<Vec<Self>> {
        PushRecord::of_directory(dir).map_or(Ok(Vec::new()), |record| Self::of_code(&record, dir))
    }

    /// The states where the code of a run stays, by its record. Its directory may be missing.
    pub(crate) fn of_code(record: &PushRecord, dir: &Path) -> io::Result<Vec<Self>> {
        let files = record.left_in_code()?.into_iter();
        let states = files.map(|file| Self::in_directory(file, dir));
        Ok(states
            .map(|state| Self {
                record: state.record.or_else(|| Some(record.clone())),
                source: state.source.or_else(|| record.source.clone()),
                ..state
            })
            .collect())
    }

    /// Whether it is a version of this state, if that is known.
    pub(crate) fn is_version_of(&self, state: Option<Sha256>) -> bool {
        let theirs = self.record.as_ref().and_then(|record| record.state);
        theirs.is_some() && theirs == state
    }

    /// Whether this file is the state, or another file of it.
    pub(crate) fn is_of(&self, file: &Path) -> bool {
        self.file == file || self.others.iter().any(|other| other == file)
    }

    /// What it is of, as far as that is known: its layer, repository or path, module and workspace.
    pub(crate) fn described(&self, layer: Option<&str>) -> String {
        let record = self.record.as_ref();
        let path = record.map(|record| record.path.display().to_string());
        let path = path.filter(|path| !path.is_empty());
        let parts = [
            self.source.as_ref().map(|source| {
                let kind = if source.starts_with('/') { "code in" } else { "repository" };
                format!("{kind} {source}")
            }),
            path.map(|path| format!("path {path}")),
            record
                .and_then(|record| record.workspace.as_ref())
                .map(|name| format!("workspace {name}")),
        ];
        let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        match (layer, parts.is_empty()) {
            (Some(layer), true) => format!("of the layer {layer}"),
            (Some(layer), false) => format!("of the layer {layer} ({parts})"),
            (None, true) => "of an unknown layer".to_owned(),
            (None, false) => format!("of an unknown layer ({parts})"),
        }
    }
}

/// The repository or path of the code, by the record beside a name.
pub(crate) fn source_beside(name: &Path) -> Option<String> {
    PushRecord::read(&record_of(name))?.source
}

/// Whether a file is named like the record of a kept state, or like the output that is kept with one.
pub(crate) fn is_record(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let state = name.strip_suffix(SUFFIX).or_else(|| name.strip_suffix(OUTPUT_SUFFIX));
    state.is_some_and(|state| states::is_kept(OsStr::new(state)))
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

/// The file with the record of a kept state, or of a link that leads to one.
pub(crate) fn record_of(name: &Path) -> PathBuf {
    with_suffix(name, SUFFIX)
}

/// The file with what the tool printed, beside a kept state that is not whole.
pub(crate) fn output_of(name: &Path) -> PathBuf {
    with_suffix(name, OUTPUT_SUFFIX)
}

fn with_suffix(name: &Path, suffix: &str) -> PathBuf {
    let mut path = name.as_os_str().to_owned();
    path.push(suffix);
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
