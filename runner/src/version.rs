//! Which tool, and which version of it, a directory asks for.
//!
//! It reads version files and the configuration's own `required_version`, and knows nothing of which
//! versions exist or are installed: that is for [`crate::release`].

mod number;

pub use number::{Constraint, Malformed, Version};

use std::fmt;

/// A program that plans and applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum ToolName {
    /// HashiCorp Terraform.
    Terraform,
    /// OpenTofu.
    Tofu,
}

impl ToolName {
    /// The name of its program, which is also how it is asked for.
    pub fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::Tofu => "tofu",
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
            .map_err(|_| format!("`{text}` is no tool: terraform or tofu"))
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
            (Ok(tool), Some(request)) if request.trim().is_empty() => {
                Err(format!("`{text}` names no version: {tool}@1.9.8, {tool}@latest or just {tool}"))
            }
            (Ok(tool), request) => Ok(Some(Self { tool, request: request.map(str::to_owned) })),
        }
    }
}
