//! What brings code and tools: git, the repository, and the release site.

use std::path::Path;

use datastore_api::chain;

use crate::cli::{DoctorArgs, Environment};
use crate::order::doctor::check::{Check, limited};
use crate::process::url_secrets;
use crate::release::{ErrorKind, Releases};
use crate::source::git::{self, GitSource};

pub(super) async fn checks(args: &DoctorArgs, environment: &Environment) -> Vec<Check> {
    let (program, origin, releases) =
        tokio::join!(program(), origin(args, environment), releases(args, environment));
    [Some(program), origin, Some(releases)].into_iter().flatten().collect()
}

/// Whether git can be run.
async fn program() -> Check {
    const HINT: &str =
        "install git, or put it on PATH: only a directory or an archive can be used without it";
    match limited(git::ask(Path::new("."), &["--version"])).await {
        Ok(Ok(version)) => Check::ok("git", String::from_utf8_lossy(&version).trim()),
        Ok(Err(reason)) | Err(reason) => Check::warn("git", reason, HINT),
    }
}

/// Whether the repository of DIR, or the one at this URL, can be reached.
async fn origin(args: &DoctorArgs, environment: &Environment) -> Option<Check> {
    const NAME: &str = "repository";
    const HINT: &str = "name the directory of the code, or a git URL";
    let given = args.dir.as_deref()?;
    let dir = Path::new(given);
    let source = if dir.is_dir() { Ok(None) } else { GitSource::parse(given, None) };
    let (shown, asked) = match source {
        Ok(Some(source)) => (source.url().to_owned(), limited(source.ask(environment)).await),
        Ok(None) if !dir.is_dir() => {
            return Some(Check::fail(NAME, 8, format!("{given} is not a directory"), HINT));
        }
        Ok(None) => {
            let known = limited(git::ask(dir, &["remote", "get-url", "origin"])).await;
            if !matches!(known, Ok(Ok(_))) {
                return Some(Check::ok(NAME, format!("{given} is in no clone of a repository")));
            }
            let args = ["ls-remote", "--quiet", "--", "origin", "HEAD"];
            ("origin".to_owned(), limited(git::ask(dir, &args)).await)
        }
        Err(reason) => {
            let (text, hint) = reason.split_once("; next: ").unwrap_or((&reason, HINT));
            return Some(Check::fail(NAME, 8, text, hint));
        }
    };
    Some(match asked {
        Ok(Ok(_)) => Check::ok(NAME, format!("{shown} answers")),
        Ok(Err(reason)) | Err(reason) => Check::fail(
            NAME,
            6,
            format!("{shown}: {}", url_secrets::masked(&reason, url_secrets::Parameters::Secret)),
            "check the address, the keys or tokens of git for it, and proxies",
        ),
    })
}

/// Whether the release site of the tool, or its mirror, lists versions.
async fn releases(args: &DoctorArgs, environment: &Environment) -> Check {
    const NAME: &str = "releases";
    let tool = args.tool;
    let releases = match Releases::new(&args.tools, environment) {
        Ok(releases) => releases,
        Err(error) => return Check::fail(NAME, 8, chain(&error), error.next()),
    };
    match limited(releases.reach(tool)).await {
        Ok(Ok(None)) => Check::ok(NAME, format!("--offline: the site of {tool} is not used")),
        Ok(Ok(Some((source, count)))) => {
            Check::ok(NAME, format!("{count} versions of {tool} at {source}"))
        }
        Ok(Err(error)) => {
            let exit = match error.kind() {
                ErrorKind::Credentials => 5,
                ErrorKind::Network => 6,
                ErrorKind::Config => 8,
                ErrorKind::Integrity => 9,
                ErrorKind::Other => 1,
            };
            Check::fail(NAME, exit, chain(&error), error.next())
        }
        Err(reason) => Check::fail(
            NAME,
            6,
            format!("the site of {tool}: {reason}"),
            "check proxies and firewalls, or name a mirror; installed versions work with --offline",
        ),
    }
}
