//! The revision that an order names of a repository elsewhere, and the revision of which a plan was made: branches, tags,
//! HEAD.

use std::path::Path;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::cli::Environment;
use crate::process;
use crate::source::checkout::Source;
use crate::source::error::CheckoutError;
use crate::source::git::command::program;
use crate::source::git::reason::failure;
use crate::source::git::source::GitSource;

/// What an order without `--revision` names.
const HEAD: &str = "HEAD";
const BRANCHES: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";

/// The time for the list of a repository's branches and tags: a server that sends nothing for a minute has ended before.
const LIMIT: Duration = Duration::from_mins(5);

/// The revision that a source names, as it is recorded with a plan. `branch`: that of the HEAD of a directory.
pub(crate) fn named_revision(source: &Source, branch: Option<&String>) -> Option<String> {
    match source {
        Source::Git(git) => Some(git.named().to_owned()),
        Source::Directory(_) => branch.cloned(),
        Source::Packed(_) | Source::Bundle(_) => None,
    }
}

/// Whether a revision is a commit, also an abbreviated one.
pub(crate) fn is_commit(revision: &str) -> bool {
    revision.len() >= 7 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The revision that an order names of a repository elsewhere.
#[derive(Debug)]
pub(crate) struct OrderedRevision<'a> {
    git: &'a GitSource,
    environment: &'a Environment,
    /// Asked once, and only where the names do not tell.
    remote: OnceCell<Remote>,
}

/// What the repository has now. What it does not tell is `None`.
#[derive(Debug, PartialEq, Eq)]
struct Remote {
    /// The branch of its HEAD.
    head: Option<String>,
    /// The commit of the ordered revision.
    commit: Option<String>,
}

impl<'a> OrderedRevision<'a> {
    /// `None`: the source names no revision.
    pub(crate) fn of(source: &'a Source, environment: &'a Environment) -> Option<Self> {
        let Source::Git(git) = source else { return None };
        Some(Self { git, environment, remote: OnceCell::new() })
    }

    /// The name, `HEAD` where none was named.
    pub(crate) fn name(&self) -> &str {
        self.git.named()
    }

    /// Whether a plan of the revision `theirs` at `commit` may be of this one. It is if they have one name, or if this one is
    /// at that commit now; a commit that is named is compared elsewhere. What the repository does not tell is no difference.
    ///
    /// # Errors
    ///
    /// Only the repository tells, and it cannot be asked.
    pub(crate) async fn may_be(
        &self,
        theirs: Option<&str>,
        commit: Option<&str>,
    ) -> Result<bool, CheckoutError> {
        let (Some(theirs), ours) = (theirs, self.name()) else { return Ok(true) };
        if is_commit(ours) || is_same(ours, theirs) {
            return Ok(true);
        }
        let remote = self.remote().await?;
        if commit.is_some() && remote.commit.as_deref() == commit {
            return Ok(true);
        }
        Ok(match (remote.branch_of(ours), remote.branch_of(theirs)) {
            (Some(ours), Some(theirs)) => is_same(ours, theirs),
            _ => true,
        })
    }

    /// The commit at which it is now. `None`: the repository does not tell, or the order names a commit.
    pub(crate) async fn commit(&self) -> Result<Option<&str>, CheckoutError> {
        if is_commit(self.name()) {
            return Ok(None);
        }
        Ok(self.remote().await?.commit.as_deref())
    }

    async fn remote(&self) -> Result<&Remote, CheckoutError> {
        self.remote.get_or_try_init(|| self.ask_remote()).await
    }

    async fn ask_remote(&self) -> Result<Remote, CheckoutError> {
        let (url, name) = (self.git.url(), self.name());
        let mut args = vec!["ls-remote", "--quiet", "--symref", "--", url];
        let names = ref_names(name);
        // A bundle does not tell the branch of its HEAD, but all of its branches.
        if !self.git.is_bundle() {
            args.push(HEAD);
            args.extend(names.iter().map(String::as_str));
        }
        let program = program(Path::new("/"), &args, self.git.env(self.environment));
        let output = process::output_within(&program, LIMIT).await;
        let output = output.map_err(|error| CheckoutError::Git { reason: error.to_string() })?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            return Err(failure(self.git, &printed, output.status));
        }
        Ok(Remote::of(&String::from_utf8_lossy(&output.stdout), &names))
    }
}

