//! A plan in a file: how it is written, the record beside it, and what the file itself says of its origin.
//!
//! The record of `FILE` is `FILE.run.json`, the same document as `run.json` in a datastore.

mod contents;
mod msgpack;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

pub(crate) use contents::Contents;

use crate::report::{PlanRecord, Report};

/// A record of more than this is none.
const MAX_RECORD: u64 = 16 << 20;

/// The record of the plan in this file.
pub(crate) fn record_path(plan: &Path) -> PathBuf {
    let mut name = plan.as_os_str().to_owned();
    name.push(".run.json");
    name.into()
}

/// Puts the plan and its record where the caller wants them: 0600, each whole or not at all. A plan and a
/// record that do not belong together are refused when the plan is applied.
pub(crate) fn hand_out(plan: &Path, to: &Path, report: &Report) -> io::Result<()> {
    replace(&record_path(to), &mut report.to_json().as_bytes())?;
    // A link stays one.
    let to = &fs::canonicalize(to).unwrap_or_else(|_| to.to_owned());
    replace(to, &mut fs::File::open(plan)?)
}

fn replace(to: &Path, from: &mut impl io::Read) -> io::Result<()> {
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".plancha-")
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    io::copy(from, &mut file)?;
    file.flush()?;
    file.persist(to)?;
    Ok(())
}

/// The record of the plan in this file. `None`: there is none, or it cannot be read.
pub(crate) fn record(plan: &Path) -> Option<PlanRecord> {
    let path = record_path(plan);
    let read = || -> io::Result<PlanRecord> {
        let file = io::BufReader::new(io::Read::take(fs::File::open(&path)?, MAX_RECORD));
        serde_json::from_reader(file).map_err(io::Error::from)
    };
    match read() {
        Ok(record) => Some(record),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!("the record {} cannot be read: {error}", path.display());
            None
        }
    }
}
