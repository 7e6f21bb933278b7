//! Checkouts by the `git` program: fetched from a URL, or taken from a bundle.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;

use crate::cli::Environment;
use crate::process::limits::Limits;
use crate::process::redact::Redaction;
use crate::process::{self, Log, Output, Program};
use crate::source::checkout::context::CheckoutContext;
use crate::source::copy;
use crate::source::error::{CheckoutError, list};
use crate::source::git::command::{program, question};
use crate::source::git::files::{checked_out, paths};
use crate::source::git::hidden;
use crate::source::git::incomplete::{self, Tree, mark_complete, remove_locks};
use crate::source::git::reason::{failure, no_such_revision};
use crate::source::git::running;
use crate::source::git::source::GitSource;
use crate::source::regular::unless_missing;
use crate::source::states;
use crate::source::work_dir::{foreign, move_mark};

/// What git says if the filter of git LFS fails.
const LFS_FAILED: [&str; 2] = ["smudge filter lfs failed", "was not filtered properly"];
/// Arguments with which git LFS leaves the pointers of files that it cannot fetch.
const POINTERS_OF_LOST: [&str; 2] = ["-c", "lfs.skipdownloaderrors=true"];
/// Arguments with which git writes the pointers of all LFS files.
const POINTERS: [&str; 6] =
    ["-c", "filter.lfs.smudge=cat", "-c", "filter.lfs.process=", "-c", "filter.lfs.required=false"];

/// From the signal to the kill: git only has to remove its locks.
const GRACE: Duration = Duration::from_secs(10);

impl GitSource {
    /// Fetches the revision into `dir`, which may hold an earlier checkout, and returns its commit. The checkout is complete
    /// when its submodules are: see [`mark_complete`].
    pub(in crate::source) async fn fetch(
        &self,
        dir: &Path,
        context: CheckoutContext<'_>,
    ) -> Result<String, CheckoutError> {
        let git = Git::new(self, dir, context, "git.log").await?;
        git.init().await?;
        let wanted = self.named();
        let one = async |depth: &[&str]| {
            let end = ["--no-tags", "--", &self.url, wanted];
            git.run(&[&["fetch", "--quiet"], depth, &end].concat()).await
        };
        let fetched = match one(&["--depth=1"]).await {
            Err(error) if needs_whole_history(&error) => one(&[]).await,
            fetched => fetched,
        };
        let fetched = match fetched {
            Ok(()) => "FETCH_HEAD",
            // An abbreviated commit, or one that the server does not serve by itself. HEAD would be that of an earlier checkout.
            Err(CheckoutError::NoSuchRevision { .. }) if !["HEAD", "@"].contains(&wanted) => {
                let all = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"];
                let shallow = fs::exists(dir.join(".git/shallow"))?;
                let unshallow = if shallow { "--unshallow" } else { "--no-tags" };
                // What the repository no longer has must not be found here.
                let fetch = ["fetch", "--quiet", "--prune", unshallow, "--", &self.url];
                git.run(&[&fetch[..], &all].concat()).await?;
                wanted
            }
            Err(error) => return Err(error),
        };
        let commit = git.commit(fetched).await?;
        git.warn_if_ambiguous(wanted).await?;
        // The filter of git LFS fetches from there, and so do relative URLs of submodules.
        git.run(&["config", "remote.origin.url", &self.url]).await?;
        git.check_out(&commit, None).await?;
        Ok(commit)
    }

    /// Git for a checkout that was fetched into `dir`.
    pub(in crate::source) async fn fetched<'a>(
        &'a self,
        dir: &'a Path,
        context: CheckoutContext<'a>,
    ) -> Result<Git<'a>, CheckoutError> {
        Git::new(self, dir, context, "submodules.log").await
    }

    /// The variables of an unattended git that asks this repository.
    pub(super) fn env(&self, environment: &Environment) -> Vec<(String, OsString)> {
        let mut env = [
            ("LC_ALL", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            // Runs are unattended: ssh must not prompt either.
            ("SSH_ASKPASS", "false"),
            ("SSH_ASKPASS_REQUIRE", "force"),
            // A server that sends nothing for a minute times out.
            ("GIT_HTTP_LOW_SPEED_LIMIT", "1"),
            ("GIT_HTTP_LOW_SPEED_TIME", "60"),
        ]
        .map(|(name, value)| (name.to_owned(), OsString::from(value)))
        .to_vec();
        env.extend(self.git_credentials(environment));
        env
    }
}

/// Whether the server only has files (dumb HTTP): then git fetches the whole history, or nothing.
pub(in crate::source) fn needs_whole_history(error: &CheckoutError) -> bool {
    matches!(error, CheckoutError::Git { reason } if reason.contains("does not support shallow"))
}

