//! The tools, by name.

use std::fmt;

/// A program that plans and applies, or that runs another one for it.
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

    /// The name of its program, also used in requests.
    pub fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::Tofu => "tofu",
            Self::Terragrunt => "terragrunt",
        }
    }

    /// The name of its directory of versions, as in tenv.
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
            .map_err(|_| format!("`{text}` is not a tool: expected terraform, tofu or terragrunt"))
    }
}

impl ToolName {
    /// The tool that a misspelt name means: at most two letters differ, or it is the name of the project.
    pub(crate) fn meant_by(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("opentofu") {
            return Some(Self::Tofu);
        }
        let differs = |tool: &Self| distance(text, tool.program());
        let nearest = Self::ALL.into_iter().min_by_key(differs)?;
        (1..=2).contains(&differs(&nearest)).then_some(nearest)
    }
}

/// The edit distance: letters to add, remove or replace.
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

/// `TOOL[@REQUEST]`: a tool and, optionally, the requested version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRequest {
    /// The tool.
    pub tool: ToolName,
    /// The text after the `@`, not yet parsed.
    pub request: Option<String>,
}

impl ToolRequest {
    /// `None` if the word before the `@` is not a tool; an error if nothing follows the `@`.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let (tool, request) = match text.split_once('@') {
            Some((tool, request)) => (tool, Some(request)),
            None => (text, None),
        };
        match (tool.parse(), request) {
            (Err(_), _) => Ok(None),
            (Ok(tool), Some(request)) if request.trim().is_empty() => Err(format!(
                "`{text}` has no version after the @: expected {tool}@1.9.8, {tool}@latest or just {tool}"
            )),
            (Ok(tool), request) => Ok(Some(Self { tool, request: request.map(str::to_owned) })),
        }
    }
}
