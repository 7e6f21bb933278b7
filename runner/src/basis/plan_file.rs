//! A plan in a file, the record beside it, and the origin that the file itself contains.
//!
//! The record of `FILE` is `FILE.run.json`, the same document as `run.json` in a datastore.

mod contents;
mod msgpack;
mod planned;
mod protobuf;
mod same_code;
mod state;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use tempfile::NamedTempFile;

pub(crate) use contents::{Contents, ephemeral_variables, may_be_targeted};
pub(crate) use planned::each_value;
pub(crate) use same_code::other_code;
pub(crate) use state::{StateVersion, begins_without_state, state_size_in_plan, version_in_plan};

use crate::report::{PlanRecord, Report};
use crate::source::path::resolve;
use crate::source::regular;

/// A larger record is not read.
const MAX_RECORD: u64 = 16 << 20;

/// The record of the plan in this file.
pub(crate) fn record_path(plan: &Path) -> PathBuf {
    let mut name = plan.as_os_str().to_owned();
    name.push(".run.json");
    name.into()
}

/// Writes the plan and its record for the user, with mode 0600, each in one step. If they do not belong together, the
/// apply refuses the plan.
pub(crate) fn export_plan(plan: &Path, to: &Path, report: &Report) -> io::Result<()> {
    let record = record_path(to);
    // A symbolic link is kept; its target is replaced, or created.
    let to = &resolve(&std::path::absolute(to)?)?;
    // Both are written completely before either becomes visible.
    let staged_plan = stage(to, &mut fs::File::open(plan)?)?;
    let staged_record = stage(&record, &mut report.to_json().as_bytes())?;
    staged_record.persist(record)?;
    staged_plan.persist(to)?;
    Ok(())
}

/// Whether an existing file is a plan, which may be replaced: by its format, or by the record beside it.
pub(crate) fn is_plan(path: &Path) -> bool {
    let is_archive = || {
        let mut archive = zip::ZipArchive::new(fs::File::open(path).ok()?).ok()?;
        let has_plan = archive.by_name("tfplan").is_ok();
        Some(has_plan)
    };
    is_archive() == Some(true) || matches!(record(path), Ok(Some(_)))
}

fn stage(to: &Path, from: &mut impl io::Read) -> io::Result<NamedTempFile> {
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".plancha-")
        .tempfile_in(directory.unwrap_or(Path::new(".")))?;
    io::copy(from, &mut file)?;
    file.flush()?;
    Ok(file)
}

/// The record of the plan in this file. `None`: there is none.
pub(crate) fn record(plan: &Path) -> io::Result<Option<PlanRecord>> {
    let file = regular::unless_missing(regular::open_followed(&record_path(plan)))?;
    let Some(file) = file else { return Ok(None) };
    let file = io::BufReader::new(io::Read::take(file, MAX_RECORD));
    let record = serde_json::from_reader::<_, PlanRecord>(file).map_err(io::Error::from)?;
    // Every release that writes this file writes both.
    let missing = match (&record.plan, &record.place) {
        (None, _) => "it records no plan",
        (_, None) => "it does not record the place that the plan was made for",
        _ => return Ok(Some(record)),
    };
    Err(io::Error::new(io::ErrorKind::InvalidData, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_cannot_be_written_leaves_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let (plan, to) = (dir.path().join("plan.bin"), dir.path().join("p"));
        let report = Report::new("plan", jiff::Timestamp::now());
        export_plan(&plan, &to, &report).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::write(&plan, "a plan").unwrap();
        export_plan(&plan, &to, &report).unwrap();
        assert!(to.exists() && record_path(&to).exists());
    }
}
