//! Why the code of a run could not be put in place.

use std::path::{Path, PathBuf};

use datastore_api::ClientError;

use crate::process::Stop;
use crate::process::url_secrets::{Parameters, masked};
use crate::source::archive::ArchiveError;
use crate::source::snapshot::SnapshotError;

/// A message names so many files.
const LISTED: usize = 5;

/// Why the code could not be checked out or copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckoutError {
    #[error("{} is not a directory{hint}", .path.display())]
    NotADirectory { path: PathBuf, hint: String },
    #[error("the archive {}", named(.path))]
    Archive {
        path: PathBuf,
        #[source]
        error: ArchiveError,
    },
    #[error("the source {} has no {} {}", named(.archive), if *.exists { "configuration in" } else { "directory" },
            shown(.path))]
    NoModule { archive: PathBuf, path: PathBuf, exists: bool, candidates: Vec<PathBuf> },
    #[error("the name of the file `{}` holds no path, with `{separator}` for `/`: {reason}", named(.file))]
    FlatName { file: PathBuf, separator: String, reason: &'static str },
    #[error("the files `{}` and `{}` have the same path", named(.first), named(.second))]
    SameFlatPath { first: PathBuf, second: PathBuf },
    #[error("the file `{}` has the place of a directory of the file `{}`", named(.first), named(.second))]
    FlatFileAbove { first: PathBuf, second: PathBuf },
    #[error("the source has no directory `{}`", .path.display())]
    NoSuchPath { path: PathBuf },
    #[error("the path `{}` is a file", .path.display())]
    FilePath { path: PathBuf },
    #[error("the source cannot be read")]
    Unreadable(#[source] std::io::Error),
    #[error("the source cannot be copied: {} is a link to a directory that contains it", named(.0))]
    LinkAbove(PathBuf),
    #[error("{place} reads {}, which is not in the source {}", .path.display(), .root.display())]
    Beside { path: PathBuf, place: String, root: PathBuf, dir: PathBuf },
    #[error("the path `{}` leads out of the source by a link", .path.display())]
    Outside { path: PathBuf },
    #[error("{url} has no revision `{revision}`")]
    NoSuchRevision { url: String, revision: String },
    #[error(
        "{url} does not contain the plan's commit {commit}: it has another history, or no longer has this commit"
    )]
    OtherHistory { url: String, commit: String },
    #[error("{url} is not a git repository, or not one that you may read: {reason}")]
    NoSuchRepository { url: String, reason: String },
    #[error("{url} refused the credentials, or requires some: {reason}")]
    Credentials { url: String, reason: String },
    #[error("{url} could not be reached: {reason}")]
    Network { url: String, reason: String },
    #[error("the git bundle {file} cannot be used: {reason}")]
    BadBundle { file: String, reason: String },
    #[error("git failed: {reason}")]
    Git { reason: String },
    #[error("{} contains files that the runner did not create: --work-dir needs a new or empty directory, or one of \
             an earlier run", .0.display())]
    ForeignFiles(PathBuf),
    #[error("{} contains the code of {theirs}, and perhaps its state, not that of {ours}", .dir.display())]
    OtherSource { dir: PathBuf, theirs: String, ours: String },
    #[error("the work directory {} contains {}, which the source does not have, and which the tool would read",
            .dir.display(), list(.files))]
    ForeignCode { dir: PathBuf, files: Vec<PathBuf> },
    #[error("the work directory {} contains changes of {}, which git hides (assume-unchanged or skip-worktree)",
            .dir.display(), list(.files))]
    HiddenChanges { dir: PathBuf, files: Vec<PathBuf> },
    #[error("another run is using {}", .0.display())]
    Busy(PathBuf),
    #[error("the git of a killed run still works in {}: a process has {} open", .dir.display(), .file.display())]
    GitRuns { dir: PathBuf, file: PathBuf },
    #[error("the work directory holds the state {}, but the code has the file {} in its place", .state.display(), .file.display())]
    StateInTheWay { state: PathBuf, file: PathBuf },
    #[error("the datastore has no bundle of {0}")]
    NoBundle(String),
    #[error("the bundle of {bundle} does not contain its revision {revision}")]
    NotInBundle { bundle: String, revision: String },
    #[error("{place} needs `{path}`, but the submodule `{submodule}` is empty{}", .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    EmptySubmodule {
        path: String,
        place: String,
        submodule: String,
        reason: Option<String>,
        next: String,
    },
    #[error("{place} needs the submodule {}, which has the files of an earlier run, and could not be brought up to date: {reason}", .submodule.display())]
    OutdatedSubmodule { place: String, submodule: PathBuf, reason: String },
    #[error("{place} reads {}, which the sparse checkout leaves out", named(.file))]
    LeftOut { file: PathBuf, place: String },
    #[error(
        "a path that the configuration computes for fileset() or fileexists() may name {}, which the sparse checkout \
         leaves out", named(.file)
    )]
    MayBeLeftOut { file: PathBuf },
    #[error("{place} reads `{file}`, but that is a git LFS pointer and not the file itself{}", .reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    LfsPointer { file: String, place: String, reason: Option<String>, next: String },
    #[error("the bundle")]
    Datastore(#[from] ClientError),
    #[error("the code could not be checked out or copied")]
    Io(#[from] std::io::Error),
    #[error("the code cannot be compared")]
    Unread(#[from] SnapshotError),
    #[error("the fetching of the code was stopped by {0}")]
    Stopped(Stop),
}

/// The name of a file in messages: it may be hostile, or hold a secret.
pub(super) fn named(path: &Path) -> String {
    masked(&path.display().to_string(), Parameters::Secret).escape_debug().to_string()
}

/// The first of some files.
pub(super) fn list(files: &[PathBuf]) -> String {
    let shown = files.iter().take(LISTED).map(|file| named(file)).collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A path in the source.
fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        "its root".to_owned()
    } else {
        format!("`{}`", path.display())
    }
}
