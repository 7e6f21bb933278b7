//! Code in a directory without sub-directories, such as a mounted ConfigMap: the names of its files hold the paths.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::cli::Separator;
use crate::source::copy::{self, Links};
use crate::source::error::CheckoutError;

/// Copies the directory `from` into the new directory `to`, with the sub-directories that the names of its files hold.
/// Files in real sub-directories stay in them.
pub(super) fn unflatten(
    from: &Path,
    to: &Path,
    separator: &Separator,
) -> Result<(), CheckoutError> {
    let mut sources = BTreeMap::new();
    for file in copy::files(from, Links::Followed)? {
        if let Some(other) = sources.insert(path(&file, separator)?, file.clone()) {
            return Err(CheckoutError::SameFlatPath { first: other, second: file });
        }
    }
    let mut above =
        sources.keys().flat_map(|path| path.ancestors().skip(1).map(move |above| (path, above)));
    if let Some((path, file)) = above.find(|(_, above)| sources.contains_key(*above)) {
        let (first, second) = (sources[file].clone(), sources[path].clone());
        return Err(CheckoutError::FlatFileAbove { first, second });
    }
    fs::create_dir(to)?;
    for (path, file) in &sources {
        let target = to.join(path);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        copy::file(&from.join(file), &target)?;
    }
    Ok(())
}

/// Where a file of the flat directory belongs.
fn path(file: &Path, separator: &Separator) -> Result<PathBuf, CheckoutError> {
    let bad = |reason| CheckoutError::FlatName {
        file: file.to_owned(),
        separator: separator.to_string(),
        reason,
    };
    let name = file.file_name().and_then(OsStr::to_str);
    let name = name.ok_or_else(|| bad("it is not UTF-8"))?;
    let mut path = file.parent().map(Path::to_owned).unwrap_or_default();
    for part in name.split(separator.as_str()) {
        match part {
            "" => {
                return Err(bad("it begins or ends with the separator, or has it twice in a row"));
            }
            "." | ".." => return Err(bad("`.` and `..` are no names of directories")),
            // The data of git and of the tool, which no source brings.
            ".git" | ".terraform" => return Err(bad("`.git` and `.terraform` are no code")),
            part => path.push(part),
        }
    }
    Ok(path)
}

/// Fails if the source with a separator is not a directory.
pub(super) fn check_directory(dir: &Path) -> Result<(), String> {
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("--unflatten goes with a directory, and {} is a file", dir.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "--unflatten goes with a directory, and there is no directory {}",
            dir.display()
        )),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unflattened(files: &[&str], separator: &str) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for file in files {
            fs::create_dir_all(from.join(file).parent().unwrap()).unwrap();
            fs::write(from.join(file), file).unwrap();
        }
        let separator = separator.parse::<Separator>().unwrap();
        unflatten(&from, &to, &separator).map_err(|error| error.to_string())?;
        let found = copy::files(&to, Links::Kept).unwrap();
        for file in &found {
            let original = fs::read_to_string(to.join(file)).unwrap();
            assert_eq!(original.replace("__", "/"), file.to_str().unwrap());
        }
        Ok(found.iter().map(|file| file.to_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn names_become_paths() {
        let files = ["main.tf", "modules__net__main.tf", "modules__net__a_b.tf", "sub/x__y.tf"];
        let found = unflattened(&files, "__").unwrap();
        assert_eq!(found, ["main.tf", "modules/net/a_b.tf", "modules/net/main.tf", "sub/x/y.tf"]);
    }

    #[test]
    fn names_that_are_no_paths_are_refused_and_named() {
        for (files, named) in [
            (&["__init__.py"][..], "__init__.py"),
            (&["a__.tf", "a____b.tf"], "a____b.tf"),
            (&["a__..__x.tf"], "a__..__x.tf"),
            (&["a__.git__config"], "a__.git__config"),
            (&["a/b.tf", "a__b.tf"], "a__b.tf"),
            (&["a", "a__b.tf"], "a__b.tf"),
        ] {
            let error = unflattened(files, "__").unwrap_err();
            assert!(error.contains(named), "{files:?}: {error}");
        }
    }
}
