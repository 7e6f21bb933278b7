//! `runner resolve`, `runner install` and `runner mirror`: one word on stdout, all else on stderr.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::cli::{Environment, InstallArgs, MirrorArgs, ResolveArgs, TargetArgs, ToolArgs};
use crate::failure::Failure;
use crate::order::job::JobError;
use crate::release::error::ReleaseError;
use crate::release::releases::Releases;
use crate::release::resolved::Choice;
use crate::version::{self, Reason, ToolName, ToolRequest, Version, VersionError};

/// `resolve --json`
#[derive(serde::Serialize)]
struct Resolved<'a> {
    tool: ToolName,
    version: &'a Version,
    request: String,
    /// What asks.
    origin: &'a str,
    source: String,
    why: &'a [Reason],
    looked_at: &'a [PathBuf],
    dropped: Vec<Dropped<'a>>,
}

/// Versions that would have been better, and why they will not do.
#[derive(serde::Serialize)]
struct Dropped<'a> {
    because: String,
    versions: Vec<&'a Version>,
}

/// Who asks for the version behind `TOOL@`.
pub(crate) const COMMAND_LINE: &str = "the command line";

/// Prints the version that will do.
pub(crate) async fn resolve(args: &ResolveArgs, environment: &Environment) -> Result<(), Failure> {
    let (_, choice) = choose_target(&args.target, &args.tools, environment).await?;
    let Choice { wanted, version, source, .. } = &choice;
    if args.json {
        let resolved = Resolved {
            tool: wanted.tool,
            version,
            request: wanted.request.to_string(),
            origin: &wanted.origin,
            source: source.to_string(),
            why: &wanted.why,
            looked_at: &wanted.looked_at,
            dropped: dropped(&choice),
        };
        let text = serde_json::to_string_pretty(&resolved).map_err(std::io::Error::from);
        return print(&text.map_err(|error| Failure::from(&ReleaseError::from(error)))?);
    }
    let tool = wanted.tool;
    tracing::info!("{tool} {version} ({source}), asked for by {}", wanted.origin);
    print(&version.to_string())
}

/// Installs that version, and prints the path of its binary.
pub(crate) async fn install(args: &InstallArgs, environment: &Environment) -> Result<(), Failure> {
    let (releases, choice) = choose_target(&args.target, &args.tools, environment).await?;
    let installed = releases.install(&choice).await.map_err(|error| Failure::from(&error))?;
    let (tool, version, origin) = (installed.tool, &installed.version, &choice.wanted.origin);
    tracing::info!("{tool} {version} ({}), asked for by {origin}", installed.source);
    print(&installed.path.display().to_string())
}

/// Puts a release into a mirror, and prints the flag that makes use of it.
pub(crate) async fn mirror(args: &MirrorArgs, environment: &Environment) -> Result<(), Failure> {
    let usage = |text: String| Failure::from(&JobError::Usage(text));
    if args.tools.offline {
        let text = "a mirror is filled from the release sites: leave out --offline";
        return Err(usage(text.to_owned()));
    }
    let asked = ToolRequest::parse(&args.release).map_err(usage)?;
    let Some(ToolRequest { tool, request: Some(request) }) = asked else {
        let text = format!("`{}` names no release: terraform@1.9.8, tofu@latest", args.release);
        return Err(usage(text));
    };
    // Published versions are asked for: what is installed here says nothing about a mirror.
    let tools = ToolArgs { refresh: true, ..args.tools.clone() };
    let (releases, choice) =
        choose(Some(tool), Some(&request), Path::new("."), &tools, environment).await?;
    let flag = releases.mirror(&choice, &args.dir).await.map_err(|error| Failure::from(&error))?;
    let (tool, version) = (choice.wanted.tool, &choice.version);
    tracing::info!("{tool} {version} is in {}", args.dir.display());
    print(&flag)
}

/// The candidates that are better than the chosen version, by the reason why they will not do.
fn dropped(choice: &Choice) -> Vec<Dropped<'_>> {
    let request = &choice.wanted.request;
    let mut reasons = BTreeMap::<String, Vec<&Version>>::new();
    for candidate in &choice.candidates {
        if request.prefers(candidate, &choice.version)
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

async fn choose_target(
    target: &TargetArgs,
    tools: &ToolArgs,
    environment: &Environment,
) -> Result<(Releases, Choice), Failure> {
    let target = target.parse().map_err(|text| Failure::from(&JobError::Usage(text)))?;
    if !target.dir.is_dir() {
        return Err(Failure::from(&VersionError::NoDirectory(target.dir)));
    }
    let tool = target.tool.as_ref().map(|tool| tool.tool);
    let request = target.tool.as_ref().and_then(|tool| tool.request.as_deref());
    choose(tool, request, &target.dir, tools, environment).await
}

async fn choose(
    tool: Option<ToolName>,
    request: Option<&str>,
    dir: &Path,
    tools: &ToolArgs,
    environment: &Environment,
) -> Result<(Releases, Choice), Failure> {
    let request = request.map(|request| (request, COMMAND_LINE));
    let wanted = version::wanted(tool, request, dir, &environment.surroundings)
        .map_err(|error| Failure::from(&error))?;
    let chosen = async {
        let releases = Releases::new(tools, environment)?;
        let choice = releases.choose(&wanted).await?;
        Ok((releases, choice))
    };
    chosen.await.map_err(|error: ReleaseError| Failure::from(&error))
}

/// A line on stdout.
pub(crate) fn print(line: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::from(&ReleaseError::Stdout(error)))
}