/// Creates the repository for a bundle, while the bundle may still be downloading.
pub(in crate::source) async fn prepare(
    dir: &Path,
    context: CheckoutContext<'_>,
) -> Result<(), CheckoutError> {
    let source = GitSource { url: String::new(), credentials: None, revision: None };
    Git::new(&source, dir, context, "init.log").await?.init().await
}

/// Checks out the first of the revisions that a bundle contains, and returns it. `dir` was prepared and may have an earlier
/// checkout. If `git_ref` is a branch, it is checked out under its name, as a clone does: modules and terragrunt read it.
pub(in crate::source) async fn unbundle<'a>(
    bundle: &Path,
    git_ref: &str,
    revisions: &[&'a str],
    dir: &Path,
    context: CheckoutContext<'_>,
) -> Result<&'a str, CheckoutError> {
    let (url, last) = (bundle.display().to_string(), revisions.last().copied().unwrap_or_default());
    let source = GitSource { url, credentials: None, revision: Some(last.to_owned()) };
    let git = Git::new(&source, dir, context, "git.log").await?;
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
    mark_complete(dir)?;
    Ok(revision)
}

async fn find_states(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || states::find(&dir)).await.map_err(std::io::Error::other)?
}

/// The program, for one checkout.
pub(in crate::source) struct Git<'a> {
    source: &'a GitSource,
    dir: &'a Path,
    context: CheckoutContext<'a>,
    /// Git's output, from which the reason of an error is read.
    log: Log,
    /// Locked while this git runs.
    lock: Arc<File>,
}

impl<'a> Git<'a> {
    /// Waits until the git of a killed run has ended. `log` is the name of a private file.
    async fn new(
        source: &'a GitSource,
        dir: &'a Path,
        context: CheckoutContext<'a>,
        log: &str,
    ) -> Result<Self, CheckoutError> {
        let lock = running::wait_and_lock(dir, context.signals).await?;
        let log = Log::create(context.scratch.join(log), &Redaction::default())?;
        Ok(Self { source, dir, context, log, lock })
    }
}

