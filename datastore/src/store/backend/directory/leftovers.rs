//! Staged files that a killed process or a power failure has left in a directory.
//!
//! A staged file is named `<name>#<number>`, which no object may be named. No listing shows it, so only this sweep removes it.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::store::backend::directory::staged::is_staged;

/// A staged file of this age is abandoned.
const AGE: Duration = Duration::from_hours(24);

/// Removes every abandoned staged file, and returns their number.
pub(in crate::store) fn sweep(root: &Path, now: SystemTime) -> io::Result<usize> {
    let mut swept = 0;
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            // Empty directories may be removed at any time.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_dir() {
                directories.push(entry.path());
            } else if meta.is_file() && is_staged(&entry.file_name().to_string_lossy()) {
                let age = now.duration_since(meta.modified()?).unwrap_or_default();
                if age > AGE && std::fs::remove_file(entry.path()).is_ok() {
                    swept += 1;
                }
            }
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_staged_files_are_removed() {
        let root = tempfile::TempDir::new().unwrap();
        let below = root.path().join("layers/a#1");
        std::fs::create_dir_all(&below).unwrap();
        for name in ["plan.bin#1", "plan.bin#23", "plan.bin", "plan.bin#", "a#1.gitbundle", "#x"] {
            std::fs::write(below.join(name), "x").unwrap();
        }
        let left = || {
            let entries = std::fs::read_dir(&below).unwrap();
            let mut names = entries.map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
            names.sort();
            names
        };
        let now = SystemTime::now();
        assert_eq!(sweep(root.path(), now).unwrap(), 0);
        assert_eq!(left().len(), 6);
        assert_eq!(sweep(root.path(), now + AGE + Duration::from_mins(1)).unwrap(), 2);
        assert_eq!(left(), ["#x", "a#1.gitbundle", "plan.bin", "plan.bin#"]);
        assert_eq!(sweep(&root.path().join("none"), now).unwrap(), 0);
    }
}
