//! The arguments that say where tools come from, and the commands about tools only.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use url::Url;

use crate::version::{ToolName, ToolRequest};

/// Where tools are downloaded and installed.
#[derive(Clone, Debug, Args)]
pub struct ToolArgs {
    /// Where tools are installed [default: plancha/bin in the user's cache directory]
    #[arg(
        long,
        aliases = ["runner-binary-path", "runner_binary_path"],
        env = "BURRITO_RUNNER_RUNNERBINARYPATH",
        help_heading = "Tool",
        value_name = "DIR"
    )]
    pub bin_dir: Option<PathBuf>,
    /// Do not use the network for tools. Mirrors in directories (file://) still work
    #[arg(long, env = "PLANCHA_OFFLINE", help_heading = "Tool", value_parser = BoolishValueParser::new())]
    pub offline: bool,
    /// Download the list of versions even if the cached one is recent
    #[arg(long, help_heading = "Tool", conflicts_with = "offline")]
    pub refresh: bool,
    /// Mirror of releases.hashicorp.com, in its layout; <file:///DIR> works without a network
    /// [also: `TFENV_REMOTE`]
    #[arg(long, help_heading = "Tool", value_name = "URL", value_parser = mirror)]
    pub releases_url: Option<Url>,
    /// Mirror of OpenTofu's releases: api.json at its root, files as <URL>/v<version>/<file> [also:
    /// `TOFUENV_REMOTE`, in the layout of github.com]
    #[arg(
        long,
        env = "PLANCHA_TOFU_URL",
        hide_env_values = true,
        help_heading = "Tool",
        value_name = "URL",
        value_parser = mirror
    )]
    pub tofu_url: Option<Url>,
    /// The same for Terragrunt's releases [also: `TG_REMOTE`, in the layout of github.com]
    #[arg(
        long,
        env = "PLANCHA_TERRAGRUNT_URL",
        hide_env_values = true,
        help_heading = "Tool",
        value_name = "URL",
        value_parser = mirror
    )]
    pub terragrunt_url: Option<Url>,
    /// Additional OpenPGP keys that may sign releases (repeatable)
    #[arg(long, env = "PLANCHA_KEYRING", help_heading = "Tool", value_name = "FILE")]
    pub keyring: Vec<PathBuf>,
    /// Refuse a release that has no signature
    #[arg(long, help_heading = "Tool")]
    pub require_signature: bool,
    /// Certificates to trust for every HTTPS connection, in addition to the system's (PEM)
    #[arg(long, env = "PLANCHA_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// The URL of a mirror. [`crate::release`] checks whether its scheme is supported.
fn mirror(text: &str) -> Result<Url, String> {
    let hint = "write http://HOST, https://HOST or file:///DIR";
    match Url::parse(text) {
        Ok(url) if url.cannot_be_a_base() => Err(format!("it has no scheme: {hint}")),
        Ok(url) if url.query().is_some() => Err("it has a query, but files are below the address of a \
             mirror: leave the query out, and name credentials in TFENV_REMOTE_USER and TFENV_REMOTE_PASSWORD \
             (TOFUENV_, TG_)"
            .to_owned()),
        Ok(url) => Ok(url),
        Err(url::ParseError::RelativeUrlWithoutBase) => Err(format!("it has no scheme: {hint}")),
        Err(error) => Err(format!("{error}: {hint}")),
    }
}

/// `runner tools`
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Print the installed versions, or with --available the published ones
    List(ListArgs),
    /// Remove installed versions, and leftovers of killed installations
    #[command(after_help = "\
Examples:
  runner tools prune --keep 3                  of each tool, keep the three newest versions
  runner tools prune --unused-for 30d          keep what was used in the last 30 days
  runner tools prune --keep 1 --unused-for 90d keep the newest, and what was used in the last 90 days
  runner tools prune terraform --keep 3 --dry-run

A version that a run is using is not removed.")]
    Prune(PruneArgs),
}

