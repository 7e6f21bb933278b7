//! The digest of an object in a directory, as an extended attribute of its file.
//!
//! The attribute is part of the file, so renames and power failures cannot separate the two. It names the version of the file
//! that it describes, as a record does (`digest_record.rs`). So a file that was changed in place is detected, and a copy with
//! attributes (`cp -a`) is compared with its digest.

use std::fs::File;
use std::path::Path;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, getxattr};

use crate::store::digest_record::Version;

const NAME: &str = "user.plancha";
/// The largest attribute; real ones have a quarter of this.
const MAX: usize = 1024;

/// The version in a file's attribute; `None` without an attribute.
pub(in crate::store) fn read(file: &File) -> Option<Version> {
    let mut value = [0; MAX];
    let length = fgetxattr(file, NAME, &mut value[..]).ok()?;
    serde_json::from_slice(value.get(..length)?).ok()
}

/// The same by path.
pub(in crate::store) fn read_at(file_path: &Path) -> Option<Version> {
    let mut value = [0; MAX];
    let length = getxattr(file_path, NAME, &mut value[..]).ok()?;
    serde_json::from_slice(value.get(..length)?).ok()
}

/// Writes the attribute, which the caller syncs; `false` if the file system does not support it.
pub(in crate::store) fn write(file: &File, version: &Version) -> bool {
    serde_json::to_vec(version).is_ok_and(|json| {
        json.len() <= MAX && fsetxattr(file, NAME, &json, XattrFlags::empty()).is_ok()
    })
}
