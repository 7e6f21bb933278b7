//! The last line of a command that failed: what failed, where, and what to do next. In a job of GitHub it is also an
//! annotation of the job, in the file where the tool found the error.

use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use crate::cli::Environment;
use crate::failure::Failure;
use crate::process::github;
use crate::process::text::clean;

/// Logs a failure of a command without a report. Returns the exit code.
pub(crate) fn log(failure: &Failure) -> u8 {
    if let Some(further) = failure.further_errors() {
        tracing::error!("{further}");
    }
    tracing::error!("{}", line(failure));
    failure.exit_code()
}

/// Ends a run that failed: logs why, and shows it in a job of GitHub. `name` says which run it is. Returns the exit code.
pub(crate) fn end(failure: &Failure, name: &str, environment: &Environment) -> u8 {
    let code = log(failure);
    if let Some(job) = &environment.github {
        let place = failure.place().and_then(|(dir, file, line)| {
            let workspace = job.workspace.as_deref()?;
            Some((in_workspace(workspace, &dir.join(file))?, line))
        });
        let place = place.as_ref().map(|(file, line)| (file.as_str(), *line));
        github::end(Some(github::error(name, place, &line(failure))));
    }
    code
}

/// What failed, and what to do next, on one line.
fn line(failure: &Failure) -> String {
    let message = flat(failure.message());
    match failure.hint() {
        None => message,
        Some(hint) => format!("{}. next: {}", message.trim_end_matches('.'), flat(hint)),
    }
}

/// Text on one line, without control characters. Spaces stay: they may be of a path in a command.
fn flat(text: &str) -> String {
    let text = clean(text);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The path of a file in the workspace, relative to it. `None`: it is elsewhere, or not there.
fn in_workspace(workspace: &Path, file: &Path) -> Option<String> {
    let workspace = fs::canonicalize(workspace).ok()?;
    let file = fs::canonicalize(without_parents(file)).ok()?;
    let inside = file.strip_prefix(workspace).ok()?;
    // What init has downloaded is not in the repository.
    let is_downloaded = |part| part == ".terraform" || part == ".terragrunt-cache";
    let path = inside.to_str().filter(|path| !path.is_empty())?;
    (!inside.iter().any(is_downloaded)).then(|| path.to_owned())
}

/// The path as the tool means it: `a/../b` is `b`, also where `a` is a link or missing.
fn without_parents(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_relative_to_the_workspace_only_inside_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("w");
        fs::create_dir_all(workspace.join("live/vpc/.terraform")).unwrap();
        for file in ["w/live/main.tf", "w/live/vpc/a.tf", "w/live/vpc/.terraform/m.tf", "out.tf"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        let module = workspace.join("live/vpc");
        for (file, expected) in [
            ("a.tf", Some("live/vpc/a.tf")),
            ("../main.tf", Some("live/main.tf")),
            ("missing.tf", None),
            (".terraform/m.tf", None),
            ("../../../out.tf", None),
            ("../..", None),
        ] {
            let found = in_workspace(&workspace, &module.join(file));
            assert_eq!(found.as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn text_of_several_lines_becomes_one() {
        assert_eq!(flat("a\r\n  b\n\n`c  d`\x1b[31m"), "a b `c  d`");
    }
}
