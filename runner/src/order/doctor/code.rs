//! What brings code and tools: git, the repository, and the release site.

use std::path::Path;

use datastore_api::chain;

use crate::cli::{DoctorArgs, Environment};
use crate::order::doctor::check::{Check, limited};
use crate::process::url_secrets;
use crate::release::{ErrorKind, Releases};
use crate::source::git;

pub(super) async fn checks(args: &DoctorArgs, environment: &Environment) -> Vec<Check> {
    let (program, origin, releases) =
        tokio::join!(program(), origin(args), releases(args, environment));
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
async fn origin(args: &DoctorArgs) -> Option<Check> {
    const NAME: &str = "repository";
    let given = args.dir.as_deref()?;
    let dir = Path::new(given);
    let is_url = !dir.exists() && given.contains(':');
    if !is_url && !dir.is_dir() {
        let text = format!("{given} is not a directory");
        return Some(Check::fail(NAME, 8, text, "name the directory of the code, or a git URL"));
    }
    if is_url && url::Url::parse(given).is_ok_and(|url| url.password().is_some()) {
        let text = "the URL has a password, which git would show to every process: not asked";
        return Some(Check::ok(NAME, text));
    }
    let (dir, remote) = if is_url { (Path::new("."), given) } else { (dir, "origin") };
    if !is_url {
        match limited(git::ask(dir, &["remote", "get-url", "origin"])).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => {
                return Some(Check::ok(NAME, format!("{given} is in no clone of a repository")));
            }
        }
    }
    let shown = url_secrets::masked(remote, url_secrets::Parameters::Secret);
    let asked = limited(git::ask(dir, &["ls-remote", "--quiet", "--", remote, "HEAD"])).await;
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
