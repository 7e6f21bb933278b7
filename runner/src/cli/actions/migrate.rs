//! The arguments of `runner migrate`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::RunArgs;
use crate::cli::actions::{LayersArgs, LeaseArgs};
use crate::version::{ToolName, ToolRequest};

/// `runner migrate`
#[derive(Clone, Debug, Args)]
pub struct MigrateArgs {
    /// What all actions share.
    #[command(flatten)]
    pub run: RunArgs,
    /// The tool that works with the state from now on: tofu, or tofu@VERSION [default of VERSION: from the code]
    #[arg(long, value_name = "TOOL[@VERSION]", required_unless_present = "rollback", value_parser = tofu)]
    pub to: Option<ToolRequest>,
    /// Do everything but the migration: print the plans of both tools and how they differ, and change nothing
    #[arg(long, conflicts_with = "rollback")]
    pub dry_run: bool,
    /// Undo the last migration: restore the state of before, unless it has changed since
    #[arg(long, conflicts_with = "to")]
    pub rollback: bool,
    /// A table of the versions of terraform from which a migration is allowed, instead of the built-in one: JSON, rows of
    /// {"from": CONSTRAINT, "to": CONSTRAINT} or {"from": CONSTRAINT, "refused": REASON}
    #[arg(long, env = "PLANCHA_VERSION_PATHS", value_name = "FILE", conflicts_with = "rollback")]
    pub version_paths: Option<PathBuf>,
    /// Add the providers' hashes for this platform, such as `linux_arm64`, to the lock file (repeatable)
    #[arg(long, value_name = "OS_ARCH", value_parser = platform, conflicts_with_all = ["rollback", "dry_run"])]
    pub lock_platform: Vec<String>,
    /// Several layers.
    #[command(flatten)]
    pub layers: LayersArgs,
    /// The lease of the layer.
    #[command(flatten)]
    pub lease: LeaseArgs,
}

fn platform(text: &str) -> Result<String, String> {
    let is_name =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match text.split_once('_') {
        Some((os, arch)) if is_name(os) && is_name(arch) => Ok(text.to_owned()),
        _ => Err("expected a platform such as linux_arm64".to_owned()),
    }
}

fn tofu(text: &str) -> Result<ToolRequest, String> {
    match ToolRequest::parse(text)? {
        Some(request) if request.tool == ToolName::Tofu => Ok(request),
        _ => Err("a layer can be migrated to tofu: write tofu or tofu@VERSION".to_owned()),
    }
}
