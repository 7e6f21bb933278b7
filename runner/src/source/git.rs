//! Git, by the `git` program: it knows the user's configuration, keys and helpers.

mod reason;
mod work_tree;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fs_err as fs;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::process::{self, Log, Program, Sink};
use crate::source::checkout::{CheckoutError, MARK, Site};
use crate::source::git::reason::{failure, no_such_revision, reason};
pub(crate) use crate::source::git::work_tree::{WorkTree, work_tree};
pub(super) use crate::source::git::work_tree::{is_code_changed, question, revision};
use crate::source::states;

/// From the signal to the kill: git only has its locks to take away.
const GRACE: Duration = Duration::from_secs(10);

/// A repository elsewhere, and what of it is wanted.
#[derive(Clone, Debug)]
pub(crate) struct GitSource {
    /// As git takes it, without credentials.
    url: String,
    /// The credentials that the URL held, as the value of `Authorization`, for this origin only.
    authorization: Option<(String, SecretString)>,
    /// A branch, tag or commit; the remote's HEAD where none is named.
    revision: Option<String>,
}

impl GitSource {
    /// `None` if the text is no git URL.
    pub(super) fn parse(text: &str, revision: Option<&str>) -> Result<Option<Self>, String> {
        let source = if text.contains("://") {
            from_url(text)?
        } else if is_scp_like(text) {
            Self { url: text.to_owned(), authorization: None, revision: None }
        } else {
            return Ok(None);
        };
        let Some(revision) = revision else { return Ok(Some(source)) };
        // Git reads options, refspecs and globs out of what it takes for a ref's name.
        let foreign = |c: char| c.is_control() || c.is_whitespace() || ":*?[^~\\".contains(c);
        if revision.is_empty() || revision.starts_with(['-', '+']) || revision.contains(foreign) {
            return Err(format!("--revision `{revision}` is no branch, tag or commit"));
        }
        Ok(Some(Self { revision: Some(revision.to_owned()), ..source }))
    }

    /// As git takes it, without credentials.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The branch, tag or commit that is asked for.
    pub(crate) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// The same repository at another commit.
    pub(super) fn at(&self, commit: &str) -> Self {
        Self { revision: Some(commit.to_owned()), ..self.clone() }
    }

    /// The last part of its URL, without `.git`.
    pub(crate) fn name(&self) -> &str {
        let path = self.url.trim_end_matches('/');
        let name = path.rsplit(['/', ':']).next().unwrap_or_default();
        name.strip_suffix(".git").unwrap_or(name)
    }

    /// Fetches the revision into `dir`, which may hold an earlier checkout, and returns its commit.
    pub(super) async fn fetch(&self, dir: &Path, site: Site<'_>) -> Result<String, CheckoutError> {
        let log = Log::create(site.scratch.join("git.log"))?;
        let git = Git { source: self, dir, site, log };
        git.init().await?;
        let wanted = self.revision.as_deref().unwrap_or("HEAD");
        let one = ["fetch", "--quiet", "--depth=1", "--no-tags", "--", &self.url, wanted];
        let fetched = match git.run(&one).await {
            Ok(()) => "FETCH_HEAD",
            // An abbreviated commit, or one that the server does not hand out by itself.
            Err(CheckoutError::NoSuchRevision { .. }) => {
                let all = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"];
                let shallow = fs::exists(dir.join(".git/shallow"))?;
                let unshallow = if shallow { "--unshallow" } else { "--no-tags" };
                git.run(&["fetch", "--quiet", unshallow, "--", &self.url, all[0], all[1]]).await?;
                wanted
            }
            Err(error) => return Err(error),
        };
        let commit = git.commit(fetched).await?;
        git.check_out(&commit, None).await?;
        Ok(commit)
    }

