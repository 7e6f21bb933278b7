//! Searches the configuration files of all modules for a text.

use std::io;
use std::path::{Path, PathBuf};

use crate::source::path::normal;
use crate::source::references::installed::installed;
use crate::source::references::{files, is_configuration, text};

/// The first configuration file of the module in `root`, and of all modules that init has installed, whose text `has` something.
/// The tool keeps its data in `data_dir`.
pub(super) fn first_file(
    root: &Path,
    data_dir: &Path,
    has: impl Fn(&Path, &str) -> bool,
) -> io::Result<Option<PathBuf>> {
    let installed = installed(&data_dir.join("modules"))?.into_iter();
    let mut modules = vec![root.to_owned()];
    modules.extend(installed.map(|module| normal(&root.join(module.dir))));
    for module in modules {
        for file in files(&module)? {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            let text = if is_configuration(&name) { text(&file) } else { None };
            if text.is_some_and(|text| has(&file, &text)) {
                return Ok(Some(file));
            }
        }
    }
    Ok(None)
}
