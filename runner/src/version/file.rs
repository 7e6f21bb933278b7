//! Version files: their names and formats.
//!
//! The names, their order and their grammar are tenv's. In which directories they are searched is not known here.

use std::path::Path;

use memchr::memmem;

use crate::version::error::VersionError;
use crate::version::json::{self, Json};
use crate::version::outline::Outline;
use crate::version::syntax::{self, Literal};
use crate::version::tool_name::ToolName;

/// A version file has a few lines; a larger file is something else.
const MAX_VERSION_FILE: u64 = 64 * 1024;

/// A file that may contain the version of one tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct VersionFile {
    pub(super) name: &'static str,
    format: Format,
}

#[derive(Clone, Copy, Debug)]
enum Format {
    /// The whole content is the request.
    Flat,
    /// Lines with a plugin's name and a version; the last line with this name counts.
    ToolVersions(&'static str),
    /// This top-level attribute, if it is a literal.
    Hcl(&'static str),
    /// The same in JSON.
    HclJson(&'static str),
    /// This top-level key.
    Toml(&'static str),
}

/// A request in a file, with its line where the format has several.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) text: String,
    pub(super) line: Option<usize>,
}

/// The files that may contain a version of `tool`, in order of precedence.
pub(super) fn files(tool: ToolName) -> impl Iterator<Item = VersionFile> {
    let own: &[(&str, Format)] = match tool {
        ToolName::Terraform => &[
            (".terraform-version", Format::Flat),
            (".tfswitchrc", Format::Flat),
            (".tool-versions", Format::ToolVersions("terraform")),
        ],
        ToolName::Tofu => &[
            (".opentofu-version", Format::Flat),
            (".tool-versions", Format::ToolVersions("opentofu")),
        ],
        ToolName::Terragrunt => &[
            (".terragrunt-version", Format::Flat),
            (".tgswitchrc", Format::Flat),
            (".tgswitch.toml", Format::Toml("version")),
            (".tool-versions", Format::ToolVersions("terragrunt")),
        ],
    };
    let key = match tool {
        ToolName::Terraform | ToolName::Tofu => "terraform_version_constraint",
        ToolName::Terragrunt => "terragrunt_version_constraint",
    };
    let shared = [
        ("terragrunt.hcl", Format::Hcl(key)),
        ("terragrunt.hcl.json", Format::HclJson(key)),
        ("root.hcl", Format::Hcl(key)),
        ("root.hcl.json", Format::HclJson(key)),
    ];
    own.iter().copied().chain(shared).map(|(name, format)| VersionFile { name, format })
}

/// Whether files of this name may select the version of a tool, or terragrunt's own configuration.
pub(crate) fn is_version_file(name: &str) -> bool {
    [ToolName::Terraform, ToolName::Tofu, ToolName::Terragrunt]
        .into_iter()
        .any(|tool| files(tool).any(|file| file.name == name))
}

impl VersionFile {
    /// Whether the file selects a tool. A terragrunt file does not: its constraint for terraform also applies to OpenTofu.
    pub(super) fn names_the_tool(self) -> bool {
        matches!(self.format, Format::Flat | Format::ToolVersions(_))
    }

    /// The most bytes that are read of it.
    pub(super) fn limit(self) -> u64 {
        match self.format {
            Format::Flat | Format::ToolVersions(_) | Format::Toml(_) => MAX_VERSION_FILE,
            Format::Hcl(_) | Format::HclJson(_) => syntax::MAX_CONFIGURATION,
        }
    }

    /// Reads the request in the file at `path` with this content. `None` if there is none or, with a warning, if it would
    /// have to be evaluated.
    pub(super) fn entry(self, path: &Path, bytes: Vec<u8>) -> Result<Option<Entry>, VersionError> {
        if let Format::Hcl(key) | Format::HclJson(key) = self.format
            && memmem::find(&bytes, key.as_bytes()).is_none()
        {
            return Ok(None);
        }
        let text = match self.format {
            Format::Hcl(_) | Format::HclJson(_) => syntax::lossy(bytes),
            Format::Flat | Format::ToolVersions(_) | Format::Toml(_) => syntax::text(path, bytes)?,
        };
        let (literal, line) = match self.format {
            Format::Flat => (Literal::Text(text), None),
            Format::ToolVersions(plugin) => match in_tool_versions(&text, plugin) {
                Some((version, line)) => (Literal::Text(version), Some(line)),
                None => (Literal::Null, None),
            },
            Format::Hcl(key) => in_hcl(path, &text, key),
            Format::HclJson(key) => in_json(path, &text, key),
            Format::Toml(key) => match syntax::toml(path, &text)?.get(key) {
                Some(toml::Value::String(text)) => (Literal::Text(text.clone()), None),
                Some(_) => (Literal::Unknown, None),
                None => (Literal::Null, None),
            },
        };
        match literal {
            Literal::Text(text) if !text.trim().is_empty() => {
                Ok(Some(Entry { text: text.trim().to_owned(), line }))
            }
            Literal::Text(_) | Literal::Null => Ok(None),
            Literal::Unknown => {
                tracing::warn!("{}: a version that is not a literal is ignored", path.display());
                Ok(None)
            }
        }
    }
}

/// The value of the last attribute with this name, and its line. Terragrunt accepts some files that the parser rejects, so
/// these are scanned.
fn in_hcl(path: &Path, text: &str, key: &'static str) -> (Literal, Option<usize>) {
    match syntax::hcl(path, text) {
        Ok(body) => match syntax::attributes(&body, key).last() {
            Some(attribute) => {
                (syntax::literal(&attribute.value), Some(syntax::line_of(text, attribute)))
            }
            None => (Literal::Null, None),
        },
        Err(error) => {
            tracing::warn!("{error}: only {key} is read");
            match Outline::read(text, &[key]).attributes.iter().rfind(|found| found.block.is_none())
            {
                Some(attribute) => (syntax::literal_of(attribute.value), Some(attribute.line)),
                None => (Literal::Null, None),
            }
        }
    }
}

/// The same in JSON.
fn in_json(path: &Path, text: &str, key: &'static str) -> (Literal, Option<usize>) {
    match json::parse(path, text) {
        Ok(value) => (value.members(key).last().map_or(Literal::Null, Json::literal), None),
        Err(error) => {
            tracing::warn!("{error}: only {key} is read");
            match json::values_of(text, key).pop() {
                Some((line, value)) => (value, Some(line)),
                None => (Literal::Null, None),
            }
        }
    }
}

/// The second word of the last line whose first is `plugin`, and the line's number.
fn in_tool_versions(text: &str, plugin: &str) -> Option<(String, usize)> {
    let mut found = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        let mut words = line.split_whitespace();
        if words.next() == Some(plugin)
            && let Some(version) = words.next()
        {
            found = Some((version.to_owned(), index + 1));
        }
    }
    found
}
