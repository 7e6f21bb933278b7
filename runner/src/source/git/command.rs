//! The `git` program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::process::{self, Program};
use crate::source::git::reason::reason_of;

/// Variables that git sets for its hooks. If a hook starts the runner, they would select the hook's repository.
const WITHOUT: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
];

/// Settings with which git looks at every file itself. Others hide changes.
const CHECKED: [&str; 6] =
    ["-c", "core.fsmonitor=false", "-c", "core.checkStat=default", "-c", "core.trustctime=true"];

/// Git in a directory. A commit is what its name says: objects that `refs/replace` has in its place do not count.
pub(super) fn program(
    dir: &Path,
    args: &[impl AsRef<OsStr>],
    mut env: Vec<(String, OsString)>,
) -> Program {
    env.push(("GIT_NO_REPLACE_OBJECTS".to_owned(), "1".into()));
    let args = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
    Program {
        path: PathBuf::from("git"),
        args,
        dir: dir.to_owned(),
        env,
        without: WITHOUT,
        lock: None,
        forwards: false,
    }
}

/// Runs git and returns its output; the error is its reason. It neither waits for nor takes the lock of the index.
pub(in crate::source) async fn question(
    dir: &Path,
    args: &[impl AsRef<OsStr>],
) -> Result<Vec<u8>, String> {
    let env = [("GIT_OPTIONAL_LOCKS", "0"), ("LC_ALL", "C")];
    let env = env.map(|(name, value)| (name.to_owned(), OsString::from(value))).to_vec();
    let args = CHECKED.iter().map(OsStr::new).chain(args.iter().map(AsRef::as_ref));
    match process::output(&program(dir, &args.collect::<Vec<_>>(), env)).await {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(reason_of(&String::from_utf8_lossy(&output.stderr), output.status)),
        Err(error) => Err(error.to_string()),
    }
}
