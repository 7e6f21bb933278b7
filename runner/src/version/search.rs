//! The search for a request outside the code: variables, version files (in the directory, in each of its parents, then in
//! the home), and tenv's own directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::version::constraint::Constraint;
use crate::version::context::{Finding, SearchContext};
use crate::version::error::VersionError;
use crate::version::file::{self, VersionFile};
use crate::version::number::Malformed;
use crate::version::request::Requirement;
use crate::version::tool_name::ToolName;
use crate::version::{configuration, required, syntax};

/// A version or a constraint in tenv's directory is one line.
const MAX_LINE: u64 = 64 * 1024;

/// One search and its findings so far.
pub(super) struct Search<'a> {
    dir: &'a Path,
    context: &'a SearchContext,
    pub(super) trace: Vec<Finding>,
    pub(super) files_read: Vec<PathBuf>,
}

/// tenv's variables for one tool.
struct Variables {
    version: &'static str,
    default_version: &'static str,
    default_constraint: &'static str,
}

fn variables(tool: ToolName) -> Variables {
    let [version, default_version, default_constraint] = match tool {
        ToolName::Terraform => [
            "TFENV_TERRAFORM_VERSION",
            "TFENV_TERRAFORM_DEFAULT_VERSION",
            "TFENV_TERRAFORM_DEFAULT_CONSTRAINT",
        ],
        ToolName::Tofu => [
            "TOFUENV_TOFU_VERSION",
            "TOFUENV_TOFU_DEFAULT_VERSION",
            "TOFUENV_TOFU_DEFAULT_CONSTRAINT",
        ],
        ToolName::Terragrunt => ["TG_VERSION", "TG_DEFAULT_VERSION", "TG_DEFAULT_CONSTRAINT"],
    };
    Variables { version, default_version, default_constraint }
}

/// The names of all variables that a search reads.
pub fn variable_names() -> impl Iterator<Item = &'static str> {
    ToolName::ALL.into_iter().flat_map(|tool| {
        let Variables { version, default_version, default_constraint } = variables(tool);
        [version, default_version, default_constraint]
    })
}

impl<'a> Search<'a> {
    pub(super) fn new(dir: &'a Path, context: &'a SearchContext) -> Self {
        Self { dir, context, trace: Vec::new(), files_read: Vec::new() }
    }

    /// The directory, its parents up to the root, and the home if it is none of them.
    fn places(&self) -> Result<Vec<PathBuf>, VersionError> {
        let dir = fs::canonicalize(self.dir).map_err(|error| match error.kind() {
            ErrorKind::NotFound => VersionError::NoDirectory(self.dir.to_owned()),
            _ => VersionError::Unreadable(error),
        })?;
        let top = self.context.top.as_ref().and_then(|top| fs::canonicalize(top).ok());
        let above = |place: &&Path| top.as_ref().is_none_or(|top| place.starts_with(top));
        let mut places: Vec<_> = dir.ancestors().take_while(above).map(Path::to_owned).collect();
        let home = self.context.home.as_ref().and_then(|home| fs::canonicalize(home).ok());
        places.extend(home.filter(|home| !places.contains(home)));
        Ok(places)
    }

    /// The tool of the nearest version file. Only OpenTofu reads `.tofu` files, so they take precedence over version files
    /// outside the directory. In one directory OpenTofu's version file takes precedence, as in tenv.
    pub(super) fn tool(&mut self) -> Result<ToolName, VersionError> {
        for (distance, place) in self.places()?.iter().enumerate() {
            for tool in [ToolName::Tofu, ToolName::Terraform] {
                for file in file::files(tool).filter(|file| file.names_the_tool()) {
                    if let Some((_, origin)) = self.entry(place, file)? {
                        self.trace.push(Finding::new(origin, format!("the tool is {tool}")));
                        return Ok(tool);
                    }
                }
            }
            if distance == 0
                && let Some(name) = configuration::tofu_file(place)?
            {
                let path = place.join(name);
                self.trace.push(Finding::new(path.display(), "only OpenTofu reads this file"));
                return Ok(ToolName::Tofu);
            }
        }
        Ok(ToolName::Terraform)
    }

