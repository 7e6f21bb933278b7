//! The version files around a directory: in it, in each of its parents, then in the home.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::request::Requirement;
use super::{Reason, ToolName, VersionError, required};

/// A version file is one line; what is larger is something else.
const MAX_VERSION_FILE: u64 = 64 * 1024;

/// One search, and what it has found so far.
pub(super) struct Search<'a> {
    dir: &'a Path,
    home: Option<&'a Path>,
    pub(super) why: Vec<Reason>,
}

fn file_name(tool: ToolName) -> &'static str {
    match tool {
        ToolName::Terraform => ".terraform-version",
        ToolName::Tofu => ".opentofu-version",
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(dir: &'a Path, home: Option<&'a Path>) -> Self {
        Self { dir, home, why: Vec::new() }
    }

    /// The directory, its parents up to the root, and the home if it is none of them.
    fn places(&self) -> Result<Vec<PathBuf>, VersionError> {
        let dir = fs::canonicalize(self.dir).map_err(VersionError::Unreadable)?;
        let mut places: Vec<_> = dir.ancestors().map(Path::to_owned).collect();
        let home = self.home.and_then(|home| fs::canonicalize(home).ok());
        places.extend(home.filter(|home| !dir.starts_with(home)));
        Ok(places)
    }

    /// The tool whose version file is nearest. Only OpenTofu reads `.tofu` files, so they count for
    /// more than a version file outside the directory. OpenTofu's own file goes first, as in tenv.
    pub(super) fn tool(&mut self) -> Result<ToolName, VersionError> {
        for (distance, place) in self.places()?.iter().enumerate() {
            for tool in [ToolName::Tofu, ToolName::Terraform] {
                let path = place.join(file_name(tool));
                if read_version_file(&path)?.is_some() {
                    self.why.push(Reason::new(path.display(), format!("the tool is {tool}")));
                    return Ok(tool);
                }
            }
            if distance == 0
                && let Some(name) = required::tofu_file(place)?
            {
                let path = place.join(name);
                self.why.push(Reason::new(path.display(), "only OpenTofu reads this file"));
                return Ok(ToolName::Tofu);
            }
        }
        Ok(ToolName::Terraform)
    }

    /// The request in the nearest version file of `tool` that is not blank.
    pub(super) fn version_file(
        &mut self,
        tool: ToolName,
    ) -> Result<Option<(String, PathBuf)>, VersionError> {
        for place in self.places()? {
            let path = place.join(file_name(tool));
            if let Some(text) = read_version_file(&path)? {
                self.why.push(Reason::new(path.display(), &text));
                return Ok(Some((text, path)));
            }
        }
        Ok(None)
    }

    /// What the configuration itself requires.
    pub(super) fn required(&mut self, tool: ToolName) -> Result<Requirement, VersionError> {
        let dir = fs::canonicalize(self.dir).map_err(VersionError::Unreadable)?;
        let requirement = required::scan(&dir, tool, &mut self.why)?;
        if requirement.is_empty() {
            self.why.push(Reason::new(dir.display(), "requires no version of its own"));
        }
        Ok(requirement)
    }
}

/// The text of a version file without the white space around it; `None` where it is missing, blank
/// or, with a warning, unreadable.
fn read_version_file(path: &Path) -> Result<Option<String>, VersionError> {
    let read = || {
        if fs::metadata(path)?.is_file() {
            return read_at_most(path, MAX_VERSION_FILE);
        }
        Err(std::io::Error::other(format!("{} is no regular file", path.display())))
    };
    let bytes = match read() {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            return Err(VersionError::TooLarge { path: path.to_owned(), limit: MAX_VERSION_FILE });
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => {
            tracing::warn!("passing over a version file: {error}");
            return Ok(None);
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| VersionError::NotText(path.to_owned()))?;
    let text = text.trim_start_matches('\u{feff}').trim();
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// The whole file, or `None` if it is larger than `limit` bytes.
pub(super) fn read_at_most(path: &Path, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= limit))
}
