//! The place of a plan: repository, path inside it, and workspace. A plan is applied only in the place that it was made
//! for. A part that is unknown on one side is not compared. Git is not called here.

use std::fmt;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;
use serde::{Deserialize, Serialize};

/// The workspace of a configuration that uses no workspaces.
pub(crate) const DEFAULT_WORKSPACE: &str = "default";
/// The longest default name in bytes. A run's name is longer by its action and random part.
const MAX_NAME: usize = 180;

/// The place of a plan. `None` is unknown, and equal to everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PlanPlace {
    /// The URL of `origin`, as [`repository`] has it.
    pub(crate) repository: Option<String>,
    /// The module's directory relative to the top of the work tree; empty for the top itself.
    pub(crate) path: Option<String>,
    /// The module's path inside of the directory that was given as the source, outside of git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_in_source: Option<String>,
    /// The workspace, `default` included.
    pub(crate) workspace: Option<String>,
}

impl PlanPlace {
    /// Whether all parts that both sides know are equal.
    pub(crate) fn agrees_with(&self, other: &Self) -> bool {
        let agree = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        agree(&self.repository, &other.repository)
            && self.paths_agree(other)
            && agree(&self.workspace, &other.workspace)
    }

    fn paths_agree(&self, other: &Self) -> bool {
        let in_source = (&self.path_in_source, &other.path_in_source);
        match (&self.path, &other.path, in_source) {
            (Some(a), Some(b), _)
            | (None, _, (Some(a), Some(b)))
            | (_, None, (Some(a), Some(b))) => a == b,
            // The directory may be any part of the repository or archive.
            (Some(whole), None, (_, Some(part))) | (None, Some(whole), (Some(part), _)) => {
                let (whole, part) = (Path::new(whole), Path::new(part));
                whole.ends_with(part) || part.ends_with(whole)
            }
            _ => true,
        }
    }

    /// The directory of the module, if it is of this source directory.
    pub(crate) fn module_in(&self, source: &Path) -> PathBuf {
        match (&self.path, &self.path_in_source) {
            // The source may be the module itself.
            (Some(path), _) if source.ends_with(path) => source.to_owned(),
            (Some(path), _) | (None, Some(path)) => source.join(path),
            (None, None) => source.to_owned(),
        }
    }

    /// The path, inside of a repository or of the given source.
    pub(crate) fn shown_path(&self) -> Option<&str> {
        let path = self.path.as_deref().or(self.path_in_source.as_deref());
        path.map(|path| if path.is_empty() { "." } else { path })
    }
}

impl fmt::Display for PlanPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = "unknown";
        write!(
            f,
            "repository {}, path {}, workspace {}",
            self.repository.as_deref().unwrap_or(unknown),
            self.shown_path().unwrap_or(unknown),
            self.workspace.as_deref().unwrap_or(unknown)
        )
    }
}

/// A repository's URL without scheme, userinfo, the scheme's own port and `.git`, the host in lower case:
/// `git@host:a/b` and `https://host/a/b.git` are both `host/a/b`. `None` for a path or a bundle.
pub(crate) fn repository(url: &str) -> Option<String> {
    let url = url.trim();
    let (host, path) = match url.split_once("://") {
        // A remote helper's address, `codecommit::region://repository`: only git knows its parts.
        Some((scheme, rest)) if scheme.contains("::") => {
            return Some(format!("{scheme}://{}", without_userinfo(rest)));
        }
        Some((scheme, rest)) => {
            let scheme = scheme.to_ascii_lowercase();
            let rest = rest.split(['?', '#']).next().unwrap_or_default();
            let (authority, path) = rest.split_once('/')?;
            if scheme == "file" {
                return None;
            }
            (host(&scheme, without_userinfo(authority))?, path)
        }
        None => {
            let (name, path) = scp_like(url)?;
            // The brackets of an IPv6 address are gone.
            let is_ipv6 = name.parse::<std::net::Ipv6Addr>().is_ok();
            let name = if is_ipv6 { format!("[{name}]") } else { name.to_owned() };
            (host("ssh", &name)?, path)
        }
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).trim_end_matches('/');
    (!host.is_empty() && !path.is_empty()).then(|| format!("{host}/{path}"))
}

fn without_userinfo(text: &str) -> &str {
    text.rsplit_once('@').map_or(text, |(_, host)| host)
}

/// The host, with the port if it is not the scheme's default. `None` if the port is not a number: it may be part of a
/// password.
fn host(scheme: &str, authority: &str) -> Option<String> {
    let end_of_ipv6 = authority.rfind(']').map_or(0, |end| end + 1);
    let (name, port) = match authority[end_of_ipv6..].split_once(':') {
        Some((name, port)) => (&authority[..end_of_ipv6 + name.len()], port),
        None => (authority, ""),
    };
    let name = name.to_ascii_lowercase();
    let own = match scheme {
        "https" => "443",
        "http" => "80",
        "ssh" | "git+ssh" | "ssh+git" => "22",
        "git" => "9418",
        _ => "",
    };
    if port.is_empty() || port == own {
        Some(name)
    } else if port.bytes().all(|byte| byte.is_ascii_digit()) {
        Some(format!("{name}:{port}"))
    } else {
        None
    }
}

