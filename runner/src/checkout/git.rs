//! Git, by the `git` program: it knows the user's configuration, keys and helpers.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fs_err as fs;
use memchr::memmem;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::{CheckoutError, MARK, Site};
use crate::process::{self, Log, Program, Sink};

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
        git.run(&["checkout", "--quiet", "--force", "--detach", &commit]).await?;
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

/// Takes a commit out of a bundle into `dir`, which is new or holds an earlier checkout. Where `git_ref`
/// is a branch, it is checked out under its name, as by a clone: modules and terragrunt ask for it.
pub(super) async fn unbundle(
    bundle: &Path,
    git_ref: &str,
    revision: &str,
    dir: &Path,
    site: Site<'_>,
) -> Result<(), CheckoutError> {
    let log = Log::create(site.scratch.join("git.log"))?;
    let url = bundle.display().to_string();
    let source = GitSource { url, authorization: None, revision: Some(revision.to_owned()) };
    let git = Git { source: &source, dir, site, log };
    git.init().await?;
    git.run(&["fetch", "--quiet", "--", &source.url, "+refs/*:refs/bundle/*"]).await?;
    let commit = git.commit(revision).await?;
    git.run(&["checkout", "--quiet", "--force", "--detach", &commit]).await?;
    let branch = git_ref.strip_prefix("refs/heads/").unwrap_or(git_ref);
    if !branch.starts_with(['-', '@'])
        && git.commit(&format!("refs/bundle/heads/{branch}")).await.is_ok()
    {
        git.run(&["checkout", "--quiet", "-B", branch, &commit]).await?;
    }
    Ok(())
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
            None => Err(self.failure(&self.log.since(before)?)),
        }
    }

    /// What git's own words mean; they are stable in the C locale.
    fn failure(&self, stderr: &str) -> CheckoutError {
        let says = |any: &[&str]| any.iter().any(|text| stderr.contains(text));
        let url = self.source.url.clone();
        let reason = reason(stderr);
        if says(&["couldn't find remote ref", "not our ref"]) {
            self.no_such_revision()
        } else if says(&[
            "Authentication failed",
            "could not read Username",
            "could not read Password",
            "Permission denied (",
            "Host key verification failed",
            "error: 401",
            "error: 403",
        ]) {
            CheckoutError::Credentials { url, reason }
        } else if says(&[
            "not found",
            "does not appear to be a git repository",
            "dubious ownership",
            "error: 404",
        ]) {
            CheckoutError::NoSuchRepository { url, reason }
        } else if says(&[
            "Could not resolve",
            "Failed to connect",
            "Connection refused",
            "Connection reset",
            "timed out",
            "unable to access",
            "early EOF",
            "hung up unexpectedly",
            "Could not read from remote",
        ]) {
            CheckoutError::Network { url, reason }
        } else {
            CheckoutError::Git { reason }
        }
    }

    /// The commit that a name which was fetched means.
    async fn commit(&self, name: &str) -> Result<String, CheckoutError> {
        let name = format!("{name}^{{commit}}");
        let program = program(self.dir, &["rev-parse", "--verify", "--quiet", &name], Vec::new());
        let output = process::output(&program).await?;
        if !output.status.success() {
            return Err(self.no_such_revision());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn no_such_revision(&self) -> CheckoutError {
        let revision = self.source.revision.clone().unwrap_or_else(|| "HEAD".to_owned());
        CheckoutError::NoSuchRevision { url: self.source.url.clone(), revision }
    }
}

/// The first line of substance: what follows it is advice.
fn reason(stderr: &str) -> String {
    let first = |prefix: &str| stderr.lines().find(|line| line.starts_with(prefix));
    let line = first("fatal:").or_else(|| first("error:")).or_else(|| stderr.lines().next());
    without_password(line.unwrap_or("it said nothing").trim())
}

/// Git shows the URLs of submodules as they are written.
fn without_password(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, url)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let end =
            url.find(|c: char| c == '/' || c.is_whitespace() || c == '\'').unwrap_or(url.len());
        let host = url[..end].rfind('@').map_or(0, |at| at + 1);
        rest = &url[host..];
    }
    shown + rest
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

/// The work tree that holds a directory.
#[derive(Debug)]
pub(crate) struct WorkTree {
    /// Its top, without links.
    pub(crate) top: PathBuf,
    /// The URL of `origin`, as configured: what `insteadOf` makes of it is this machine's business.
    pub(crate) origin: Option<String>,
}

/// The work tree that holds `dir`; `None` where there is no git.
pub(crate) async fn work_tree(dir: &Path) -> Option<WorkTree> {
    let (top, origin) = tokio::join!(
        question(dir, &["rev-parse", "--show-toplevel"]),
        question(dir, &["config", "--get-all", "remote.origin.url"]),
    );
    let top = top.ok()?;
    let top = OsStr::from_bytes(top.strip_suffix(b"\n").unwrap_or(&top));
    // Without a URL git ends with 1 and says nothing.
    let origin = origin.ok().map(|urls| String::from_utf8_lossy(&urls).into_owned());
    let origin = origin.and_then(|urls| urls.lines().next().map(str::to_owned));
    Some(WorkTree { top: fs::canonicalize(top).ok()?, origin })
}

