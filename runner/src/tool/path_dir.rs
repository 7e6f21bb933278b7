//! Puts the resolved tools on `PATH`, under their own names, for everything that they start: `local-exec`, hooks, scripts.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::Path;

use fs_err as fs;

use crate::release::Installed;

/// The default without a `PATH`.
const DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A `PATH` that begins with `dir`, a new directory that holds a link to each of the tools.
pub(crate) fn with_tools<'a>(
    dir: &Path,
    tools: impl IntoIterator<Item = &'a Installed>,
    path: &OsStr,
) -> std::io::Result<OsString> {
    fs::create_dir(dir)?;
    for tool in tools {
        symlink(&tool.path, dir.join(tool.tool.program()))?;
    }
    let path = if path.is_empty() { OsStr::new(DEFAULT) } else { path };
    let mut with = dir.as_os_str().to_owned();
    with.push(":");
    with.push(path);
    Ok(with)
}
