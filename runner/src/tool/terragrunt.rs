//! Terragrunt's cache beside the configuration, where its configuration puts the cache elsewhere, and its messages about
//! mock outputs. It starts nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;

use crate::source::regular;

/// The cache has a directory for each working directory, which has one for each source, which has the module.
const MAX_DEPTH: u32 = 8;

/// The directory in the cache of `dir` where terragrunt has run the tool since this time: terragrunt rewrites its list of
/// copied files for each command.
pub(crate) fn ran_in(dir: &Path, since: SystemTime) -> Option<PathBuf> {
    let mut newest = None;
    let mut to_do = vec![(dir.join(".terragrunt-cache"), MAX_DEPTH)];
    while let Some((dir, depth)) = to_do.pop() {
        let manifest = fs::metadata(dir.join(".terragrunt-module-manifest"));
        if let Ok(time) = manifest.and_then(|manifest| manifest.modified()) {
            newest = newest.max(Some((time, dir.clone())));
        }
        let is_kept = |name: &OsStr| name != ".terraform" && name != ".git";
        // Terragrunt has not run in a directory that is missing or cannot be read.
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && depth > 0 && is_kept(&entry.file_name()) {
                to_do.push((entry.path(), depth - 1));
            }
        }
    }
    newest.filter(|(time, _)| *time >= since).map(|(_, dir)| dir)
}

/// Whether a configuration of terragrunt in this directory, or above it, sets where it downloads code and works
/// (`download_dir`). One that cannot be read may.
pub(crate) fn names_download_dir(dir: &Path) -> bool {
    let entries = dir.ancestors().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let is_configuration = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".hcl") && !name.starts_with('.') || name.ends_with(".hcl.json")
    };
    let names = |file: PathBuf| match regular::read(&file) {
        Ok(text) => text.windows(DOWNLOAD_DIR.len()).any(|part| part == DOWNLOAD_DIR),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    };
    entries.map(|entry| entry.path()).filter(is_configuration).any(names)
}

const DOWNLOAD_DIR: &[u8] = b"download_dir";

/// The directory where terragrunt runs the tool, by its own information.
pub(crate) fn working_dir(information: &[u8]) -> Option<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Information {
        // The older command.
        #[serde(alias = "WorkingDir")]
        working_dir: PathBuf,
    }
    Some(serde_json::from_slice::<Information>(information).ok()?.working_dir)
}

/// Terragrunt's messages about mock outputs: the text before and after the dependency's configuration file, and a text that
/// the rest of the line contains.
const MOCKED: [(&str, &str, &str); 2] = [
    ("Config ", " is a dependency of ", "mock outputs provided and returning those"),
    ("Failed to read outputs from ", " referenced in ", "fallback to mock outputs"),
];
/// Such a line is shorter; the rest of a longer one is read as another line.
const MAX_LINE: u64 = 64 << 10;

/// The configuration files of the dependencies for which terragrunt used mock outputs, read from its output. Terragrunt
/// prints nothing where it merges mock outputs into real ones.
pub(crate) fn mocks(output: impl Read) -> io::Result<Vec<String>> {
    let mut found = BTreeSet::new();
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while (&mut output).take(MAX_LINE).read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        for (before, after, text_after) in MOCKED {
            if let Some((_, rest)) =
                text.split_once(before).filter(|(_, rest)| rest.contains(text_after))
            {
                let dependency = rest.split_once(after).map_or("a dependency", |(name, _)| name);
                found.insert(dependency.to_owned());
            }
        }
        line.clear();
    }
    Ok(found.into_iter().collect())
}

/// Terragrunt's messages that it starts the tool again after an error.
const STARTS_AGAIN: [&str; 2] =
    ["Encountered retryable error: ", "Encountered an error eligible for retrying."];

