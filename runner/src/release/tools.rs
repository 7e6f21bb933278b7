//! `runner tools`: lists installed and published versions, and removes unused ones.

use std::io;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::cli::{Environment, ListArgs, PruneArgs, ToolsCommand};
use crate::release::commands::print;
use crate::release::error::{CommandError, ReleaseError};
use crate::release::install::store::{Store, day};
use crate::release::releases::Releases;
use crate::version::{ToolName, Version};

/// An installed version, as `tools list --json` has it.
#[derive(Serialize)]
struct Installed {
    tool: ToolName,
    version: Version,
    path: String,
    /// In bytes.
    size: u64,
    /// The day of its last use, if known.
    last_use: String,
}

/// A published version, as `tools list --available --json` has it.
#[derive(Serialize)]
struct Available {
    tool: ToolName,
    version: Version,
    installed: bool,
}

/// Runs a subcommand of `runner tools`.
pub(crate) async fn tools(
    command: &ToolsCommand,
    environment: &Environment,
) -> Result<(), CommandError> {
    match command {
        ToolsCommand::List(args) => list(args, environment).await,
        ToolsCommand::Prune(args) => Ok(prune(args, environment)?),
    }
}

async fn list(args: &ListArgs, environment: &Environment) -> Result<(), CommandError> {
    if args.available && args.tools.offline {
        let text = "published versions are read from the release sites: leave out --available or --offline";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let releases = Releases::new(&args.tools, environment)?;
    let text =
        if args.available { releases.available(args).await? } else { releases.listed(args)? };
    if !text.is_empty() {
        print(&text)?;
    }
    Ok(())
}

fn tools_of(tool: Option<ToolName>) -> impl Iterator<Item = ToolName> {
    ToolName::ALL.into_iter().filter(move |one| tool.is_none_or(|tool| tool == *one))
}

/// One line for each item, or a JSON list.
fn shown<T: Serialize>(
    list: &[T],
    json: bool,
    line: impl Fn(&T) -> String,
) -> Result<String, ReleaseError> {
    if json {
        return Ok(serde_json::to_string_pretty(list).map_err(io::Error::from)?);
    }
    Ok(list.iter().map(line).collect::<Vec<_>>().join("\n"))
}

impl Releases {
    fn listed(&self, args: &ListArgs) -> Result<String, ReleaseError> {
        let mut all = Vec::new();
        for tool in tools_of(args.tool) {
            let store = self.store(tool).ok_or(ReleaseError::Nowhere)?;
            for version in sorted(store.versions()) {
                let path = store.binary(&version);
                let size = fs_err::metadata(&path)?.len();
                let last_use = day(store.last_use(&version)?);
                let path = path.display().to_string();
                all.push(Installed { tool, version, path, size, last_use });
            }
        }
        shown(&all, args.json, |one| {
            let Installed { tool, version, last_use, path, .. } = one;
            format!("{tool} {version} {last_use} {path}")
        })
    }

    async fn available(&self, args: &ListArgs) -> Result<String, ReleaseError> {
        let mut all = Vec::new();
        for tool in tools_of(args.tool) {
            let store = self.store(tool);
            let published = self.published(tool).await?;
            all.extend(sorted(published).into_iter().map(|version| {
                let installed = store.as_ref().is_some_and(|store| store.has(&version));
                Available { tool, version, installed }
            }));
        }
        shown(&all, args.json, |Available { tool, version, installed }| {
            let mark = if *installed { " installed" } else { "" };
            format!("{tool} {version}{mark}")
        })
    }
}

/// Sorts versions, the oldest first.
fn sorted(mut versions: Vec<Version>) -> Vec<Version> {
    versions.sort_by(Version::list_order);
    versions
}

fn prune(args: &PruneArgs, environment: &Environment) -> Result<(), ReleaseError> {
    let releases = Releases::new(&args.tools, environment)?;
    for tool in tools_of(args.tool) {
        let store = releases.store(tool).ok_or(ReleaseError::Nowhere)?;
        let failed = |error: io::Error| {
            let what = format!("removing versions of {tool}");
            ReleaseError::from(error).with_target(&what, store.dir())
        };
        for version in unneeded(&store, args.keep, args.unused_for).map_err(failed)? {
            if args.dry_run {
                print(&format!("{tool} {version} would be removed"))?;
                continue;
            }
            let Some(_lock) = store.try_lock(&version).map_err(failed)? else {
                print(&format!("{tool} {version} is in use: not removed"))?;
                continue;
            };
            store.remove(&version).map_err(failed)?;
            print(&format!("{tool} {version} removed"))?;
        }
        for version in store.left_over() {
            if args.dry_run {
                print(&format!(
                    "{tool} {version}: leftovers of a killed installation would be removed"
                ))?;
            } else if let Some(_lock) = store.try_lock(&version).map_err(failed)? {
                store.remove_left_over(&version).map_err(failed)?;
                print(&format!("{tool} {version}: leftovers of a killed installation removed"))?;
            }
        }
    }
    Ok(())
}

/// The versions that are neither among the newest `keep` nor used within `unused_for`, the oldest first.
fn unneeded(
    store: &Store,
    keep: Option<usize>,
    unused_for: Option<Duration>,
) -> io::Result<Vec<Version>> {
    let now = SystemTime::now();
    let mut versions = sorted(store.versions());
    versions.truncate(versions.len().saturating_sub(keep.unwrap_or(0)));
    let mut unneeded = Vec::new();
    for version in versions {
        let is_used = match unused_for {
            // A last use in the future counts as now.
            Some(limit) => {
                now.duration_since(store.last_use(&version)?).map_or(true, |unused| unused < limit)
            }
            None => false,
        };
        if !is_used {
            unneeded.push(version);
        }
    }
    Ok(unneeded)
}