    /// The request for `tool` with the highest precedence, and its origin; `None` if only the code may have one.
    pub(super) fn request(
        &mut self,
        tool: ToolName,
    ) -> Result<Option<(String, String)>, VersionError> {
        let Variables { version, default_version, .. } = variables(tool);
        let found = match self.variable(version) {
            Some(found) => Some(found),
            None => match self.version_file(tool)? {
                Some(found) => Some(found),
                None => match self.variable(default_version) {
                    Some(found) => Some(found),
                    None => self.in_tenv_root(tool, "version")?,
                },
            },
        };
        if let Some((text, origin)) = &found {
            self.trace.push(Finding::new(origin, text));
        }
        Ok(found)
    }

    fn variable(&self, name: &str) -> Option<(String, String)> {
        let text = self.context.variables.get(name)?.trim();
        (!text.is_empty()).then(|| (text.to_owned(), name.to_owned()))
    }

    /// The request in the nearest version file of `tool` that is not blank.
    fn version_file(&mut self, tool: ToolName) -> Result<Option<(String, String)>, VersionError> {
        for place in self.places()? {
            for file in file::files(tool) {
                if let Some(found) = self.entry(&place, file)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// The request in one file, and its place.
    fn entry(
        &mut self,
        place: &Path,
        file: VersionFile,
    ) -> Result<Option<(String, String)>, VersionError> {
        let path = place.join(file.name);
        let Some(bytes) = self.read(&path, file.limit())? else { return Ok(None) };
        Ok(file.entry(&path, bytes)?.map(|entry| {
            let origin = match entry.line {
                Some(line) => format!("{}:{line}", path.display()),
                None => path.display().to_string(),
            };
            (entry.text, origin)
        }))
    }

    /// A line in tenv's own directory: `$TENV_ROOT/Terraform/version`.
    fn in_tenv_root(
        &mut self,
        tool: ToolName,
        name: &str,
    ) -> Result<Option<(String, String)>, VersionError> {
        let Some(root) = &self.context.tenv_root else { return Ok(None) };
        let path = root.join(tool.directory()).join(name);
        let Some(bytes) = self.read(&path, MAX_LINE)? else { return Ok(None) };
        let text = syntax::text(&path, bytes)?.trim().to_owned();
        Ok((!text.is_empty()).then(|| (text, path.display().to_string())))
    }

    fn read(&mut self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>, VersionError> {
        let bytes = syntax::read(path, limit, self.context)?;
        if bytes.is_some() && !self.files_read.iter().any(|read| read == path) {
            self.files_read.push(path.to_owned());
        }
        Ok(bytes)
    }

    /// The user's default constraint, which applies in every directory in addition to the request.
    pub(super) fn default_constraint(
        &mut self,
        tool: ToolName,
    ) -> Result<Option<(Constraint, String)>, VersionError> {
        let found = match self.variable(variables(tool).default_constraint) {
            Some(found) => Some(found),
            None => self.in_tenv_root(tool, "constraint")?,
        };
        let Some((text, place)) = found else { return Ok(None) };
        self.trace.push(Finding::new(&place, format!("always {text}")));
        let constraint = text.parse::<Constraint>().and_then(|constraint| {
            let malformed = || Malformed::new(&text, "version constraint");
            if constraint.is_cut_off() { Err(malformed()) } else { Ok(constraint) }
        });
        match constraint {
            Ok(constraint) => Ok(Some((constraint.found_in(&place), place))),
            Err(source) => Err(VersionError::Request { place, source }),
        }
    }

    /// The requirements of the configuration itself.
    pub(super) fn required(&mut self, tool: ToolName) -> Result<Requirement, VersionError> {
        if tool == ToolName::Terragrunt {
            return Ok(Requirement::default());
        }
        let dir = fs::canonicalize(self.dir).map_err(VersionError::Unreadable)?;
        let scan = required::scan(&dir, tool)?;
        let requirement = scan.requirement;
        self.trace.extend(scan.trace);
        let known = &self.files_read;
        let read = scan.files_read.into_iter().filter(|path| !known.contains(path));
        let read: Vec<_> = read.collect();
        self.files_read.extend(read);
        if requirement.is_empty() {
            self.trace.push(Finding::new(dir.display(), "has no required_version"));
        }
        Ok(requirement)
    }
}
