//! Submodules and git LFS files: fetched for a git URL, and required for every source where the configuration needs them.
//! An empty directory is a valid module, and a plan of it destroys what the module created.
//!
//! A directory that is used in place is only read.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::process::quoted;
use crate::source::error::CheckoutError;
use crate::source::git::{self, Git, needs_whole_history};
use crate::source::path::{self, is_below};
use crate::source::references::installed::Called;
use crate::source::references::{self, References};
use crate::source::states;

/// More submodules than this are not fetched.
const MAX_SUBMODULES: usize = 1000;

/// A submodule of a git URL that could not be fetched.
#[derive(Debug)]
pub(super) struct Unfetched {
    dir: PathBuf,
    error: CheckoutError,
}

/// Where the code comes from, which decides what to do about a missing part.
pub(super) enum Origin<'a> {
    /// The user's directory.
    Directory,
    /// A git URL, whose submodules were fetched but for these.
    Git(Git<'a>, Vec<Unfetched>),
    Archive,
    Bundle,
}

/// A gitlink whose directory is empty.
struct EmptySubmodule {
    /// The work tree that it belongs to.
    tree: PathBuf,
    /// Its path in the work tree.
    path: PathBuf,
}

/// Fetches all submodules of a checkout, recursively. After an error it continues with the others.
pub(super) async fn fetch(git: &Git<'_>, top: &Path) -> Result<Vec<Unfetched>, CheckoutError> {
    let mut unfetched = Vec::new();
    let mut to_do = vec![top.to_owned()];
    let mut seen = 0;
    while let Some(tree) = to_do.pop() {
        for path in declared(&tree).await {
            seen += 1;
            let dir = tree.join(&path);
            if seen > MAX_SUBMODULES {
                let reason = format!("there are more than {MAX_SUBMODULES} submodules");
                unfetched.push(Unfetched { dir, error: CheckoutError::Git { reason } });
                continue;
            }
            match update(git, &tree, &path).await {
                Ok(()) => to_do.push(dir),
                Err(CheckoutError::Stopped(stop)) => return Err(CheckoutError::Stopped(stop)),
                Err(error) => unfetched.push(Unfetched { dir, error }),
            }
        }
    }
    Ok(unfetched)
}

async fn update(git: &Git<'_>, tree: &Path, path: &Path) -> Result<(), CheckoutError> {
    let dir = tree.join(path);
    let path = path.as_os_str();
    let submodule = async |args: &[&str]| {
        let args = ["submodule", "--quiet"].iter().chain(args).map(OsStr::new);
        git.run_in(tree, &args.chain([OsStr::new("--"), path]).collect::<Vec<_>>()).await
    };
    let is_new = is_empty(&dir);
    if !is_new {
        // In a work directory that is kept the URL may have changed since.
        submodule(&["sync"]).await?;
    }
    // Without --force git replaces no file that has changed: a state may be one of them.
    let has_states = !is_new && !states::find(&dir)?.is_empty();
    let force = if has_states { &[][..] } else { &["--force"] };
    let update = [&["update", "--init"], force].concat();
    let updated = match submodule(&[&update[..], &["--depth=1"]].concat()).await {
        // A server that does not serve single commits has it in its branches and tags.
        Err(error) if is_missing_commit(&error) && fs::exists(dir.join(".git"))? => {
            let all = ["+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"];
            let fetch = ["fetch", "--quiet", "--unshallow", "origin", all[0], all[1]];
            git.run_in(&dir, &fetch.map(OsStr::new)).await?;
            submodule(&update).await
        }
        Err(error) if needs_whole_history(&error) => submodule(&update).await,
        done => done,
    };
    updated?;
    if has_states { git.write_again(&dir).await } else { Ok(()) }
}

fn is_missing_commit(error: &CheckoutError) -> bool {
    match error {
        CheckoutError::NoSuchRevision { .. } => true,
        CheckoutError::Git { reason } => reason.contains("Direct fetching of that commit failed"),
        _ => false,
    }
}

/// Refuses a root module that needs an empty submodule or a git LFS file that was not fetched. `dir` is the module, `top`
/// the last parent directory that is checked, if limited. `called`: the modules of which only init knows. Returns the
/// submodules that could not be fetched, and are not needed as far as is known.
pub(super) async fn check(
    dir: &Path,
    top: Option<&Path>,
    called: &Called,
    mut origin: Origin<'_>,
) -> Result<Vec<Unfetched>, CheckoutError> {
    let mut references = read(dir, called).await?;
    for (path, place) in &references.paths {
        if is_empty(path)
            && let Some(submodule) = empty_submodule(path, top).await
        {
            return Err(origin.refuse(&submodule, path, place));
        }
        if let Some(error) = origin.refuse_outdated(path, place) {
            return Err(error);
        }
    }
    if let Origin::Git(git, _) = &origin
        && !references.pointers.is_empty()
    {
        let reason = pull(git, &references).await?;
        references = read(dir, called).await?;
        if let Some(pointer) = references.pointers.first_key_value() {
            return Err(unfetched_file(pointer, Some(reason), &origin));
        }
    }
    if let Some(pointer) = references.pointers.first_key_value() {
        return Err(unfetched_file(pointer, None, &origin));
    }
    if called.is_empty() {
        warn(dir, top, &origin).await;
    }
    Ok(match origin {
        Origin::Git(_, unfetched) => unfetched,
        _ => Vec::new(),
    })
}

