//! One error that a tool reported.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One error that a tool reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Diagnostic {
    /// Its headline, on one line.
    pub(crate) summary: String,
    /// The text after it, one line for each paragraph; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
    /// The configuration file, as the tool names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The line in it, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u32>,
    /// The block in it: `resource "aws_instance" "web"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) block: Option<String>,
    /// The resource or provider: `module.a.aws_instance.web[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    /// The terragrunt unit, where several ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
}

impl Diagnostic {
    /// Whether it only says that something failed, while another error says what.
    pub(super) fn is_generic(&self) -> bool {
        const GENERIC: [&str; 12] = [
            "encountered problems during initiali",
            "There are some problems with the",
            "error(s) occurred:",
            "error occurred:",
            "errors occurred:",
            "Error applying plan:",
            "Error running plan:",
            "Error refreshing state:",
            "Operation failed: failed running",
            "invocation failed in",
            "Failed to execute \"",
            "Unable to determine underlying exit code",
        ];
        GENERIC.iter().any(|text| self.summary.contains(text))
            // Terragrunt prints this for every dependency whose outputs it could not read.
            || self.detail.contains("There is no variable named \"dependency\"")
    }

    /// Whether both report the same error.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let place = |this: &Self| (this.file.clone(), this.line);
        // Terragrunt repeats an error without its detail, and with its text on one line.
        let detail = self.detail == other.detail
            || self.detail.is_empty()
            || other.detail.is_empty()
            || self.address == other.address && self.file.is_some();
        self.summary == other.summary && place(self) == place(other) && detail
    }
}

impl fmt::Display for Diagnostic {
    /// On one line: the summary, the place, and the first paragraph of the detail.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(unit) = &self.unit {
            write!(f, "[{unit}] ")?;
        }
        f.write_str(self.summary.trim_end_matches([':', '.']))?;
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => Some(format!("{file}:{line}")),
            (Some(file), None) => Some(file.clone()),
            (None, _) => None,
        };
        let context = self.address.as_ref().or(self.block.as_ref());
        match (place, context) {
            (Some(place), Some(context)) => write!(f, " ({place}, in {context})")?,
            (Some(place), None) => write!(f, " ({place})")?,
            (None, Some(context)) => write!(f, " ({context})")?,
            (None, None) => {}
        }
        match self.detail.lines().next() {
            Some(paragraph) => write!(f, ": {paragraph}"),
            None => Ok(()),
        }
    }
}
