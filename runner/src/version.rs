//! Which tool, and which version of it, a directory asks for.
//!
//! It reads version files and the configuration's own `required_version`, and knows nothing of which
//! versions exist or are installed: that is for [`crate::release`].

mod file;
mod json;
mod number;
mod outline;
mod request;
mod required;
mod search;
mod syntax;

pub use number::{Constraint, Malformed, Version};
pub use request::{Pattern, Request, Requirement};
pub use search::variable_names;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use search::Search;

/// A program that plans and applies, or that has another do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum ToolName {
    /// HashiCorp Terraform.
    Terraform,
    /// OpenTofu.
    Tofu,
    /// Terragrunt.
    Terragrunt,
}

impl ToolName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Terraform, Self::Tofu, Self::Terragrunt];

    /// The name of its program, which is also how it is asked for.
    pub fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::Tofu => "tofu",
            Self::Terragrunt => "terragrunt",
        }
    }

    /// The directory that holds its versions, as tenv names it.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Self::Terraform => "Terraform",
            Self::Tofu => "OpenTofu",
            Self::Terragrunt => "Terragrunt",
        }
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

impl std::str::FromStr for ToolName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Self as clap::ValueEnum>::from_str(text, false)
            .map_err(|_| format!("`{text}` is no tool: terraform, tofu or terragrunt"))
    }
}

impl ToolName {
    /// The tool whose name is misspelt like this: at most two letters differ.
    pub(crate) fn meant_by(text: &str) -> Option<Self> {
        let differs = |tool: &Self| distance(text, tool.program());
        let nearest = Self::ALL.into_iter().min_by_key(differs)?;
        (1..=2).contains(&differs(&nearest)).then_some(nearest)
    }
}

/// How many letters have to be added, removed or replaced to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    const MAX: usize = 32;
    if one.len() > MAX {
        return MAX;
    }
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.chars().enumerate() {
            let replaced = before + usize::from(a != b);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row[other.chars().count()]
}

impl serde::Serialize for ToolName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.program())
    }
}

/// `TOOL[@REQUEST]`: a tool, and perhaps the version of it that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRequest {
    /// The tool.
    pub tool: ToolName,
    /// What stands after the `@`, not yet parsed.
    pub request: Option<String>,
}

impl ToolRequest {
    /// `None` if the word before an `@` is no tool; an error if nothing follows the `@`.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let (tool, request) = match text.split_once('@') {
            Some((tool, request)) => (tool, Some(request)),
            None => (text, None),
        };
        match (tool.parse(), request) {
            (Err(_), _) => Ok(None),
            (Ok(tool), Some(request)) if request.trim().is_empty() => Err(format!(
                "`{text}` names no version: {tool}@1.9.8, {tool}@latest or just {tool}"
            )),
            (Ok(tool), request) => Ok(Some(Self { tool, request: request.map(str::to_owned) })),
        }
    }
}

/// What is wanted, and why.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The tool.
    pub tool: ToolName,
    /// Which versions of it will do.
    pub request: Request,
    /// Where the request comes from: a flag, a file, or that nothing asks.
    pub origin: String,
    /// The directory that asks.
    pub dir: PathBuf,
    /// Everything that was found on the way, in the order of looking.
    pub why: Vec<Reason>,
    /// The files that were read, in that order.
    pub looked_at: Vec<PathBuf>,
}

/// What stands around a directory and may ask for a version as well.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The user's home: looked at after all parents of the directory.
    pub home: Option<PathBuf>,
    /// The last parent that is looked at, where what lies above is nobody's who may say so.
    pub top: Option<PathBuf>,
    /// tenv's directory.
    pub tenv_root: Option<PathBuf>,
    /// tenv's variables, those of [`variable_names`].
    pub variables: BTreeMap<&'static str, String>,
}

/// One thing that was found, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Reason {
    /// A file (and line), a flag, a directory or a URL.
    pub place: String,
    /// What it says.
    pub says: String,
}

impl Reason {
    pub(crate) fn new(place: impl fmt::Display, says: impl Into<String>) -> Self {
        Self { place: place.to_string(), says: says.into() }
    }
}