async fn read(dir: &Path, called: &Called) -> Result<References, CheckoutError> {
    let (dir, called) = (dir.to_owned(), called.clone());
    let read = tokio::task::spawn_blocking(move || references::read(&dir, &called));
    Ok(read.await.map_err(io::Error::other)??)
}

impl Origin<'_> {
    fn refuse(&mut self, submodule: &EmptySubmodule, path: &Path, place: &str) -> CheckoutError {
        let EmptySubmodule { tree, path: name } = submodule;
        let dir = tree.join(name);
        let place = without_tree(place, tree);
        let mut reason = None;
        let next = match self {
            Self::Directory => format!(
                "run `git -C {} submodule update --init --recursive -- {}`",
                quoted(&tree.to_string_lossy()),
                quoted(&name.to_string_lossy())
            ),
            Self::Archive => {
                "fill the submodule before the archive is made (`git archive` leaves submodules out), or use the git URL \
                 as the source"
                    .to_owned()
            }
            Self::Bundle => {
                "a bundle has no submodules: use the git URL as the source, or keep these \
                             files in the repository itself"
                    .to_owned()
            }
            Self::Git(_, unfetched) => {
                let at = unfetched.iter().position(|one| dir.starts_with(&one.dir));
                let error = at.map(|at| unfetched.swap_remove(at).error);
                match error.map(|error| unreachable(error, name, &place)) {
                    Some(Ok(error)) => return error,
                    Some(Err(error)) => reason = Some(error.to_string()),
                    None => {}
                }
                "check that .gitmodules has a URL that git can fetch from here".to_owned()
            }
        };
        let path = shown(path, tree);
        let submodule = name.display().to_string();
        CheckoutError::EmptySubmodule { path, place, submodule, reason, next }
    }

    /// Refuses what is needed of a submodule that could not be fetched, and has the files of an earlier run.
    fn refuse_outdated(&mut self, path: &Path, place: &str) -> Option<CheckoutError> {
        let Self::Git(_, unfetched) = self else { return None };
        let path = path::resolve(path).ok()?;
        let at = unfetched.iter().position(|one| path.starts_with(&one.dir))?;
        let Unfetched { dir, error } = unfetched.swap_remove(at);
        let place = without_tree(place, work_tree(&dir).unwrap_or(&dir));
        let outdated = |error: CheckoutError| CheckoutError::OutdatedSubmodule {
            place: place.clone(),
            submodule: dir.clone(),
            reason: error.to_string(),
        };
        Some(unreachable(error, &dir, &place).unwrap_or_else(outdated))
    }
}

/// If the server of a needed submodule is unreachable or requires credentials, that is the error.
fn unreachable(
    error: CheckoutError,
    submodule: &Path,
    place: &str,
) -> Result<CheckoutError, CheckoutError> {
    let url = || format!("the submodule `{}`, which {place} needs,", submodule.display());
    match error {
        CheckoutError::Network { reason, .. } => Ok(CheckoutError::Network { url: url(), reason }),
        CheckoutError::Credentials { reason, .. } => {
            Ok(CheckoutError::Credentials { url: url(), reason })
        }
        error => Err(error),
    }
}

fn unfetched_file(
    (file, place): (&PathBuf, &String),
    reason: Option<String>,
    origin: &Origin<'_>,
) -> CheckoutError {
    let tree = work_tree(file).unwrap_or(Path::new("."));
    let name = shown(file, tree);
    let next = match origin {
        Origin::Directory => {
            format!("run `git -C {} lfs pull --include {}`", quoted(&tree.to_string_lossy()), quoted(&name))
        }
        Origin::Git(..) => "install git-lfs beside git, and check that the LFS server has the object".to_owned(),
        Origin::Archive => {
            "run `git lfs pull` before the archive is made, or use the git URL as the source".to_owned()
        }
        Origin::Bundle => {
            "a bundle has no LFS files: use the git URL as the source, or keep the file itself in the \
             repository"
                .to_owned()
        }
    };
    let place = if place.is_empty() { "the tool".to_owned() } else { without_tree(place, tree) };
    CheckoutError::LfsPointer { file: name, place, reason, next }
}