    /// Git for a checkout that was fetched into `dir`, whose relative URLs of submodules and of LFS files
    /// are relative to this URL.
    pub(super) async fn fetched<'a>(
        &'a self,
        dir: &'a Path,
        site: Site<'a>,
    ) -> Result<Git<'a>, CheckoutError> {
        let log = Log::create(site.scratch.join("submodules.log"))?;
        let git = Git { source: self, dir, site, log };
        git.run(&["config", "remote.origin.url", &self.url]).await?;
        Ok(git)
    }

    fn env(&self, site: Site<'_>) -> Vec<(String, OsString)> {
        let mut env = [
            ("LC_ALL", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // Nobody is there to answer ssh either.
            ("SSH_ASKPASS", "false"),
            ("SSH_ASKPASS_REQUIRE", "force"),
            // A server that sends nothing for a minute is given up.
            ("GIT_HTTP_LOW_SPEED_LIMIT", "1"),
            ("GIT_HTTP_LOW_SPEED_TIME", "60"),
        ]
        .map(|(name, value)| (name.to_owned(), OsString::from(value)))
        .to_vec();
        if let Some((origin, authorization)) = &self.authorization {
            // By the environment, which only we and root can read, and never by argv or a file.
            let header = format!("Authorization: {}", authorization.expose_secret());
            env.extend(site.environment.git_config(format!("http.{origin}.extraHeader"), header));
        }
        env
    }
}

/// Makes the repository that takes a bundle, which may be on its way still.
pub(super) async fn prepare(dir: &Path, site: Site<'_>) -> Result<(), CheckoutError> {
    let log = Log::create(site.scratch.join("init.log"))?;
    let source = GitSource { url: String::new(), authorization: None, revision: None };
    Git { source: &source, dir, site, log }.init().await
}

/// Takes the first of the revisions that a bundle holds into `dir`, which was prepared and may hold an earlier
/// checkout, and returns that revision. Where `git_ref` is a branch, it is checked out under its name, as by a
/// clone: modules and terragrunt ask for it.
pub(super) async fn unbundle<'a>(
    bundle: &Path,
    git_ref: &str,
    revisions: &[&'a str],
    dir: &Path,
    site: Site<'_>,
) -> Result<&'a str, CheckoutError> {
    let log = Log::create(site.scratch.join("git.log"))?;
    let (url, last) = (bundle.display().to_string(), revisions.last().copied().unwrap_or_default());
    let source = GitSource { url, authorization: None, revision: Some(last.to_owned()) };
    let git = Git { source: &source, dir, site, log };
    let refs = "+refs/*:refs/bundle/*";
    git.run(&["fetch", "--quiet", "--no-auto-gc", "--", &source.url, refs]).await?;
    let branch = git_ref.strip_prefix("refs/heads/").unwrap_or(git_ref);
    let tip = format!("refs/bundle/heads/{branch}");
    let first = async {
        for revision in revisions {
            match git.commit(revision).await {
                Err(CheckoutError::NoSuchRevision { .. }) => {}
                commit => return Ok((*revision, commit?)),
            }
        }
        Err(no_such_revision(&source))
    };
    let (found, tip) = tokio::join!(first, git.commit(&tip));
    let (revision, commit) = found?;
    let is_branch = tip.is_ok() && !branch.starts_with(['-', '@']);
    git.check_out(&commit, is_branch.then_some(branch)).await?;
    Ok(revision)
}

