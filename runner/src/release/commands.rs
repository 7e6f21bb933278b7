//! `runner resolve`, `runner install` and `runner mirror`: the result on stdout, messages on stderr.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::cli::{Environment, InstallArgs, MirrorArgs, ResolveArgs, TargetArgs, ToolArgs};
use crate::release::error::{CommandError, ReleaseError};
use crate::release::releases::{Releases, absolute};
use crate::release::resolved::Resolved;
use crate::version::{self, Finding, ToolName, ToolRequest, Version, VersionError};

/// `resolve --json`
#[derive(serde::Serialize)]
struct ResolveOutput<'a> {
    tool: ToolName,
    version: &'a Version,
    request: String,
    /// Where the request comes from.
    origin: &'a str,
    source: String,
    why: &'a [Finding],
    looked_at: &'a [PathBuf],
    dropped: Vec<Dropped<'a>>,
}

/// Newer or older versions that were preferable, and why they do not satisfy the request.
#[derive(serde::Serialize)]
struct Dropped<'a> {
    because: String,
    versions: Vec<&'a Version>,
}

/// The origin of a version in `TOOL@REQUEST`.
pub(crate) const COMMAND_LINE: &str = "the command line";

/// Prints the version that satisfies the request.
pub(crate) async fn resolve(
    args: &ResolveArgs,
    environment: &Environment,
) -> Result<(), CommandError> {
    let (_, resolved) = resolve_target(&args.target, &args.tools, environment).await?;
    let Resolved { wanted, version, source, .. } = &resolved;
    if args.json {
        let output = ResolveOutput {
            tool: wanted.tool,
            version,
            request: wanted.request.to_string(),
            origin: &wanted.origin,
            source: source.to_string(),
            why: &wanted.trace,
            looked_at: &wanted.files_read,
            dropped: dropped(&resolved),
        };
        let text = serde_json::to_string_pretty(&output).map_err(std::io::Error::from);
        return Ok(print(&text.map_err(ReleaseError::from)?)?);
    }
    let tool = wanted.tool;
    tracing::info!("{tool} {version} ({source}), requested by {}", wanted.origin);
    Ok(print(&version.to_string())?)
}

/// Installs that version, and prints the path of its binary.
pub(crate) async fn install(
    args: &InstallArgs,
    environment: &Environment,
) -> Result<(), CommandError> {
    let (releases, resolved) = resolve_target(&args.target, &args.tools, environment).await?;
    let installed = releases.install(&resolved).await?;
    let (tool, version, origin) = (installed.tool, &installed.version, &resolved.wanted.origin);
    tracing::info!("{tool} {version} ({}), requested by {origin}", installed.source);
    Ok(print(&installed.path.display().to_string())?)
}

/// Adds a release to a mirror directory, and prints the flag that uses that mirror.
pub(crate) async fn mirror(
    args: &MirrorArgs,
    environment: &Environment,
) -> Result<(), CommandError> {
    absolute(&args.dir)?;
    if args.tools.offline {
        let text =
            "a mirror is filled from the release sites: leave out --offline (PLANCHA_OFFLINE)";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let requested = ToolRequest::parse(&args.release).map_err(CommandError::Usage)?;
    let Some(ToolRequest { tool, request: Some(request) }) = requested else {
        let text = format!(
            "`{}` is not a release: expected TOOL@REQUEST, such as terraform@1.9.8 or tofu@latest",
            args.release
        );
        return Err(CommandError::Usage(text));
    };
    // A mirror needs published versions: those installed here do not count.
    let tools = ToolArgs { refresh: true, ..args.tools.clone() };
    let (releases, resolved) =
        resolve_in(Some(tool), Some(&request), Path::new("."), &tools, environment).await?;
    let flag = releases.mirror(&resolved, &args.dir).await?;
    let (tool, version) = (resolved.wanted.tool, &resolved.version);
    tracing::info!("{tool} {version} is in {}", args.dir.display());
    Ok(print(&flag)?)
}

/// The candidates that are preferable to the resolved version, grouped by the reason why they do not satisfy the
/// request.
fn dropped(resolved: &Resolved) -> Vec<Dropped<'_>> {
    let request = &resolved.wanted.request;
    let mut reasons = BTreeMap::<String, Vec<&Version>>::new();
    for candidate in &resolved.candidates {
        if request.prefers(candidate, &resolved.version)
            && let Some(because) = request.refusal(candidate)
        {
            reasons.entry(because).or_default().push(candidate);
        }
    }
    let dropped = reasons.into_iter().map(|(because, mut versions)| {
        versions.sort_by(|a, b| a.list_order(b));
        Dropped { because, versions }
    });
    dropped.collect()
}

async fn resolve_target(
    target: &TargetArgs,
    tools: &ToolArgs,
    environment: &Environment,
) -> Result<(Releases, Resolved), CommandError> {
    let target = target.parse().map_err(CommandError::Usage)?;
    absolute(&target.dir)?;
    if !target.dir.is_dir() {
        return Err(VersionError::NoDirectory(target.dir).into());
    }
    let tool = target.tool.as_ref().map(|tool| tool.tool);
    let request = target.tool.as_ref().and_then(|tool| tool.request.as_deref());
    resolve_in(tool, request, &target.dir, tools, environment).await
}

async fn resolve_in(
    tool: Option<ToolName>,
    request: Option<&str>,
    dir: &Path,
    tools: &ToolArgs,
    environment: &Environment,
) -> Result<(Releases, Resolved), CommandError> {
    let request = request.map(|request| (request, COMMAND_LINE));
    let wanted = version::wanted(tool, request, dir, &environment.search_context)?;
    let releases = Releases::new(tools, environment)?;
    let resolved = releases.resolve(&wanted).await?;
    Ok((releases, resolved))
}

/// Prints a line on stdout.
pub(crate) fn print(line: &str) -> Result<(), ReleaseError> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(ReleaseError::Stdout)
}
