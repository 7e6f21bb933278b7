//! Errors of the search for a version, and of the installation of a tool.

use std::path::Path;

use crate::failure::{Failure, Kind};
use crate::release::{COMMAND_LINE, CommandError, ErrorKind, ReleaseError};
use crate::version::{ToolName, VersionError};

impl From<&VersionError> for Failure {
    fn from(error: &VersionError) -> Self {
        let kind = match error {
            VersionError::Request { place, .. }
                if place.starts_with("--") || place == COMMAND_LINE =>
            {
                Kind::Usage
            }
            _ => Kind::Config,
        };
        let failure = Self::new(kind, error);
        match error {
            VersionError::NoDirectory(path) => match meant(path) {
                Some(meant) => failure.with_hint(&format!("did you mean `{meant}`?")),
                None => failure.with_hint(
                    "name a directory, or TOOL[@REQUEST] with terraform, tofu or terragrunt",
                ),
            },
            VersionError::Prerelease { .. } => failure.with_hint(
                "leave out what follows the dash (prereleases satisfy a constraint by their numbers alone), and \
                 request a prerelease with --tool-version or a version file",
            ),
            VersionError::NotText(_) => failure.with_hint(
                "save the file as UTF-8 (`>` of Windows PowerShell writes UTF-16: use `Set-Content -Encoding utf8`)",
            ),
            VersionError::TooLarge { .. } => failure.with_hint(
                "name the tool and its version with --tool and --tool-version (in `runner resolve` and `install` as \
                 TOOL@REQUEST), or make the file smaller",
            ),
            VersionError::Syntax { .. } => failure.with_hint(
                "correct that line (a version is a text in quotes: version = \"0.98.0\")",
            ),
            VersionError::Request { .. } => failure.with_hint(
                "write a version (1.9.8), a constraint (`~> 1.9`, `>= 1.5, != 1.5.3, < 2`) or a keyword \
                 (latest, latest-pre, latest-allowed, min-required, latest:REGEX, min:REGEX), and nothing \
                 else: no comment, no second line",
            ),
            VersionError::Unreadable(_) => failure,
        }
    }
}

/// The correct spelling of a misspelt tool, with the request after it.
fn meant(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    let (tool, request) = match text.split_once('@') {
        Some((tool, request)) => (tool, format!("@{request}")),
        None => (text, String::new()),
    };
    ToolName::meant_by(tool).map(|tool| format!("{tool}{request}"))
}

impl From<&CommandError> for Failure {
    fn from(error: &CommandError) -> Self {
        match error {
            CommandError::Usage(_) => Self::new(Kind::Usage, error),
            CommandError::Version(cause) => cause.into(),
            CommandError::Release(cause) => cause.into(),
        }
    }
}

impl From<&ReleaseError> for Failure {
    fn from(error: &ReleaseError) -> Self {
        let kind = match error.kind() {
            ErrorKind::Credentials => Kind::Credentials,
            ErrorKind::Network => Kind::Network,
            ErrorKind::Config => Kind::Config,
            ErrorKind::Integrity => Kind::Integrity,
            ErrorKind::Other => Kind::Unclassified,
        };
        Self::new(kind, error).with_hint(error.next())
    }
}
