//! What the output of a killed run's tool shows: how its apply has ended, and whether the record counts that the run has
//! written before its tool started.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::process::Log;
use crate::source::regular::{self, unless_missing};
use crate::tool::diagnostics::ApplyEnd;

/// The run's log.
pub(crate) const LOG: &str = "run.log";
/// A plan that the same command applies and that is stored nowhere.
pub(crate) const APPROVED: &str = "approved.bin";
/// The directory of files that could not be stored.
pub(crate) const UNSENT: &str = "unsent";
/// The directory of the record of an apply, before its tool starts. If the runner is killed, and the tool has said that the
/// apply is complete, the record counts like one that could not be stored.
pub(crate) const AHEAD: &str = "unsent-if-complete";

/// What the tool of the run in a private directory prints.
pub(crate) fn output_of(dir: &Path) -> PathBuf {
    Log::output_of(&dir.join(LOG))
}

/// What the tool of a killed run has said about the end of its apply; `None`: there is no output.
pub(super) fn apply_end(dir: &Path) -> io::Result<Option<ApplyEnd>> {
    let output = unless_missing(regular::open(&output_of(dir)))?;
    output.map(|output| ApplyEnd::read(io::BufReader::new(output))).transpose()
}

/// Whether the tool of a killed run has said that its apply is complete: then it has left no state.
pub(super) fn has_completed(dir: &Path) -> bool {
    apply_end(dir).is_ok_and(|end| end.is_some_and(ApplyEnd::is_complete))
}

/// Moves the record of a killed apply that is complete to the unsent files. Without one, nothing changes. Neither the runner
/// nor its tool works any more.
pub(super) fn adopt_record(dir: &Path) {
    let record = dir.join(AHEAD);
    if !record.is_dir() || !has_completed(dir) {
        return;
    }
    // Another run may do the same.
    if let Err(error) = fs::rename(record, dir.join(UNSENT)) {
        tracing::debug!("the record of a killed apply stays where it is: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_counts_if_the_apply_is_complete() {
        const COMPLETE: &str = "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.\n";
        for (output, counts) in [
            (Some(COMPLETE.to_owned()), true),
            (Some(format!("{COMPLETE}Error: Failed to save state\n")), false),
            (Some("terraform_data.a: Creating...\n".to_owned()), false),
            (None, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join(AHEAD)).unwrap();
            fs::write(dir.path().join(AHEAD).join("applied.json"), "{}").unwrap();
            if let Some(output) = &output {
                fs::write(output_of(dir.path()), output).unwrap();
            }
            adopt_record(dir.path());
            let found = dir.path().join(UNSENT).join("applied.json").exists();
            assert_eq!(found, counts, "{output:?}");
        }
    }
}