fn from_url(text: &str) -> Result<GitSource, String> {
    // A URL that does not parse may hold a password: it is not shown.
    let mut url = Url::parse(text).map_err(|error| format!("the source is no URL: {error}"))?;
    let known = matches!(url.scheme(), "https" | "http" | "ssh" | "git" | "file");
    if !known || url.cannot_be_a_base() {
        return Err(
            "the source cannot be fetched: a git URL begins with https://, http://, ssh://, git:// \
             or file://, or is user@host:path"
                .to_owned(),
        );
    }
    let mut authorization = None;
    if matches!(url.scheme(), "https" | "http") && !url.username().is_empty() {
        let plain = |text: &str| percent_decoded(text);
        let pair = format!("{}:{}", plain(url.username()), plain(url.password().unwrap_or("")));
        let value = SecretString::from(format!("Basic {}", BASE64_STANDARD.encode(pair)));
        let origin = format!("{}/", url.origin().ascii_serialization());
        authorization = Some((origin, value));
        url.set_username("")
            .and_then(|()| url.set_password(None))
            .map_err(|()| "the source has no host")?;
    } else if url.password().is_some() {
        return Err(format!("a {} URL takes no password", url.scheme()));
    }
    Ok(GitSource { url: url.into(), authorization, revision: None })
}

fn percent_decoded(text: &str) -> String {
    // The query parser of `url` decodes; a name before `=` keeps `+` from meaning a space.
    let query = format!("v={}", text.replace('+', "%2B").replace('&', "%26"));
    url::form_urlencoded::parse(query.as_bytes())
        .next()
        .map(|(_, v)| v.into_owned())
        .unwrap_or_default()
}

/// `user@host:path`, the spelling of scp.
fn is_scp_like(text: &str) -> bool {
    let Some((host, path)) = text.split_once(':') else { return false };
    let word = |text: &str| {
        !text.is_empty()
            && !text.starts_with('-')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    match host.split_once('@') {
        Some((user, host)) => word(user) && word(host) && !path.is_empty(),
        None => false,
    }
}

/// The program, for one checkout.
pub(super) struct Git<'a> {
    source: &'a GitSource,
    dir: &'a Path,
    site: Site<'a>,
    /// What git said; a message of ours tells what matters of it.
    log: Log,
}

