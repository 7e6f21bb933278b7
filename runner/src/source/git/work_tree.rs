//! A work tree that is used in place: its top, its commit, and whether code differs from it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use crate::source::git::command::question;
use crate::source::git::{hidden, nested};
use crate::source::work_dir::foreign::is_generated;
use crate::tool::file_names;

/// The work tree that holds a directory.
#[derive(Debug)]
pub(crate) struct WorkTree {
    /// Its top, without links.
    pub(crate) top: PathBuf,
    /// The URL of `origin` as configured, without `insteadOf`, which differs between machines.
    pub(crate) origin: Option<String>,
}

/// The work tree that holds `dir`; `None` where there is no git.
pub(crate) async fn work_tree(dir: &Path) -> Option<WorkTree> {
    if !may_have_git(dir) {
        return None;
    }
    let (top, origin) =
        tokio::join!(top(dir), question(dir, &["config", "--get-all", "remote.origin.url"]));
    // Without a URL git exits with 1 and prints nothing.
    let origin = origin.ok().map(|urls| String::from_utf8_lossy(&urls).into_owned());
    let origin = origin.and_then(|urls| urls.lines().next().map(str::to_owned));
    Some(WorkTree { top: top?, origin })
}

/// The top of the work tree that holds `dir`, without links; `None` where there is no git.
pub(crate) async fn top(dir: &Path) -> Option<PathBuf> {
    if !may_have_git(dir) {
        return None;
    }
    let top = question(dir, &["rev-parse", "--show-toplevel"]).await.ok()?;
    fs::canonicalize(OsStr::from_bytes(top.strip_suffix(b"\n").unwrap_or(&top))).ok()
}

/// The nearest directory with `.git`: the top of the work tree that holds `dir`, a path without links. Git is not asked.
pub(crate) fn nearest_top(dir: &Path) -> Option<&Path> {
    dir.ancestors().find(|dir| std::fs::symlink_metadata(dir.join(".git")).is_ok())
}

/// Whether `top`, the top of a work tree, is also that of `dir`: no other one is between them. Both paths are without links.
pub(crate) fn is_top_of(top: &Path, dir: &Path) -> bool {
    nearest_top(dir) == Some(top)
}

/// Whether git tracks a file.
pub(crate) async fn is_tracked(file: &Path) -> bool {
    let (Some(dir), Some(name)) = (file.parent(), file.file_name()) else { return false };
    let args = [OsStr::new("ls-files"), OsStr::new("--error-unmatch"), OsStr::new("--"), name];
    may_have_git(dir) && question(dir, &args).await.is_ok()
}

/// Whether the directory may be in a work tree: it or a parent has `.git`. Without one, git is not started.
pub(super) fn may_have_git(dir: &Path) -> bool {
    let Ok(dir) = fs::canonicalize(dir) else { return true };
    dir.ancestors().any(|dir| match std::fs::symlink_metadata(dir.join(".git")) {
        Ok(_) => true,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    })
}

/// The commit of a work tree.
pub(in crate::source) struct Revision {
    /// HEAD, with `-dirty` when files differ.
    pub(in crate::source) name: String,
    /// Why it is not known whether files differ.
    pub(in crate::source) unknown: Option<String>,
    /// The files that a sparse checkout leaves out, without links in their paths.
    pub(in crate::source) left_out: Vec<PathBuf>,
    /// The top of the work tree, without links.
    pub(in crate::source) top: Option<PathBuf>,
    /// The branch of HEAD, `refs/heads/main`; `None` if HEAD is detached.
    pub(in crate::source) branch: Option<String>,
}