/// Fetches these files with git LFS. Returns the reason for a message, in case they are still pointers.
async fn pull(git: &Git<'_>, references: &References) -> Result<String, CheckoutError> {
    let mut reason = "the file is still a pointer".to_owned();
    for file in references.pointers.keys() {
        let Some(tree) = work_tree(file) else { continue };
        let name = file.strip_prefix(tree).unwrap_or(file);
        let install = ["lfs", "install", "--local"].map(OsStr::new);
        let pull = ["lfs", "pull", "--include"].map(OsStr::new);
        let pulled = async {
            git.run_in(tree, &install).await?;
            git.run_in(tree, &[&pull[..], &[name.as_os_str()]].concat()).await
        };
        match pulled.await {
            Ok(()) => {}
            Err(CheckoutError::Stopped(stop)) => return Err(CheckoutError::Stopped(stop)),
            Err(error) => {
                reason = error.to_string();
                break;
            }
        }
    }
    Ok(reason)
}

/// Names the submodules that are empty and not needed.
async fn warn(dir: &Path, top: Option<&Path>, origin: &Origin<'_>) {
    if let Origin::Git(_, unfetched) = origin {
        for Unfetched { dir, error } in unfetched {
            tracing::warn!("the submodule {} is not fetched: {error}", dir.display());
        }
        return;
    }
    let mut trees = dir.ancestors().take_while(|tree| top.is_none_or(|top| tree.starts_with(top)));
    let Some(tree) = trees.find(|tree| tree.join(".gitmodules").is_file()) else { return };
    let empty = declared(tree).await.into_iter().filter(|path| is_empty(&tree.join(path)));
    let empty = empty.map(|path| path.display().to_string()).collect::<Vec<_>>();
    if let [first, rest @ ..] = empty.as_slice() {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        tracing::warn!("the submodule {first}{more} is empty; this module names nothing in it");
    }
}

/// The submodule that holds the path, and is empty.
async fn empty_submodule(path: &Path, top: Option<&Path>) -> Option<EmptySubmodule> {
    let path = path::resolve(path).ok()?;
    for tree in path.ancestors().skip(1) {
        if top.is_some_and(|top| !tree.starts_with(top)) {
            break;
        }
        if !tree.join(".git").exists() && !tree.join(".gitmodules").exists() {
            continue;
        }
        let below = path.strip_prefix(tree).unwrap_or(&path);
        let candidates = below.ancestors().filter(|path| !path.as_os_str().is_empty());
        let candidates = candidates.map(Path::to_owned).collect::<Vec<_>>();
        // Exported code has no index, but the same paths in .gitmodules. A work tree around it does not count.
        let links = match gitlinks(tree, &candidates).await {
            Ok(links) if tree.join(".git").exists() => links,
            _ => in_gitmodules(tree).await,
        };
        let is_it = |link: &PathBuf| candidates.contains(link) && is_empty(&tree.join(link));
        if let Some(path) = links.into_iter().find(is_it) {
            return Some(EmptySubmodule { tree: tree.to_owned(), path });
        }
    }
    None
}

/// The nearest directory above the file that is a work tree of git.
fn work_tree(file: &Path) -> Option<&Path> {
    file.ancestors().skip(1).find(|dir| dir.join(".git").exists())
}

/// Whether there is no such directory, or nothing in it but what git itself puts there.
fn is_empty(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(entries) => {
            entries.into_iter().all(|entry| entry.is_ok_and(|entry| entry.file_name() == ".git"))
        }
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// The submodules of a work tree that can be fetched.
async fn declared(tree: &Path) -> Vec<PathBuf> {
    let paths = in_gitmodules(tree).await;
    if paths.is_empty() {
        return paths;
    }
    match gitlinks(tree, &paths).await {
        Ok(links) => links,
        Err(why) => {
            tracing::warn!("cannot list the submodules of {}: {why}", tree.display());
            Vec::new()
        }
    }
}

/// The paths that `.gitmodules` names.
async fn in_gitmodules(tree: &Path) -> Vec<PathBuf> {
    if !tree.join(".gitmodules").is_file() {
        return Vec::new();
    }
    let args = ["config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$"];
    let names = git::question(tree, &args.map(OsStr::new)).await.unwrap_or_default();
    let entries = names.split(|byte| *byte == 0);
    let values = entries.filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'\n')?;
        Some(PathBuf::from(OsStr::from_bytes(&entry[at + 1..])))
    });
    values.filter(|path| is_below(path)).collect()
}

/// Those of the paths that are submodules in the index.
async fn gitlinks(tree: &Path, paths: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let args = ["--literal-pathspecs", "ls-files", "--stage", "-z", "--"].map(OsStr::new);
    let args = args.into_iter().chain(paths.iter().map(|path| path.as_os_str()));
    let entries = git::question(tree, &args.collect::<Vec<_>>()).await?;
    let links = entries.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'\t')?;
        let path = PathBuf::from(OsStr::from_bytes(&entry[at + 1..]));
        (entry.starts_with(b"160000 ") && is_below(&path)).then_some(path)
    });
    Ok(links.collect())
}

fn shown(path: &Path, tree: &Path) -> String {
    path.strip_prefix(tree).unwrap_or(path).display().to_string()
}

/// `FILE:LINE`, relative to the work tree.
fn without_tree(place: &str, tree: &Path) -> String {
    place.strip_prefix(&format!("{}/", tree.display())).unwrap_or(place).to_owned()
}