/// Host and path of `[user@]host:path`. With a slash before the colon it is a path, as for git.
fn scp_like(text: &str) -> Option<(&str, &str)> {
    if let Some((host, path)) = text.split_once("]:") {
        // `user@[host:port]:path` and `[user@host]:path`, brackets as in an IPv6 address.
        let (before, host) = host.split_once('[')?;
        let host = if before.is_empty() { without_userinfo(host) } else { host };
        return (!before.contains('/') && !host.contains('/')).then_some((host, path));
    }
    let (host, path) = text.split_once(':')?;
    (!host.contains('/')).then(|| (without_userinfo(host), path))
}

/// The workspace that the tool will use: that of the variable `TF_WORKSPACE`, else the one that `terraform workspace
/// select` wrote to the data directory.
pub(crate) fn workspace(variable: Option<&str>, data_dir: Option<&Path>) -> String {
    let selected = || {
        let text = fs::read_to_string(data_dir?.join("environment")).ok()?;
        Some(text.trim().to_owned())
    };
    let named = variable.map(str::to_owned).or_else(selected).filter(|name| !name.is_empty());
    named.unwrap_or_else(|| DEFAULT_WORKSPACE.to_owned())
}

/// The default name of the layer: `<repository>.<path>[.<workspace>]` in lower case, with a dot
/// for each slash. `repository` is its last segment, or the directory's name. Eight digits of a digest
/// follow if another place could have the same name.
pub(crate) fn default_name(repository: &str, path: &str, workspace: Option<&str>) -> String {
    let path = path.trim_matches('/');
    let workspace = workspace.filter(|name| *name != DEFAULT_WORKSPACE);
    let parts = [Some(repository), (!path.is_empty()).then_some(path), workspace];
    let original = parts.into_iter().flatten().collect::<Vec<_>>().join("/");
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let mapped = |c: char| match c.to_ascii_lowercase() {
        '/' => '.',
        c if allowed(c) => c,
        _ => '-',
    };
    let name = original.chars().map(mapped).collect::<String>();
    let changed = original.chars().any(|c| c != '/' && !allowed(c));
    let segments_end_elsewhere = path.contains('.');
    if !changed && !segments_end_elsewhere && name.len() <= MAX_NAME {
        return name;
    }
    let digest = &Sha256::of(original.as_bytes()).to_string()[..8];
    // Only ASCII is left: every index is the start of a character.
    let kept = &name[..name.len().min(MAX_NAME - digest.len() - 1)];
    format!("{kept}-{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_one_name_however_its_url_is_written() {
        for url in [
            "https://host.example/a/b",
            "https://host.example/a/b.git",
            "https://host.example/a/b/",
            "https://host.example/a/b.git/",
            "https://HOST.example:443/a/b.git",
            "http://host.example:80/a/b",
            "https://user:p%40ss@host.example/a/b.git",
            "https://x-access-token:ghp_secret@host.example/a/b",
            "https://host.example/a/b.git?private_token=secret",
            "ssh://git@host.example/a/b.git",
            "ssh://git@host.example:22/a/b.git",
            "SSH://git@host.example/a/b",
            "git+ssh://git@host.example/a/b",
            "git://host.example:9418/a/b.git",
            "git@host.example:a/b.git",
            "git@Host.Example:a/b",
            "git@host.example:/a/b.git",
            "host.example:a/b",
            "git@[host.example:22]:a/b.git",
            "[git@host.example:22]:a/b",
            " git@host.example:a/b.git\n",
        ] {
            assert_eq!(repository(url).as_deref(), Some("host.example/a/b"), "{url:?}");
        }
    }

    #[test]
    fn what_tells_repositories_apart_is_kept() {
        for (url, expected) in [
            ("https://h/A/b.git", "h/A/b"),
            ("ssh://git@h:2222/a/b", "h:2222/a/b"),
            ("https://h:8443/a/b.git", "h:8443/a/b"),
            ("ssh://git@[::1]:2222/a/b", "[::1]:2222/a/b"),
            ("https://[::1]/a/b", "[::1]/a/b"),
            ("git@[::1]:a/b", "[::1]/a/b"),
            ("ssh://git@h:443/a/b", "h:443/a/b"),
            ("git@[h:2222]:a/b", "h:2222/a/b"),
            ("[git@h]:a/b", "h/a/b"),
            ("git@h:~me/b.git", "h/~me/b"),
            ("ssh://git@h/~me/b.git", "h/~me/b"),
            (
                "git@ssh.dev.azure.com:v3/org/My%20Project/b",
                "ssh.dev.azure.com/v3/org/My%20Project/b",
            ),
            ("codecommit::eu-west-1://profile@b", "codecommit::eu-west-1://b"),
            ("https://h/a.git/b", "h/a.git/b"),
        ] {
            assert_eq!(repository(url).as_deref(), Some(expected), "{url:?}");
        }
    }

    #[test]
    fn a_path_or_a_bundle_is_no_repository() {
        for url in [
            "",
            "/srv/git/infra.git",
            "./infra",
            "../infra.bundle",
            "infra.bundle",
            "~/infra",
            "/srv/a:b",
            "./a:b",
            "file:///srv/git/infra.git",
            "FILE:///srv/git/infra.git",
            "https://host/",
            "https://host",
            "git@host:",
            // A password that is not encoded: nothing of it may be stored.
            "https://user:pa/ss@host/a/b",
        ] {
            assert_eq!(repository(url), None, "{url:?}");
        }
    }

    #[test]
    fn a_default_name_says_repository_path_and_workspace() {
        for (parts, expected) in [
            (("infra", "live/dev/vpc", None), "infra.live.dev.vpc"),
            (("infra", "live/dev/vpc", Some("default")), "infra.live.dev.vpc"),
            (("infra", "live/dev/vpc", Some("blue")), "infra.live.dev.vpc.blue"),
            (("infra", "", None), "infra"),
            (("infra", "", Some("blue")), "infra.blue"),
            (("my.infra", "a_b/c-1", None), "my.infra.a_b.c-1"),
        ] {
            let (repository, path, workspace) = parts;
            assert_eq!(default_name(repository, path, workspace), expected);
        }
    }

    #[test]
    fn names_that_could_be_anothers_end_in_a_digest_of_the_original() {
        let hash = |original: &str| Sha256::of(original.as_bytes()).to_string()[..8].to_owned();
        for (path, workspace, kept, original) in [
            ("live.dev/vpc", None, "infra.live.dev.vpc", "infra/live.dev/vpc"),
            ("live/VPC", None, "infra.live.vpc", "infra/live/VPC"),
            ("a b", None, "infra.a-b", "infra/a b"),
            ("größe", None, "infra.gr--e", "infra/größe"),
            ("a\\b", Some("x y"), "infra.a-b.x-y", "infra/a\\b/x y"),
        ] {
            let expected = format!("{kept}-{}", hash(original));
            assert_eq!(default_name("infra", path, workspace), expected);
        }
        let edge = "p".repeat(180 - "infra.".len());
        assert_eq!(default_name("infra", &edge, None), format!("infra.{edge}"));
        let long = default_name("infra", &format!("{edge}p"), None);
        assert_eq!(long.len(), 180);
        assert!(long.ends_with(&format!("p-{}", hash(&format!("infra/{edge}p")))));
        assert_ne!(long, default_name("infra", &format!("{edge}q"), None));
        assert!(default_name("é", &"ü".repeat(300), None).len() <= 180);
    }

    #[test]
    fn the_workspace_is_the_variables_else_the_selected_one() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(workspace(None, None), "default");
        assert_eq!(workspace(None, Some(dir.path())), "default");
        fs::write(dir.path().join("environment"), "blue\n").unwrap();
        assert_eq!(workspace(None, Some(dir.path())), "blue");
        assert_eq!(workspace(Some("green"), Some(dir.path())), "green");
    }

    #[test]
    fn only_what_both_sides_know_is_compared() {
        let place = |repository: &str, path: &str, workspace: &str| {
            let known = |text: &str| (text != "?").then(|| text.to_owned());
            PlanPlace {
                repository: known(repository),
                path: known(path),
                workspace: known(workspace),
                ..PlanPlace::default()
            }
        };
        let here = place("h/a/b", "live/vpc", "default");
        for (other, agrees) in [
            (place("h/a/b", "live/vpc", "default"), true),
            (place("?", "live/vpc", "default"), true),
            (place("?", "?", "?"), true),
            (place("h/x/b", "live/vpc", "default"), false),
            (place("h/a/b", "live/db", "default"), false),
            (place("h/a/b", "live/vpc", "blue"), false),
            (place("?", "", "?"), false),
        ] {
            assert_eq!(here.agrees_with(&other), agrees, "{other}");
            assert_eq!(other.agrees_with(&here), agrees, "{other}");
        }
        let in_source = |path: &str| PlanPlace {
            path_in_source: Some(path.to_owned()),
            ..place("?", "?", "default")
        };
        for (a, b, agrees) in [
            (in_source("live/vpc"), in_source("live/vpc"), true),
            (in_source("live/vpc"), in_source("live/db"), false),
            (in_source("live/vpc"), in_source(""), false),
            (in_source("live/vpc"), place("?", "?", "default"), true),
            // A copy of a part of the repository.
            (in_source("live/vpc"), here.clone(), true),
            (in_source("vpc"), here.clone(), true),
            (in_source("copy/live/vpc"), here.clone(), true),
            (in_source(""), here.clone(), true),
            (in_source("live/db"), here.clone(), false),
            (in_source("c"), here.clone(), false),
        ] {
            assert_eq!((a.agrees_with(&b), b.agrees_with(&a)), (agrees, agrees), "{a}, {b}");
        }
        assert_eq!(in_source("a").to_string(), "repository unknown, path a, workspace default");
        assert_eq!(
            place("?", "", "default").to_string(),
            "repository unknown, path ., workspace default"
        );
    }
}
