//! `runner resolve` and `runner install`: one word on stdout, all else on stderr.

use std::io::Write as _;

use super::{Choice, ReleaseError, Releases};
use crate::config::{Environment, InstallArgs, ResolveArgs, Target, ToolArgs};
use crate::failure::Failure;
use crate::job::JobError;
use crate::version::{self, Reason, ToolName, Version};

/// `resolve --json`
#[derive(serde::Serialize)]
struct Resolved<'a> {
    tool: ToolName,
    version: &'a Version,
    request: String,
    source: String,
    why: &'a [Reason],
}

/// Prints the version that will do.
pub(crate) async fn resolve(args: &ResolveArgs, environment: &Environment) -> Result<(), Failure> {
    let (_, choice) = choose(&args.target, &args.tools, environment).await?;
    let Choice { wanted, version, source } = &choice;
    if args.json {
        let resolved = Resolved {
            tool: wanted.tool,
            version,
            request: wanted.request.to_string(),
            source: source.to_string(),
            why: &wanted.why,
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
    let (releases, choice) = choose(&args.target, &args.tools, environment).await?;
    let installed = releases.install(&choice).await.map_err(|error| Failure::from(&error))?;
    let (tool, version, origin) = (installed.tool, &installed.version, &choice.wanted.origin);
    tracing::info!("{tool} {version} ({}), asked for by {origin}", installed.source);
    print(&installed.path.display().to_string())
}

async fn choose(
    words: &[String],
    tools: &ToolArgs,
    environment: &Environment,
) -> Result<(Releases, Choice), Failure> {
    let target = Target::parse(words).map_err(|text| Failure::from(&JobError::Usage(text)))?;
    let tool = target.tool.as_ref().map(|tool| tool.tool);
    let request = target.tool.as_ref().and_then(|tool| tool.request.as_deref());
    let request = request.map(|request| (request, "the command line"));
    let wanted = version::wanted(tool, request, &target.dir, environment.home.as_deref())
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
        .map_err(|error| Failure::from(&JobError::Config(format!("writing to stdout: {error}"))))
}