/// What git answers; an error is its reason. Asking must not wait for, or take, the index's lock.
pub(super) async fn question(dir: &Path, args: &[impl AsRef<OsStr>]) -> Result<Vec<u8>, String> {
    let env = [("GIT_OPTIONAL_LOCKS", "0"), ("LC_ALL", "C")];
    let env = env.map(|(name, value)| (name.to_owned(), OsString::from(value))).to_vec();
    match process::output(&program(dir, args, env)).await {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(reason(&String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(error.to_string()),
    }
}

/// HEAD of the work tree that holds `dir`, with `-dirty` when files in it differ: but for what the
/// tool writes there, and for `ours`. `None` where there is no git, or no commit; the log says why.
pub(super) async fn revision(dir: &Path, ours: &[PathBuf]) -> Option<String> {
    let names = match question(dir, &["rev-parse", "--show-toplevel", "HEAD"]).await {
        Ok(names) => String::from_utf8_lossy(&names).into_owned(),
        Err(why) if why.contains("not a git repository") => return None,
        Err(why) => {
            tracing::warn!("the code's commit is not known: {why}");
            return None;
        }
    };
    let Some((top, head)) = names.trim_end().rsplit_once('\n') else {
        tracing::warn!("the code's commit is not known: git names no work tree");
        return None;
    };
    match question(dir, STATUS).await {
        Ok(status) => {
            let top = Path::new(top);
            let dirty = status.split(|byte| *byte == 0).any(|entry| is_change(entry, top, ours));
            Some(if dirty { format!("{head}-dirty") } else { head.to_owned() })
        }
        // The commit is known all the same; a large work tree on a slow disk takes its time.
        Err(why) => {
            tracing::warn!("whether the code differs from commit {head} is not known: {why}");
            Some(head.to_owned())
        }
    }
}

const STATUS: &[&str] =
    &["status", "--porcelain=v1", "--no-renames", "-z", "--untracked-files=all"];

/// Whether code differs from the commit; so it does where git does not answer.
pub(super) async fn is_code_changed(dir: &Path, ours: &[PathBuf]) -> bool {
    let (tree, status) = tokio::join!(work_tree(dir), question(dir, STATUS));
    let (Some(WorkTree { top, .. }), Ok(status)) = (tree, status) else { return true };
    let mut changes = status.split(|byte| *byte == 0).filter(|entry| is_change(entry, &top, ours));
    changes.any(is_code)
}

/// Whether an entry of git's status is of code: a tracked file other than the tool's lock file, or one that
/// a tool reads by itself.
fn is_code(entry: &[u8]) -> bool {
    const READ: [&[u8]; 8] = [
        b".tf",
        b".tf.json",
        b".tofu",
        b".tofu.json",
        b".tfvars",
        b".tfvars.json",
        b".hcl",
        b".hcl.json",
    ];
    let ends_with = |ending: &[u8]| entry.ends_with(ending);
    !ends_with(b".terraform.lock.hcl")
        && (!entry.starts_with(b"?? ") || READ.iter().any(|ending| ends_with(ending)))
}

/// Whether an entry of git's status, `XY path`, is a change of the user's.
fn is_change(entry: &[u8], top: &Path, ours: &[PathBuf]) -> bool {
    let Some((status, path)) = entry.split_at_checked(3) else { return false };
    let (path, untracked) = (Path::new(OsStr::from_bytes(path)), status == b"?? ");
    let file = top.join(path);
    let ours = ours.iter().any(|own| file.starts_with(own));
    let of_tool = is_own(path, untracked) || (untracked && is_generated(&file));
    !ours && !of_tool
}

/// Whether the tool writes this file itself. A lock file that is tracked is code.
fn is_own(path: &Path, untracked: bool) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_data = |part: Component<'_>| {
        let part = part.as_os_str();
        part == ".terraform" || part == ".terragrunt-cache"
    };
    name.ends_with(".tfstate")
        || name.ends_with(".tfstate.backup")
        || name.ends_with(".tfstate.lock.info")
        || (untracked && name == ".terraform.lock.hcl")
        || (untracked && path.components().any(is_data))
}

/// Whether terragrunt's `generate` wrote this file: it signs the first line.
fn is_generated(file: &Path) -> bool {
    const SIGNATURE: &[u8] = b"Generated by Terragrunt. Sig: nIlQXj57tbuaRZEa";
    let mut head = Vec::new();
    let read = fs::File::open(file).and_then(|file| file.take(256).read_to_end(&mut head));
    read.is_ok() && memmem::find(&head, SIGNATURE).is_some()
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
    fn a_reason_shows_no_password() {
        let said = "fatal: clone of 'https://u:p@x.example/a@b' into 'm' failed; see git://y/z";
        let shown = "fatal: clone of 'https://x.example/a@b' into 'm' failed; see git://y/z";
        assert_eq!(reason(said), shown);
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

    #[test]
    fn untracked_files_are_code_only_where_a_tool_reads_them() {
        for entry in [" M README.md", "A  a b.txt", " D main.tf", "?? a/new.tf", "?? x.auto.tfvars"]
        {
            assert!(is_code(entry.as_bytes()), "{entry}");
        }
        for entry in [" M a/.terraform.lock.hcl", "?? result.json", "?? notes.txt"] {
            assert!(!is_code(entry.as_bytes()), "{entry}");
        }
    }

    #[test]
    fn files_of_the_tool_do_not_make_a_tree_dirty() {
        for path in
            ["terraform.tfstate", "a/terraform.tfstate.backup", ".terraform.tfstate.lock.info"]
        {
            assert!(is_own(Path::new(path), false) && is_own(Path::new(path), true), "{path}");
        }
        for path in [".terraform.lock.hcl", "a/.terraform/providers/x"] {
            assert!(is_own(Path::new(path), true) && !is_own(Path::new(path), false), "{path}");
        }
        assert!(is_own(Path::new("a/.terragrunt-cache/x/y/main.tf"), true));
        assert!(!is_own(Path::new("main.tf"), true));
    }
}
