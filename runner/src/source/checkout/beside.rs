//! Refuses code that reads files beside its source: where the code is copied, unpacked or checked out, they are missing, and
//! a `fileset` of them is empty.

use std::path::Path;

use crate::source::error::CheckoutError;
use crate::source::path::normal;
use crate::source::references;
use crate::source::references::installed::Called;

/// Refuses the module in `dir`, which is below `root`, if it reads a relative path that leads out of `root` to something that
/// exists. Without its own files the plan would delete what was made of them.
pub(super) fn check(root: &Path, dir: &Path, called: &Called) -> Result<(), CheckoutError> {
    let (root, dir) = (normal(root), normal(dir));
    let references = references::read(&dir, called).map_err(CheckoutError::Unreadable)?;
    let is_beside = |path: &Path| !path.starts_with(&root) && path.exists();
    let found = references.paths.into_iter();
    let mut found = found.filter(|(path, _)| !references.absolute.contains(path));
    match found.find(|(path, _)| is_beside(path)) {
        Some((path, place)) => Err(CheckoutError::Beside { path, place, root, dir }),
        None => Ok(()),
    }
}