impl Git<'_> {
    /// A repository for a checkout, in which our own mark is nobody's change.
    async fn init(&self) -> Result<(), CheckoutError> {
        self.run(&["init", "--quiet"]).await?;
        let info = self.dir.join(".git/info");
        fs::create_dir_all(&info)?;
        Ok(fs::write(info.join("exclude"), format!("/{MARK}\n"))?)
    }

    /// Checks a commit out, under the name of a branch if there is one. State files that are there already stay
    /// as they are, also where the commit has others.
    async fn check_out(&self, commit: &str, branch: Option<&str>) -> Result<(), CheckoutError> {
        let dir = self.dir.to_owned();
        let states = tokio::task::spawn_blocking(move || states::find(&dir));
        let states = states.await.map_err(std::io::Error::other)??;
        if !states.is_empty() {
            return self.check_out_around(&states, commit, branch).await;
        }
        let head = branch.map_or(vec!["--detach"], |branch| vec!["-B", branch]);
        self.run(&[&["checkout", "--quiet", "--force"], &*head, &[commit]].concat()).await
    }

    /// Checks out everything but these files.
    async fn check_out_around(
        &self,
        states: &[PathBuf],
        commit: &str,
        branch: Option<&str>,
    ) -> Result<(), CheckoutError> {
        let files = self.files(commit).await?;
        for state in states {
            let mut above = state.ancestors().skip(1);
            if let Some(file) = above.find_map(|above| files.get(above)) {
                let (state, file) = (self.dir.join(state), file.to_owned());
                return Err(CheckoutError::StateInTheWay { state, file });
            }
        }
        let kept = states.iter().filter(|state| files.contains(*state));
        for state in kept.clone() {
            let state = self.dir.join(state);
            tracing::warn!("keeping {}: the commit has a copy, too", state.display());
        }
        if files.len() > kept.count() {
            let but = states.iter().map(|state| {
                let mut pathspec = OsString::from(":(exclude,literal)");
                pathspec.push(state);
                pathspec
            });
            let but = but.collect::<Vec<_>>();
            let all = ["checkout", "--quiet", "--force", "--no-overlay", commit, "--", "."];
            let args = all.iter().map(OsStr::new).chain(but.iter().map(OsString::as_os_str));
            self.run_in(self.dir, &args.collect::<Vec<_>>()).await?;
        }
        let Some(branch) = branch else {
            return self.run(&["update-ref", "--no-deref", "HEAD", commit]).await;
        };
        let branch = format!("refs/heads/{branch}");
        self.run(&["update-ref", &branch, commit]).await?;
        self.run(&["symbolic-ref", "HEAD", &branch]).await
    }

    /// The files and links of a commit, without submodules.
    async fn files(&self, commit: &str) -> Result<BTreeSet<PathBuf>, CheckoutError> {
        let listed = question(self.dir, &["ls-tree", "-r", "-z", "--full-tree", commit]).await;
        let listed = listed.map_err(|reason| CheckoutError::Git { reason })?;
        let files = listed.split(|byte| *byte == 0).filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'\t')?;
            let is_submodule = entry.starts_with(b"160000 ");
            (!is_submodule).then(|| PathBuf::from(OsStr::from_bytes(&entry[at + 1..])))
        });
        Ok(files.collect())
    }

    async fn run(&self, args: &[&str]) -> Result<(), CheckoutError> {
        self.run_in(self.dir, &args.iter().map(OsStr::new).collect::<Vec<_>>()).await
    }

    /// Runs it in the checkout, or in a submodule.
    pub(super) async fn run_in(&self, dir: &Path, args: &[&OsStr]) -> Result<(), CheckoutError> {
        let before = fs::metadata(self.log.path())?.len();
        let program = program(dir, args, self.source.env(self.site));
        let sink = Sink::Hidden(&self.log);
        let ended = process::run(&program, sink, self.site.signals, GRACE).await;
        let ended = ended.map_err(|error| CheckoutError::Git { reason: error.to_string() })?;
        match ended.stop {
            Some(stop) => Err(CheckoutError::Stopped(stop)),
            None if ended.status.success() => Ok(()),
            None => Err(failure(self.source, &self.log.since(before)?)),
        }
    }

    /// The commit that a name which was fetched means.
    async fn commit(&self, name: &str) -> Result<String, CheckoutError> {
        let name = format!("{name}^{{commit}}");
        let program = program(self.dir, &["rev-parse", "--verify", "--quiet", &name], Vec::new());
        let output = process::output(&program).await?;
        if !output.status.success() {
            return Err(no_such_revision(self.source));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// What git sets for the hooks that it runs, one of which may have started us: it would mean another
/// repository than the one that we mean.
const WITHOUT: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
];

fn program(dir: &Path, args: &[impl AsRef<OsStr>], env: Vec<(String, OsString)>) -> Program {
    let args = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
    Program { path: PathBuf::from("git"), args, dir: dir.to_owned(), env, without: WITHOUT }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> GitSource {
        GitSource::parse(text, None).unwrap().unwrap()
    }

    #[test]
    fn credentials_leave_the_url_and_show_nowhere() {
        let source = parsed("https://user:p%40ss+w@git.example.com:8443/infra.git");
        assert_eq!(source.url, "https://git.example.com:8443/infra.git");
        let (origin, value) = source.authorization.clone().unwrap();
        assert_eq!(origin, "https://git.example.com:8443/");
        let expected = BASE64_STANDARD.encode("user:p@ss+w");
        assert_eq!(value.expose_secret(), format!("Basic {expected}"));
        let shown = format!("{source:?}");
        assert!(!shown.contains(&expected) && !shown.contains("p%40ss"), "{shown}");
        assert!(GitSource::parse("ssh://git:pw@host/x", None).is_err());
    }

    #[test]
    fn a_repository_is_named_by_the_end_of_its_url() {
        for (url, name) in [
            ("https://git.example.com/team/infra.git", "infra"),
            ("git@git.example.com:infra", "infra"),
            ("ssh://git@host/infra/", "infra"),
        ] {
            assert_eq!(parsed(url).name(), name);
        }
    }
}