/// `runner tools list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this tool
    #[arg(value_name = "TOOL")]
    pub tool: Option<ToolName>,
    /// Print the published versions, and which of them are installed
    #[arg(long)]
    pub available: bool,
    /// Print a JSON list, in the order of versions
    #[arg(long)]
    pub json: bool,
    /// Where tools are downloaded and installed.
    #[command(flatten)]
    pub tools: ToolArgs,
}

/// `runner tools prune`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true).args(["keep", "unused_for"]))]
pub struct PruneArgs {
    /// Only this tool
    #[arg(value_name = "TOOL")]
    pub tool: Option<ToolName>,
    /// Of each tool, keep this many of the newest versions
    #[arg(long, value_name = "N")]
    pub keep: Option<usize>,
    /// Keep what was used more recently than this (30d, 12h)
    #[arg(long, value_name = "DURATION", value_parser = crate::cli::duration)]
    pub unused_for: Option<Duration>,
    /// Only print what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Where tools are installed.
    #[command(flatten)]
    pub tools: ToolArgs,
}

/// `runner resolve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner resolve                      the version that this directory requires
  runner resolve tofu live/vpc        the OpenTofu version that live/vpc requires
  runner resolve 'tofu@~> 1.9'        the version that a constraint selects
  runner resolve --json live/vpc      also why: files, constraints, rejected versions

Requests: 1.9.8 (exact; 1.9 is 1.9.0), a constraint (~> 1.9, >= 1.5, != 1.5.3), latest, latest-pre, latest-allowed \
and min-required (by the code's required_version), latest:REGEX, min:REGEX.")]
pub struct ResolveArgs {
    /// The tool and the directory.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Print tool, version, request, source and the reasons, as JSON
    #[arg(long)]
    pub json: bool,
    /// Where tools are downloaded and installed.
    #[command(flatten)]
    pub tools: ToolArgs,
}

/// `runner install`
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The tool and the directory.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Where tools are downloaded and installed.
    #[command(flatten)]
    pub tools: ToolArgs,
}

/// `runner mirror`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner mirror terraform@1.9.8 /srv/mirror    then: --releases-url file:///srv/mirror
  runner mirror tofu@latest /srv/mirror        then: --tofu-url file:///srv/mirror/tofu

A mirror contains only the releases that were copied to it, for this platform or that of TENV_ARCH. Any web server \
can serve the directory.")]
pub struct MirrorArgs {
    /// The release: terraform@1.9.8, tofu@latest, terragrunt@~> 0.98
    #[arg(value_name = "TOOL@REQUEST")]
    pub release: String,
    /// The directory of the mirror, created if necessary
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Where the release is downloaded.
    #[command(flatten)]
    pub tools: ToolArgs,
}

/// `[TOOL[@REQUEST]] [DIR]`
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// terraform, tofu or terragrunt, with an optional version request; or DIR
    #[arg(value_name = "TOOL[@REQUEST]")]
    pub tool: Option<String>,
    /// The directory of the code [default: the current directory]
    #[arg(value_name = "DIR")]
    pub dir: Option<String>,
}

/// The tool and the directory, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The tool and the requested version, if a tool was named.
    pub tool: Option<ToolRequest>,
    /// The directory, the current one by default.
    pub dir: PathBuf,
}

impl TargetArgs {
    /// A first word that is not a tool (before an `@`) is DIR.
    pub fn parse(&self) -> Result<Target, String> {
        let here = || PathBuf::from(".");
        let Some(first) = &self.tool else { return Ok(Target { tool: None, dir: here() }) };
        match (ToolRequest::parse(first)?, &self.dir) {
            (Some(tool), dir) => {
                Ok(Target { tool: Some(tool), dir: dir.as_ref().map_or_else(here, PathBuf::from) })
            }
            (None, None) => Ok(Target { tool: None, dir: PathBuf::from(first) }),
            (None, Some(_)) => Err(format!(
                "`{first}` is not a tool: expected terraform, tofu or terragrunt before DIR"
            )),
        }
    }
}
