//! The programs of the operator before and after an apply: which ones, and where they may be. When they run is not known here.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::cli::HookArgs;
use crate::source::checkout::Source;

/// Programs, as absolute paths without links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    /// It may refuse the apply.
    pub(crate) before_apply: Option<PathBuf>,
    pub(crate) after_apply: Option<PathBuf>,
}

impl Hooks {
    /// Finds the programs before anything runs. What is wrong with one of them is the error.
    pub(crate) fn find(args: &HookArgs, source: &Source) -> Result<Self, String> {
        let source = source.local_root().filter(|_| !args.hooks_from_source);
        let hook = |flag: &str, path: &Option<PathBuf>| {
            let found = path.as_deref().map(|path| find(path, source.as_deref()));
            found.transpose().map_err(|reason| format!("{flag}: {reason}"))
        };
        Ok(Self {
            before_apply: hook("--before-apply", &args.before_apply)?,
            after_apply: hook("--after-apply", &args.after_apply)?,
        })
    }
}

fn find(path: &Path, source: Option<&Path>) -> Result<PathBuf, String> {
    let found = std::fs::canonicalize(path)
        .and_then(|real| Ok((std::fs::metadata(&real)?, real)))
        .map_err(|error| format!("{}: {error}: name an executable file", path.display()));
    let (metadata, real) = found?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        return Err(format!("{} is not an executable file", path.display()));
    }
    match source {
        Some(source) if real.starts_with(source) => Err(format!(
            "{} is part of the source {}: anyone who changes the code could change it; keep it in another place, or accept it \
             with --hooks-from-source",
            path.display(),
            source.display()
        )),
        _ => Ok(real),
    }
}