impl Git<'_> {
    /// Creates the repository of a checkout, in which the runner's mark is from now on. In one that exists already it removes what
    /// a killed git has left, before a fetch can delete commits that no reference names.
    async fn init(&self) -> Result<(), CheckoutError> {
        // No other git runs here: the directory is locked, and the git of a killed run has ended.
        unless_missing(remove_locks(&self.dir.join(".git")))?;
        self.run(&["init", "--quiet"]).await?;
        let info = self.dir.join(".git/info");
        fs::create_dir_all(&info)?;
        // A template of the user may exclude files.
        fs::write(info.join("exclude"), "")?;
        move_mark(self.dir)?;
        for submodule in incomplete::remove_incomplete(self.dir).await? {
            self.restore(&submodule).await?;
        }
        Ok(mark_complete(self.dir)?)
    }

    /// Warns if the name that was fetched is that of a tag and of a branch: git takes the tag.
    async fn warn_if_ambiguous(&self, name: &str) -> Result<(), CheckoutError> {
        let fetched = fs::read_to_string(self.dir.join(".git/FETCH_HEAD")).unwrap_or_default();
        if !fetched.contains(&format!("\ttag '{name}' of ")) {
            return Ok(());
        }
        let before = fs::metadata(self.log.path())?.len();
        let (url, branch) = (&self.source.url, format!("refs/heads/{name}"));
        match self.run(&["ls-remote", "--heads", "--", url, &branch]).await {
            Err(CheckoutError::Stopped(stop)) => return Err(CheckoutError::Stopped(stop)),
            // The commit is there, and only the warning is lost.
            Err(error) => tracing::debug!("{error}"),
            Ok(()) => {}
        }
        if self.log.since(before)?.lines().any(|line| line.ends_with(&format!("\t{branch}"))) {
            tracing::warn!(
                "the revision `{name}` is ambiguous: {url} has a tag and a branch of this name, and the tag is used; \
                 name it as refs/tags/{name}, or the branch as {branch}"
            );
        }
        Ok(())
    }

    /// Checks a commit out, under the name of a branch if there is one. State files that are there already stay
    /// as they are, also where the commit has others.
    async fn check_out(&self, commit: &str, branch: Option<&str>) -> Result<(), CheckoutError> {
        self.reveal().await?;
        let states = find_states(self.dir).await?;
        incomplete::remove_dropped_submodules(self.dir, commit).await?;
        self.check_foreign().await?;
        if !states.is_empty() {
            return self.check_out_around(&states, commit, branch).await;
        }
        incomplete::mark_incomplete(self.dir, commit)?;
        let head = branch.map_or(vec!["--detach"], |branch| vec!["-B", branch]);
        let args = [&["checkout", "--quiet", "--force"], &*head, &[commit]].concat();
        self.write_files(self.dir, &args.into_iter().map(OsStr::new).collect::<Vec<_>>()).await
    }

    /// Runs a checkout. Files that git LFS cannot fetch are pointers, and all of them where it fails as a whole, as for a bundle,
    /// which has no such files. Those that the code reads are fetched by themselves, or refused. A server that may have them
    /// another time is an error: without the others' contents too, a plan would be another one.
    async fn write_files(&self, dir: &Path, args: &[&OsStr]) -> Result<(), CheckoutError> {
        let before = fs::metadata(self.log.path())?.len();
        let error = match Box::pin(self.run_in(dir, args)).await {
            Err(error) if !matches!(error, CheckoutError::Stopped(_)) => error,
            ended => return ended,
        };
        let printed = self.log.since(before)?;
        if !LFS_FAILED.iter().any(|text| printed.contains(text)) || self.is_of_server(&error) {
            return Err(error);
        }
        tracing::warn!(
            "git LFS cannot fetch files of this checkout, which has pointers in their place: {error}"
        );
        let before = fs::metadata(self.log.path())?.len();
        let of_lost = [&POINTERS_OF_LOST.map(OsStr::new)[..], args].concat();
        let ended = Box::pin(self.run_in(dir, &of_lost)).await;
        if matches!(ended, Err(CheckoutError::Stopped(_))) {
            return ended;
        }
        // Git LFS goes on after every error of its server.
        let error = failure(self.source, &self.log.since(before)?, ExitStatus::default());
        if self.is_of_server(&error) {
            return Err(error);
        }
        if ended.is_ok() {
            return ended;
        }
        let of_all = [&POINTERS.map(OsStr::new)[..], args].concat();
        Box::pin(self.run_in(dir, &of_all)).await
    }

    /// Whether a server does not answer, or refuses the credentials, and its files are wanted.
    fn is_of_server(&self, error: &CheckoutError) -> bool {
        self.context.submodules
            && matches!(error, CheckoutError::Network { .. } | CheckoutError::Credentials { .. })
    }

    /// Makes git see all files of an earlier checkout as they are. Refuses changes that it was ordered to hide, and warns of
    /// others, which are replaced.
    async fn reveal(&self) -> Result<(), CheckoutError> {
        if !self.dir.join(".git/index").exists() {
            return Ok(());
        }
        let is_own = |file: &Path| states::is_state(file) || file.ends_with(".terraform.lock.hcl");
        let found = hidden::edits_and_trees(self.dir).await;
        let (mut files, trees) = found.map_err(|reason| CheckoutError::Git { reason })?;
        files.retain(|file| !is_own(file));
        if !files.is_empty() {
            return Err(CheckoutError::HiddenChanges { dir: self.dir.to_owned(), files });
        }
        for tree in trees {
            if hidden::is_sparse(&tree).await {
                self.run_in(&tree, &["sparse-checkout", "disable"].map(OsStr::new)).await?;
            }
            // An index without flags. Without times as well: the checkout writes every file.
            self.run_in(&tree, &["read-tree", "HEAD"].map(OsStr::new)).await?;
        }
        let args = ["diff", "--name-only", "-z", "--diff-filter=d", "--ignore-submodules=all"];
        // Only for the warning: in a large work tree it may take too long.
        let edits = paths(&question(self.dir, &args).await.unwrap_or_default());
        let edits = edits.into_iter().filter(|file| !is_own(file)).collect::<Vec<_>>();
        if !edits.is_empty() {
            let (files, dir) = (list(&edits), self.dir.display());
            tracing::warn!("the changes of {files} in {dir} are replaced by what the commit has");
        }
        Ok(())
    }

    /// Refuses code that no earlier checkout has brought.
    async fn check_foreign(&self) -> Result<(), CheckoutError> {
        let tracked = checked_out(self.dir).await?;
        let (dir, of_tools) = (self.dir.to_owned(), self.context.of_tools());
        let checked = tokio::task::spawn_blocking(move || {
            copy::remove_copied(&dir, &tracked)?;
            foreign::check(&dir, &tracked, &of_tools)
        });
        checked.await.map_err(std::io::Error::other)?
    }

    /// Writes the files of a submodule again, where it has states: git would leave those that are changed or missing.
    async fn restore(&self, submodule: &Tree) -> Result<(), CheckoutError> {
        let states = find_states(&submodule.dir).await?;
        if states.is_empty() {
            return Ok(());
        }
        let contents = submodule.contents().await;
        let files = contents.map_err(|reason| CheckoutError::Git { reason })?.files;
        self.write_all_but(&states, &files, &submodule.dir, "HEAD").await
    }

    /// Writes all files of a submodule's commit again, but for states.
    pub(in crate::source) async fn write_again(&self, dir: &Path) -> Result<(), CheckoutError> {
        let listed = question(dir, &["ls-files", "-z"]).await;
        let files = paths(&listed.map_err(|reason| CheckoutError::Git { reason })?);
        self.write_all_but(&find_states(dir).await?, &files, dir, "HEAD").await
    }

    /// Checks out everything but these files.
    async fn check_out_around(
        &self,
        states: &[PathBuf],
        commit: &str,
        branch: Option<&str>,
    ) -> Result<(), CheckoutError> {
        let files = incomplete::contents_of(self.dir, commit).await?.files;
        for state in states {
            let mut above = state.ancestors().skip(1);
            if let Some(file) = above.find_map(|above| files.get(above)) {
                let (state, file) = (self.dir.join(state), file.to_owned());
                return Err(CheckoutError::StateInTheWay { state, file });
            }
        }
        for state in states.iter().filter(|state| files.contains(*state)) {
            let state = self.dir.join(state);
            tracing::warn!("keeping {}: the commit has a copy, too", state.display());
        }
        incomplete::mark_incomplete(self.dir, commit)?;
        self.write_all_but(states, &files, self.dir, commit).await?;
        let Some(branch) = branch else {
            return self.run(&["update-ref", "--no-deref", "HEAD", commit]).await;
        };
        let branch = format!("refs/heads/{branch}");
        self.run(&["update-ref", &branch, commit]).await?;
        self.run(&["symbolic-ref", "HEAD", &branch]).await
    }

    /// Writes the files of a commit into a work tree, but for states. `files` are those that the commit has.
    async fn write_all_but(
        &self,
        states: &[PathBuf],
        files: &BTreeSet<PathBuf>,
        dir: &Path,
        commit: &str,
    ) -> Result<(), CheckoutError> {
        if files.len() == states.iter().filter(|state| files.contains(*state)).count() {
            return Ok(());
        }
        let but = states.iter().map(|state| {
            let mut pathspec = OsString::from(":(exclude,literal)");
            pathspec.push(state);
            pathspec
        });
        let but = but.collect::<Vec<_>>();
        let all = ["checkout", "--quiet", "--force", "--no-overlay", commit, "--", "."];
        let args = all.iter().map(OsStr::new).chain(but.iter().map(OsString::as_os_str));
        self.write_files(dir, &args.collect::<Vec<_>>()).await
    }

    async fn run(&self, args: &[&str]) -> Result<(), CheckoutError> {
        self.run_in(self.dir, &args.iter().map(OsStr::new).collect::<Vec<_>>()).await
    }

    /// Runs it in the checkout, or in a submodule.
    pub(in crate::source) async fn run_in(
        &self,
        dir: &Path,
        args: &[&OsStr],
    ) -> Result<(), CheckoutError> {
        let before = fs::metadata(self.log.path())?.len();
        let program = program(dir, args, self.source.env(self.context.environment));
        let program = Program { lock: Some(Arc::clone(&self.lock)), ..program };
        let output = Output::LogOnly(&self.log);
        let ended =
            process::run(&program, output, self.context.signals, &Limits::NONE, GRACE).await;
        let ended = ended.map_err(|error| CheckoutError::Git { reason: error.to_string() })?;
        match ended.stop {
            Some(stop) => Err(CheckoutError::Stopped(stop)),
            None if ended.status.success() => Ok(()),
            None => {
                let printed = self.log.since(before)?;
                match ended.incomplete {
                    // As on a full disk, on which the log is as well.
                    Some(error) if printed.trim().is_empty() => {
                        let reason = format!("what it printed could not be written: {error}");
                        Err(CheckoutError::Git { reason })
                    }
                    _ => Err(failure(self.source, &printed, ended.status)),
                }
            }
        }
    }

    /// The commit of a fetched name.
    async fn commit(&self, name: &str) -> Result<String, CheckoutError> {
        let name = format!("{name}^{{commit}}");
        let program = program(self.dir, &["rev-parse", "--verify", "--quiet", &name], Vec::new());
        let output = self.context.signals.or(process::output(&program)).await;
        let output = output.map_err(CheckoutError::Stopped)?;
        let output = output.map_err(|error| CheckoutError::Git { reason: error.to_string() })?;
        if !output.status.success() {
            return Err(no_such_revision(self.source));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}