impl Remote {
    /// Reads the output of `git ls-remote --symref`. `names`: the ordered revision, the first one counts.
    fn of(listed: &str, names: &[String]) -> Self {
        let lines = || listed.lines().filter_map(|line| line.split_once('\t'));
        let at = |wanted: &str| lines().find(|(at, name)| *name == wanted && !is_symbolic(at));
        let commit = names.iter().find_map(|name| at(name)).map(|(at, _)| at.to_owned());
        let symbolic =
            lines().find_map(|(at, name)| at.strip_prefix("ref: ").filter(|_| name == HEAD));
        let at_head = || {
            let (head, _) = at(HEAD)?;
            let mut branches =
                lines().filter(|(at, name)| *at == head && name.starts_with(BRANCHES));
            branches.next().filter(|_| branches.next().is_none()).map(|(_, name)| name)
        };
        let head = symbolic.or_else(at_head).map(str::to_owned);
        Self { head, commit }
    }

    fn branch_of<'n>(&'n self, name: &'n str) -> Option<&'n str> {
        if name == HEAD { self.head.as_deref() } else { Some(name) }
    }
}

fn is_symbolic(at: &str) -> bool {
    at.starts_with("ref: ")
}

/// The names that a revision may have in a repository: first a tag, as for git, and of that first its commit.
fn ref_names(name: &str) -> Vec<String> {
    if name == HEAD {
        vec![HEAD.to_owned()]
    } else if name.starts_with("refs/") {
        vec![format!("{name}^{{}}"), name.to_owned()]
    } else {
        vec![format!("{TAGS}{name}^{{}}"), format!("{TAGS}{name}"), format!("{BRANCHES}{name}")]
    }
}

/// Whether two names are of one revision: `main` and `refs/heads/main` are.
fn is_same(a: &str, b: &str) -> bool {
    let is_short = |name: &str| !name.starts_with(BRANCHES) && !name.starts_with(TAGS);
    let short = |name: &str| {
        let rest = name.strip_prefix(BRANCHES).or_else(|| name.strip_prefix(TAGS));
        rest.unwrap_or(name).to_owned()
    };
    a == b || (is_short(a) || is_short(b)) && short(a) == short(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_or_tag_is_the_same_however_it_is_named() {
        for (a, b, same) in [
            ("main", "main", true),
            ("main", "refs/heads/main", true),
            ("v1", "refs/tags/v1", true),
            ("refs/heads/v1", "refs/tags/v1", false),
            ("main", "pr", false),
            ("feat/main", "refs/heads/main", false),
            ("HEAD", "refs/heads/main", false),
        ] {
            assert_eq!((is_same(a, b), is_same(b, a)), (same, same), "{a} {b}");
        }
    }

    #[test]
    fn the_listing_has_the_branch_of_head_and_the_commit_of_a_name() {
        let listed = "ref: refs/heads/main\tHEAD\n1a\tHEAD\n1a\trefs/heads/main\n2b\trefs/heads/pr\n\
                      3c\trefs/tags/v1\n4d\trefs/tags/v1^{}\n5e\trefs/heads/v1\n";
        for (name, commit) in [
            ("HEAD", Some("1a")),
            ("main", Some("1a")),
            ("refs/heads/pr", Some("2b")),
            ("v1", Some("4d")),
            ("refs/heads/v1", Some("5e")),
            ("gone", None),
        ] {
            let expected =
                Remote { head: Some("refs/heads/main".into()), commit: commit.map(str::to_owned) };
            assert_eq!(Remote::of(listed, &ref_names(name)), expected, "{name}");
        }
        // A bundle, and a HEAD that may be of two branches.
        let bundle = "1a\tHEAD\n1a\trefs/heads/main\n2b\trefs/heads/pr\n";
        let head = |listed: &str| Remote::of(listed, &ref_names("pr")).head;
        assert_eq!(head(bundle).as_deref(), Some("refs/heads/main"));
        assert_eq!(head(&format!("{bundle}1a\trefs/heads/other\n")), None);
        assert_eq!(head(""), None);
    }
}
