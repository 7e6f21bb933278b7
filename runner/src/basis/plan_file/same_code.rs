//! Whether two plans were made of the same code: a plan file contains the configuration of all modules.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use datastore_api::Sha256;
use fs_err as fs;
use zip::ZipArchive;

/// The directory of the modules, each below its key. That of the root module is empty.
const MODULES: &str = "tfconfig/m-";

/// The first file of the configuration that two plans do not have in common. Nothing is compared where one of them has
/// another format, such as one that tofu has encrypted. `added` is a file of the root module that only the new plan has.
pub(crate) fn other_code(
    reviewed: &Path,
    new: &Path,
    added: Option<&str>,
) -> io::Result<Option<String>> {
    let (Some(theirs), Some(mut ours)) = (code(reviewed)?, code(new)?) else { return Ok(None) };
    if let Some(added) = added {
        ours.remove(&format!("/{added}"));
    }
    let names = theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>();
    let other = names.into_iter().find(|name| theirs.get(*name) != ours.get(*name));
    Ok(other.map(|name| name.trim_start_matches('/').to_owned()))
}

/// The digests of the files in a plan.
fn code(plan: &Path) -> io::Result<Option<BTreeMap<String, Sha256>>> {
    let Ok(mut archive) = ZipArchive::new(fs::File::open(plan)?) else { return Ok(None) };
    let mut code = BTreeMap::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(io::Error::other)?;
        let name = entry.name().map_err(io::Error::other)?;
        if let Some(name) = name.strip_prefix(MODULES).map(str::to_owned) {
            code.insert(name, Sha256::of_reader(entry)?);
        }
    }
    Ok(Some(code))
}
