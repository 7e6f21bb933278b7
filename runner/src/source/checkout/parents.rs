//! Refuses a terragrunt unit that may find files in the parents of its directory which are not in the copy of it: terragrunt
//! takes the nearest one, so that without it the unit silently has another backend or other inputs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;

use fs_err as fs;
use regex::Regex;

use crate::source::error::CheckoutError;
use crate::source::references;

/// The configuration of a unit.
const UNIT: [&str; 2] = ["terragrunt.hcl", "terragrunt.hcl.json"];

/// How a unit finds files in parent directories, by itself or by the files that it includes or reads.
static LOOKS_UP: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(find_in_parent_folders|include|read_terragrunt_config)\b")
        .expect("the pattern is valid")
});

/// The name of a file that is looked for there.
static LOOKED_FOR: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"\bfind_in_parent_folders\(\s*\\?"([^"\\$%]+)\\?""#).expect("the pattern is valid")
});

/// The beginnings and ends of the names of files in HCL that are other tools': of Docker, Packer and Nomad.
const OF_OTHERS: [(&str, &str); 4] =
    [("docker-bake", ".hcl"), ("", ".pkr.hcl"), ("", ".pkrvars.hcl"), ("", ".nomad.hcl")];

/// Checks the unit in `dir` of the directory `copy`, which is a copy of `original`.
pub(super) fn check(original: &Path, copy: &Path, dir: &Path) -> Result<(), CheckoutError> {
    let is_unit = |name: &&str| dir.join(name).is_file();
    let Some(file) = UNIT.into_iter().find(is_unit) else { return Ok(()) };
    let Some(text) = references::text(&dir.join(file)) else { return Ok(()) };
    if !LOOKS_UP.is_match(&text) {
        return Ok(());
    }
    let named = LOOKED_FOR.captures_iter(&text).map(|call| OsString::from(&call[1]));
    let named = named.collect::<BTreeSet<_>>();
    let (root, copy) = (fs::canonicalize(original)?, fs::canonicalize(copy)?);
    let unit = root.join(dir.strip_prefix(&copy).unwrap_or(Path::new("")));
    // A nearer file of the same name is found in its place.
    let mut in_copy = BTreeSet::new();
    for parent in unit.ancestors().skip(1) {
        let copied = parent.strip_prefix(&root).ok().map(|below| copy.join(below));
        for name in candidates(parent, &named) {
            if copied.as_ref().is_some_and(|copied| copied.join(&name).exists()) {
                in_copy.insert(name);
            } else if !in_copy.contains(&name) {
                let place = format!("{} perhaps", unit.join(file).display());
                return Err(CheckoutError::Beside {
                    path: parent.join(name),
                    place,
                    root,
                    dir: unit,
                });
            }
        }
    }
    Ok(())
}

/// The files of a directory that terragrunt may find there: those that may be its configuration, and those with these names. One
/// that cannot be listed has those that exist.
fn candidates(parent: &Path, named: &BTreeSet<OsString>) -> BTreeSet<OsString> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_configuration = |name: &OsString| {
        let name = name.to_string_lossy();
        let is_other = |(begin, end): &(&str, &str)| name.starts_with(begin) && name.ends_with(end);
        let is_hcl = name.ends_with(".hcl") || name.ends_with(".hcl.json");
        is_hcl && !name.starts_with('.') && !OF_OTHERS.iter().any(is_other)
    };
    let configuration = entries.map(|entry| entry.file_name()).filter(is_configuration);
    let all = configuration.chain(named.iter().cloned());
    all.filter(|name| parent.join(name).is_file()).collect()
}
