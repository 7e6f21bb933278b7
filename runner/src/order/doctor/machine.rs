//! This machine: its disks and the home directory.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

use crate::cli::{BIN_DIR, DoctorArgs, Environment};
use crate::order::doctor::check::{Check, limited};

/// Less room is a warning, or too little for any run.
const LITTLE: u64 = 512 << 20;
const TOO_LITTLE: u64 = 16 << 20;

/// What to do about the directory for files that could not be stored, and about that of the tools.
const KEPT: &str = "set XDG_STATE_HOME or HOME to a directory that can be written and outlives the run: files that the \
                    datastore does not take are kept there";
const TOOLS: &str = "name a directory that can be written and has room with --bin-dir, or use versions that are installed";

pub(super) async fn checks(args: &DoctorArgs, environment: &Environment) -> Vec<Check> {
    let bin_dir = match &args.tools.bin_dir {
        Some(dir) => Some(dir.clone()),
        None if environment.pod.layer.is_some() => Some(PathBuf::from(BIN_DIR)),
        None => environment.cache_home.as_ref().map(|home| home.join("plancha/bin")),
    };
    let state = environment.state_home.as_ref().map(|home| home.join("plancha"));
    let home = environment.home.clone();
    // A file system may not respond.
    let examined = tokio::task::spawn_blocking(move || {
        vec![
            temporary(&std::env::temp_dir()),
            optional(
                "state-home",
                state.as_deref(),
                "neither HOME nor XDG_STATE_HOME is set",
                KEPT,
            ),
            optional(
                "bin-dir",
                bin_dir.as_deref(),
                "neither HOME nor XDG_CACHE_HOME is set",
                TOOLS,
            ),
            of_home(home.as_deref()),
        ]
    });
    match limited(examined).await {
        Ok(Ok(checks)) => checks,
        Ok(Err(error)) => {
            vec![Check::fail("disk", 1, error.to_string(), "report this line as a bug")]
        }
        Err(reason) => vec![Check::fail(
            "disk",
            1,
            format!("a file system does not respond: {reason}"),
            "check the file systems of TMPDIR, HOME and --bin-dir",
        )],
    }
}

/// The directory for temporary files.
fn temporary(dir: &Path) -> Check {
    const NAME: &str = "disk";
    const HINT: &str = "set TMPDIR to a directory that can be written and has room";
    let shown = dir.display();
    // A run does not create it.
    let room = if dir.is_dir() { room(dir) } else { Err("it is not a directory".to_owned()) };
    match room {
        Err(reason) => Check::fail(NAME, 8, format!("TMPDIR {shown}: {reason}"), HINT),
        Ok(free) if free < TOO_LITTLE => {
            Check::fail(NAME, 1, format!("TMPDIR {shown} has only {}", mebibytes(free)), HINT)
        }
        Ok(free) if free < LITTLE => {
            Check::warn(NAME, format!("TMPDIR {shown} has only {}", mebibytes(free)), HINT)
        }
        Ok(free) => Check::ok(NAME, format!("TMPDIR {shown} has {}", mebibytes(free))),
    }
}

/// A directory that a run can do without. `unset` says why there is none.
fn optional(name: &'static str, dir: Option<&Path>, unset: &str, hint: &str) -> Check {
    let Some(dir) = dir else { return Check::warn(name, unset, hint) };
    let shown = dir.display();
    match room(dir) {
        Err(reason) => Check::warn(name, format!("{shown}: {reason}"), hint),
        Ok(free) if free < LITTLE => {
            Check::warn(name, format!("{shown} has only {}", mebibytes(free)), hint)
        }
        Ok(free) => Check::ok(name, format!("{shown} has {}", mebibytes(free))),
    }
}

fn of_home(home: Option<&Path>) -> Check {
    const NAME: &str = "home";
    const HINT: &str =
        "set HOME to a directory of this user: tools, git and SDKs look for their settings there";
    match home {
        None => Check::warn(NAME, "HOME is not set", HINT),
        Some(home) if !home.is_dir() => {
            Check::warn(NAME, format!("{} is not a directory", home.display()), HINT)
        }
        Some(home) => Check::ok(NAME, home.display().to_string()),
    }
}

/// The free bytes where a directory is, or would be created. An error: no file can be created there.
fn room(dir: &Path) -> Result<u64, String> {
    let existing = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    if !existing.is_dir() {
        return Err(format!("{} is not a directory", existing.display()));
    }
    // The file has no name, or is removed at once.
    tempfile::tempfile_in(existing).map_err(|error| format!("no file can be created: {error}"))?;
    let disk = statvfs(existing).map_err(|error| error.desc().to_owned())?;
    Ok(disk.blocks_available().saturating_mul(disk.fragment_size()))
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB free", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_of_a_directory_that_is_not_there_is_that_of_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        assert!(room(&dir.path().join("a/b")).unwrap() > 0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(room(&dir.path().join("file/x")).unwrap_err().contains("is not a directory"));
    }
}