/// The length of an apply's output before terragrunt has started the tool again, if that has refused the plan because the state
/// has changed since: the first start has changed it, and its errors say why the apply has failed.
pub(crate) fn before_stale_start(output: impl Read) -> io::Result<Option<u64>> {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    let (mut at, mut again) = (0, None);
    while (&mut output).take(MAX_LINE).read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        if STARTS_AGAIN.iter().any(|words| text.contains(words)) {
            again.get_or_insert(at);
        } else if again.is_some() && text.contains("Saved plan is stale") {
            return Ok(again);
        }
        at += line.len() as u64;
        line.clear();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_newest_list_of_copied_files_says_where_the_tool_ran() {
        let root = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        assert_eq!(ran_in(root.path(), now), None);
        let cache = root.path().join(".terragrunt-cache");
        for (age, dir) in [(20, "a/b"), (10, "a/c/sub/dir"), (30, "d/e")] {
            fs::create_dir_all(cache.join(dir)).unwrap();
            let manifest = cache.join(dir).join(".terragrunt-module-manifest");
            let file = fs::File::create(manifest).unwrap();
            file.file().set_modified(now - Duration::from_secs(age)).unwrap();
        }
        let before = |seconds| ran_in(root.path(), now - Duration::from_secs(seconds));
        assert_eq!(before(60), Some(cache.join("a/c/sub/dir")));
        assert_eq!(before(5), None, "of an earlier run");
    }

    #[test]
    fn working_dir_is_read_from_the_information_of_every_version() {
        for name in ["working_dir", "WorkingDir"] {
            let json = format!("{{\"DownloadDir\": \"/d\", \"{name}\": \"/d/a/b\"}}");
            assert_eq!(working_dir(json.as_bytes()), Some("/d/a/b".into()));
        }
        assert_eq!(working_dir(b"{}"), None);
    }

    #[test]
    fn download_dir_is_found_in_configurations_above() {
        let root = tempfile::tempdir().unwrap();
        let module = root.path().join("live/vpc");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("terragrunt.hcl"), "include \"root\" {}\n").unwrap();
        fs::write(root.path().join("notes.txt"), "download_dir").unwrap();
        assert!(!names_download_dir(&module));
        fs::write(root.path().join("root.hcl"), "download_dir = \"/d\"\n").unwrap();
        assert!(names_download_dir(&module));
    }

    #[test]
    fn errors_before_a_stale_start_are_those_of_the_first_one() {
        let first = "Error: local-exec provisioner error\n\n";
        let stale = "Error: Saved plan is stale\n";
        for again in [
            "11:56:31.301 WARN   Encountered retryable error: x\n",
            "INFO Encountered an error eligible for retrying. Sleeping 5s before retrying.\n",
        ] {
            let before =
                |rest: &str| before_stale_start(format!("{first}{again}{rest}").as_bytes());
            assert_eq!(before(stale).unwrap(), Some(first.len() as u64));
            assert_eq!(before(&format!("{again}{stale}")).unwrap(), Some(first.len() as u64));
            assert_eq!(before("Error: Another\n").unwrap(), None);
        }
        assert_eq!(before_stale_start(stale.as_bytes()).unwrap(), None);
    }

    #[test]
    fn dependencies_with_mock_outputs_are_read_from_the_output() {
        let log = "01:25:48.909 WARN   Config ../dep/terragrunt.hcl is a dependency of ./terragrunt.hcl that has \
            no outputs, but mock outputs provided and returning those in dependency output.\n\
            {\"level\":\"warn\", \"msg\":\"Config /a/b/terragrunt.hcl is a dependency of /a/terragrunt.hcl that has \
            no outputs, but mock outputs provided and returning those in dependency output.\"}\n\
            WARN Failed to read outputs from /c/terragrunt.hcl referenced in /a/terragrunt.hcl as c, fallback to \
            mock outputs. Error: x\n\
            Config /d/terragrunt.hcl is a dependency of /a/terragrunt.hcl that has no outputs.\n";
        let expected = ["../dep/terragrunt.hcl", "/a/b/terragrunt.hcl", "/c/terragrunt.hcl"];
        assert_eq!(mocks(log.as_bytes()).unwrap(), expected);
        assert_eq!(mocks(&b"Plan: 1 to add\n"[..]).unwrap(), Vec::<String>::new());
    }
}
