//! The origin that a plan file contains: backend, workspace and the root module's files.
//!
//! The file is a zip archive. `tfplan` in it is protocol buffers, of which two fields are read;
//! `tfconfig/m-/` holds the root module. A file that tofu has encrypted is not an archive and cannot be read.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use datastore_api::Sha256;
use fs_err as fs;
use zip::ZipArchive;

use crate::basis::backend::{Backend, Variables};
use crate::basis::configuration;
use crate::basis::plan_file::msgpack;
use crate::basis::plan_file::protobuf::{fields, find};

/// The field of the plan that describes its backend, and in that the type, the settings and the workspace.
const BACKEND: u64 = 13;
const KIND: u64 = 1;
const SETTINGS: u64 = 2;
const WORKSPACE: u64 = 3;
/// The field with an address to which the plan is limited, once for each.
const TARGET: u64 = 5;
/// The field with the name of an ephemeral variable that was set for the plan, once for each.
const EPHEMERAL: u64 = 28;
/// The one field of the settings: `MessagePack`.
const MSGPACK: u64 = 1;
/// A root module has no more bytes in one file.
const MAX_FILE: u64 = 64 << 20;
const MAX_ENTRIES: usize = 100_000;
/// Of the root module.
const ROOT: &str = "tfconfig/m-/";

/// Whether a plan is limited to some resources, or cannot be read.
pub(crate) fn may_be_targeted(plan: &Path) -> bool {
    let target = || {
        let mut archive = ZipArchive::new(fs::File::open(plan).ok()?).ok()?;
        find(archive.by_name("tfplan").ok()?, TARGET).ok()
    };
    target().is_none_or(|found| found.is_some())
}

/// The origin of a plan file.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) workspace: Option<String>,
    pub(crate) backend: Option<Backend>,
    /// The digests of the root module's files, by their names.
    pub(crate) files: BTreeMap<String, Sha256>,
}

impl Contents {
    /// Reads the plan for the module in `dir`. `None`: the file has another format.
    pub(crate) fn read(plan: &Path, dir: &Path, variables: &Variables) -> Option<Self> {
        let mut archive = ZipArchive::new(fs::File::open(plan).ok()?).ok()?;
        if archive.len() > MAX_ENTRIES {
            return None;
        }
        let tfplan = archive.by_name("tfplan").ok()?;
        let backend = find(tfplan, BACKEND).ok()??;
        let text = |field| {
            let text = find(&*backend, field).ok()??;
            String::from_utf8(text).ok().filter(|text| !text.is_empty())
        };
        let settings = find(&*backend, SETTINGS).ok()?;
        let settings = settings.and_then(|settings| find(&*settings, MSGPACK).ok()?);
        let settings = settings.and_then(|bytes| msgpack::value(&bytes)).unwrap_or_default();
        let workspace = text(WORKSPACE);
        let in_workspace = workspace.as_deref().unwrap_or_default();
        let backend =
            text(KIND).map(|kind| Backend::new(kind, &settings, dir, in_workspace, variables));
        let mut files = BTreeMap::new();
        for index in 0..archive.len() {
            let entry = archive.by_index(index).ok()?;
            let name = entry.name().ok()?.strip_prefix(ROOT).map(str::to_owned);
            if let Some(name) = name.filter(|name| configuration::is_code(name)) {
                files.insert(name, digest(entry).ok()?);
            }
        }
        Some(Self { workspace, backend, files })
    }

    /// The difference between the root module in `dir` and that of the plan: the plan's part, and this directory's. `None`:
    /// they are equal. `tofu`: whether tofu reads the directory.
    pub(crate) fn difference(
        &self,
        dir: &Path,
        tofu: bool,
    ) -> io::Result<Option<(String, String)>> {
        let here = self.code(dir, tofu)?;
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        let short = |sha256: &Sha256| sha256.to_string()[..12].to_owned();
        for (name, sha256) in &self.files {
            match here.get(name) {
                Some(other) if other == sha256 => {}
                Some(other) => {
                    theirs.push(format!("{name} of sha256 {}", short(sha256)));
                    ours.push(format!("{name} of sha256 {}", short(other)));
                }
                None => {
                    theirs.push(name.clone());
                    ours.push(format!("no {name}"));
                }
            }
        }
        for name in here.keys().filter(|name| !self.files.contains_key(*name)) {
            theirs.push(format!("no {name}"));
            ours.push(name.clone());
        }
        let differs = !theirs.is_empty();
        Ok(differs.then(|| (listed(&theirs), listed(&ours))))
    }

    /// The files in `dir` that the tool reads as code.
    fn code(&self, dir: &Path, tofu: bool) -> io::Result<BTreeMap<String, Sha256>> {
        let mut code = BTreeMap::new();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str().filter(|name| configuration::is_code(name)) else {
                continue;
            };
            let path = dir.join(name);
            // tofu reads `x.tofu` instead of `x.tf`; terraform reads only the latter.
            let of_tofu = name.replacen(".tf", ".tofu", 1);
            let unread = if tofu {
                of_tofu != name && self.files.contains_key(&of_tofu)
            } else {
                name.contains(".tofu")
            };
            if path.is_file() && (!unread || self.files.contains_key(name)) {
                code.insert(name.to_owned(), digest(fs::File::open(path)?)?);
            }
        }
        Ok(code)
    }
}

/// The first parts, and the number of the others.
fn listed(parts: &[String]) -> String {
    const SHOWN: usize = 3;
    let text = parts[..parts.len().min(SHOWN)].join(", ");
    match parts.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn digest(from: impl Read) -> io::Result<Sha256> {
    Sha256::of_reader(from.take(MAX_FILE))
}

/// The ephemeral variables that were set for a plan, and must be set again for its apply: terraform keeps no values of
/// them. Empty if the file has another format.
pub(crate) fn ephemeral_variables(plan: &Path) -> Vec<String> {
    let read = || {
        let mut archive = ZipArchive::new(fs::File::open(plan).ok()?).ok()?;
        fields(archive.by_name("tfplan").ok()?, EPHEMERAL, MAX_ENTRIES).ok()
    };
    let names =
        read().unwrap_or_default().into_iter().filter_map(|name| String::from_utf8(name).ok());
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    names.filter(|name| !name.is_empty() && name.chars().all(is_name)).collect()
}
