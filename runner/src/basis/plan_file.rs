//! A plan in a file: how it is written, the record beside it, and what the file itself says of its origin.
//!
//! The record of `FILE` is `FILE.run.json`, the same document as `run.json` in a datastore.

mod contents;
mod msgpack;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fs_err as fs;
use tempfile::NamedTempFile;

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
pub(crate) fn export_plan(plan: &Path, to: &Path, report: &Report) -> io::Result<()> {
    let record = record_path(to);
    // A link stays one.
    let to = &fs::canonicalize(to).unwrap_or_else(|_| to.to_owned());
    // Both find room before either is seen.
    let staged_plan = stage(to, &mut fs::File::open(plan)?)?;
    let staged_record = stage(&record, &mut report.to_json().as_bytes())?;
    staged_record.persist(record)?;
    staged_plan.persist(to)?;
    Ok(())
}

/// Whether this existing file is a plan, which another may replace: by its form, or by the record beside it.
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
    let file = match fs::File::open(record_path(plan)) {
        Ok(file) => io::BufReader::new(io::Read::take(file, MAX_RECORD)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let record = serde_json::from_reader::<_, PlanRecord>(file).map_err(io::Error::from)?;
    if record.plan.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it records no plan"));
    }
    Ok(Some(record))
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