/// The directory asks for something that is not understood. All of these are the user's to mend.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The text at a place is no request.
    #[error("{place}: not a version request")]
    Request {
        /// The flag, or the file and line.
        place: String,
        /// What is wrong with the text.
        #[source]
        source: Malformed,
    },
    /// The code requires a prerelease, which no tool accepts.
    #[error(
        "{place}: `{item}` names a prerelease, which terraform and tofu refuse in required_version"
    )]
    Prerelease {
        /// The file and line.
        place: String,
        /// The part of the constraint.
        item: String,
    },
    /// A file does not parse.
    #[error("{}:{line}:{column}: {message}: `{}`", .path.display(), number::shown(.text))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The character in the line, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
        /// The line itself.
        text: String,
    },
    /// A file is too large to be what its name says.
    #[error("{} is larger than {} KiB", .path.display(), .limit / 1024)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file is not text.
    #[error("{} is not UTF-8 text", .0.display())]
    NotText(PathBuf),
    /// There is no such directory.
    #[error("there is no directory `{}`", .0.display())]
    NoDirectory(PathBuf),
    /// The directory or a file of the configuration cannot be read.
    #[error("looking for the version that is asked for")]
    Unreadable(#[source] io::Error),
}

/// Which tool, and which version of it, `dir` asks for.
///
/// `tool` and `request` (its text, and where that comes from) go before everything that is found; a
/// blank request is none.
pub fn wanted(
    tool: Option<ToolName>,
    request: Option<(&str, &str)>,
    dir: &Path,
    around: &Surroundings,
) -> Result<Wanted, VersionError> {
    let mut search = Search::new(dir, around);
    let tool = match tool {
        Some(tool) => tool,
        None => search.tool()?,
    };
    let given = request.filter(|(text, _)| !text.trim().is_empty());
    let found = match given {
        Some((text, origin)) => {
            search.why.push(Reason::new(origin, text.trim()));
            Some((text.trim().to_owned(), origin.to_owned()))
        }
        None => search.request(tool)?,
    };
    let (text, origin) = match found {
        Some((text, origin)) => (text, Some(origin)),
        None => ("latest-allowed".to_owned(), None),
    };
    let (request, of_itself) = request_of(&mut search, tool, &text, origin.as_deref())?;
    let origin = origin.unwrap_or(of_itself);
    let (why, looked_at) = (search.why, search.looked_at);
    Ok(Wanted { tool, request, origin, dir: dir.to_owned(), why, looked_at })
}

/// The request that is meant, and who makes it where nobody has made one: the code, a default constraint,
/// or nothing.
fn request_of(
    search: &mut Search<'_>,
    tool: ToolName,
    text: &str,
    origin: Option<&str>,
) -> Result<(Request, String), VersionError> {
    let mut request = match text {
        "latest-allowed" => Request::Highest(search.required(tool)?),
        "min-required" => Request::Lowest(search.required(tool)?),
        text => match text.parse::<Request>() {
            Ok(request) => request.found_in(origin.unwrap_or_default()),
            Err(source) => {
                let place = origin.unwrap_or_default().to_owned();
                return Err(VersionError::Request { place, source });
            }
        },
    };
    let mut by = None;
    if let Request::Highest(requirement) | Request::Lowest(requirement) = &mut request {
        by = (!requirement.is_empty()).then(|| "required_version".to_owned());
        if let Some((constraint, place)) = search.default_constraint(tool)? {
            requirement.and(&constraint);
            by = by.or(Some(place));
        }
    }
    if matches!(&request, Request::Lowest(requirement) if requirement.is_empty()) {
        request = Request::Latest;
    }
    Ok((request, by.unwrap_or_else(|| "nothing in particular".to_owned())))
}

/// What fuzz targets call.
#[cfg(fuzzing)]
pub mod fuzz {
    use std::path::Path;

    use super::{Constraint, Request, ToolName, Version, file, required};

    /// Versions, constraints and requests: what is read reads back, and checks never panic.
    pub fn request(text: &str) {
        let stable: Vec<Version> = ["1.5.7", "1.9.8", "1.10.0-rc1", "1.2.3.4", "alpha-1"]
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        if let Ok(version) = text.parse::<Version>() {
            assert!(version.to_string().parse::<Version>().is_ok_and(|again| again == version));
        }
        if let Ok(constraint) = text.parse::<Constraint>() {
            for version in &stable {
                assert_eq!(constraint.allows(version), constraint.refusal(version).is_none());
            }
        }
        if let Ok(request) = text.parse::<Request>() {
            drop((request.best(&stable).cloned(), request.to_string()));
        }
    }

    /// Every format of version files.
    pub fn version_file(bytes: &[u8]) {
        for tool in ToolName::ALL {
            for file in file::files(tool) {
                drop(file.noted(Path::new(file.name), bytes.to_vec()));
            }
        }
    }

    /// The configuration's own requirements, as HCL and as JSON.
    pub fn configuration(bytes: &[u8]) {
        required::fuzz(bytes);
    }
}

#[cfg(test)]
mod tests;