/// HEAD of the work tree that holds `dir`, and whether files in it differ: but for what the tool writes there, and for
/// `ignored`. `None` without git or without a commit, with a warning where that is an error.
pub(in crate::source) async fn revision(dir: &Path, ignored: &[PathBuf]) -> Option<Revision> {
    if !may_have_git(dir) {
        return None;
    }
    let args = ["rev-parse", "--show-toplevel", "HEAD", "--symbolic-full-name", "HEAD"];
    let names = match question(dir, &args).await {
        Ok(names) => String::from_utf8_lossy(&names).into_owned(),
        Err(why) if why.contains("not a git repository") => return None,
        Err(why) => {
            tracing::warn!("the commit of the code is unknown: {why}");
            return None;
        }
    };
    let parts = names.trim_end().rsplit_once('\n');
    let parts = parts.and_then(|(rest, branch)| Some((rest.rsplit_once('\n')?, branch)));
    let Some(((top, head), branch)) = parts else {
        tracing::warn!("the commit of the code is unknown: git found no work tree");
        return None;
    };
    let top = Path::new(top);
    let branch = Some(branch).filter(|name| name.starts_with("refs/heads/")).map(str::to_owned);
    match status(top).await {
        Ok((status, left_out)) => {
            let dirty = status.split(|byte| *byte == 0).any(|entry| is_change(entry, top, ignored));
            let name = if dirty { format!("{head}-dirty") } else { head.to_owned() };
            let left_out = left_out.into_iter().map(|path| top.join(path)).collect();
            let top = fs::canonicalize(top).ok();
            Some(Revision { name, unknown: None, left_out, top, branch })
        }
        // The commit is known even if the status is not, as in a large work tree on a slow disk.
        Err(why) => {
            tracing::warn!("cannot find out whether the code differs from commit {head}: {why}");
            let (name, left_out) = (head.to_owned(), Vec::new());
            let top = fs::canonicalize(top).ok();
            Some(Revision { name, unknown: Some(why), left_out, top, branch })
        }
    }
}

/// Git's status at every depth, with the changes that flags hide; and the files that a sparse checkout leaves out.
async fn status(top: &Path) -> Result<(Vec<u8>, Vec<PathBuf>), String> {
    let (mut status, index) = nested::status(top).await?;
    let hidden = hidden::files(top, &index).await?;
    for path in hidden.changed {
        status.extend_from_slice(b" M ");
        status.extend_from_slice(path.as_os_str().as_bytes());
        status.push(0);
    }
    Ok((status, hidden.left_out))
}

/// The files whose code differs from the commit, by their paths in the work tree; the error is git's reason. The tool's lock
/// file, to which init adds, and untracked files that no tool reads by itself do not count, nor those that are not among
/// `read`: full paths without links; `None`: any file may be read.
pub(crate) async fn changed_code(
    dir: &Path,
    ignored: &[PathBuf],
    read: Option<&BTreeSet<PathBuf>>,
) -> Result<BTreeSet<PathBuf>, String> {
    let Some(top) = top(dir).await else {
        return Err("git found no work tree".to_owned());
    };
    let (status, _) = status(&top).await?;
    let changes = status.split(|byte| *byte == 0);
    let code = changes.filter(|entry| is_change(entry, &top, ignored) && is_code(entry));
    let code = code.map(|entry| (entry, PathBuf::from(OsStr::from_bytes(&entry[3..]))));
    let is_read = |(entry, path): &(&[u8], PathBuf)| {
        !entry.starts_with(b"?? ") || read.is_none_or(|read| read.contains(&top.join(path)))
    };
    Ok(code.filter(is_read).map(|(_, path)| path).collect())
}

/// Whether an entry of git's status is of code: a tracked file other than the tool's lock file, or one that
/// a tool reads by itself.
fn is_code(entry: &[u8]) -> bool {
    !entry.ends_with(b".terraform.lock.hcl") && (!entry.starts_with(b"?? ") || is_read(&entry[3..]))
}

/// Whether a tool reads a file of the work tree by itself.
fn is_read(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    file_names::is_input(name) && !file_names::is_ignored(name)
}

/// Whether an entry of git's status, `XY path`, is a change by the user.
fn is_change(entry: &[u8], top: &Path, ignored: &[PathBuf]) -> bool {
    let Some((status, path)) = entry.split_at_checked(3) else { return false };
    let (path, untracked) = (Path::new(OsStr::from_bytes(path)), status == b"?? ");
    let file = top.join(path);
    let ignored = ignored.iter().any(|own| file.starts_with(own));
    let of_tool = is_own(path, untracked) || (untracked && is_generated(&file));
    !ignored && !of_tool
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untracked_files_are_code_only_where_a_tool_reads_them() {
        for entry in [" M README.md", "A  a b.txt", " D main.tf", "?? a/new.tf", "?? x.auto.tfvars"]
        {
            assert!(is_code(entry.as_bytes()), "{entry}");
        }
        for entry in [
            " M a/.terraform.lock.hcl",
            "?? result.json",
            "?? notes.txt",
            "?? a/.#main.tf",
            "?? .x.tf",
            "?? .tflint.hcl",
        ] {
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
