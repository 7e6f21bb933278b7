//! One error that a tool reported.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::process::redact::is_masked;

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
    /// Whether it has more text than is kept: the rest may be another error.
    #[serde(skip)]
    pub(crate) is_cut: bool,
}

impl Diagnostic {
    /// Whether it only says that something failed, while another error says what.
    pub(super) fn is_generic(&self) -> bool {
        // Terragrunt prints this for every dependency whose outputs it could not read.
        self.detail.contains("There is no variable named \"dependency\"")
            || is_failure(&self.summary)
            || announces(&format!("{} {}", self.summary, self.detail))
    }

    /// Its headline and the text after it.
    pub(crate) fn text(&self) -> String {
        format!("{}\n{}", self.summary, self.detail)
    }

    /// What the tool says, to be changed.
    pub(crate) fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let others = [&mut self.file, &mut self.block, &mut self.address, &mut self.unit];
        [&mut self.summary, &mut self.detail].into_iter().chain(others.into_iter().flatten())
    }

    /// The address of the resource or provider, if it is known exactly. Terraform 0.14 and older name only the block: that
    /// is its address in the root module, without an index.
    pub(crate) fn exact_address(&self) -> Option<String> {
        if let Some(address) = &self.address {
            return Some(address.clone()).filter(|address| !is_masked(address));
        }
        if self.file.as_ref()?.contains(['/', '\\']) {
            return None;
        }
        self.address_of_block()
    }

    /// The end of the address, without indexes, where only the block of the resource is named.
    pub(crate) fn end_of_address(&self) -> Option<String> {
        if self.address.is_some() { None } else { self.address_of_block() }
    }

    /// The address of the block in its module.
    fn address_of_block(&self) -> Option<String> {
        // `resource "aws_vpc" "main"`, and in a configuration of JSON `resource.aws_vpc.main`.
        let words = match self.block.as_ref()?.split_once(' ') {
            Some((kind, labels)) => [
                &[kind][..],
                &labels.split(' ').map(|label| label.trim_matches('"')).collect::<Vec<_>>(),
            ]
            .concat(),
            None => self.block.as_ref()?.splitn(3, '.').collect(),
        };
        match words[..] {
            ["resource", kind, name] => Some(format!("{kind}.{name}")),
            ["data", kind, name] => Some(format!("data.{kind}.{name}")),
            _ => None,
        }
    }

    /// The type of the resource, where it is known: `aws_vpc`.
    pub(crate) fn resource_type(&self) -> Option<String> {
        let of_address = || type_of(self.address.as_deref()?);
        let of_block = || {
            let block = self.block.as_deref()?;
            let kind = match block.split_once(" \"") {
                Some(("resource" | "data", rest)) => rest.split('"').next()?,
                Some(_) => return None,
                None => block.strip_prefix("resource.")?.split('.').next()?,
            };
            Some(kind.to_owned())
        };
        of_address().or_else(of_block)
    }

    /// Whether both report the same error.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let place = |this: &Self| (this.file.clone(), this.line);
        // Terragrunt repeats an error without its detail, and with its text on one line.
        let detail = self.detail.is_empty()
            || other.detail.is_empty()
            || self.detail.split_whitespace().eq(other.detail.split_whitespace());
        self.summary == other.summary && place(self) == place(other) && detail
    }
}

/// An address without what is in brackets, which can contain anything.
pub(crate) fn without_indexes(address: &str) -> String {
    let (mut kept, mut in_index, mut in_quotes, mut escaped) = (String::new(), false, false, false);
    for c in address.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_quotes => escaped = true,
            '"' if in_index => in_quotes = !in_quotes,
            '[' if !in_index => in_index = true,
            ']' if in_index && !in_quotes => in_index = false,
            c if !in_index => kept.push(c),
            _ => {}
        }
    }
    kept
}

/// Whether a text only says that something failed.
fn is_failure(text: &str) -> bool {
    const FAILED: [&str; 10] = [
        "encountered problems during initiali",
        "There are some problems with the",
        "Operation failed: failed running",
        "invocation failed in",
        "Failed to execute \"",
        "Unable to determine underlying exit code",
        "has finished with an error",
        "Hit multiple errors",
        // Of CI systems.
        "Process completed with exit code",
        "Terraform exited with code",
    ];
    // A hook of terragrunt's is no part of the tool.
    !text.starts_with("Error running hook ")
        && (text.starts_with("exit status ") || FAILED.iter().any(|failed| text.contains(failed)))
}

/// Whether a text only announces a list of errors, which is not there, or whose items say nothing either.
fn announces(text: &str) -> bool {
    const BEFORE_LISTS: [&str; 6] = [
        "error(s) occurred:",
        "error occurred:",
        "errors occurred:",
        "Error applying plan:",
        "Error running plan:",
        "Error refreshing state:",
    ];
    let ends = BEFORE_LISTS.iter().filter_map(|before| Some(text.find(before)? + before.len()));
    let Some(list) = ends.min().map(|end| &text[end..]) else { return false };
    let mut items = list.split("* ").map(str::trim);
    items.all(|item| item.is_empty() || is_failure(item) || announces(item))
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

/// The type of the resource at an address: `aws_vpc`.
pub(crate) fn type_of(address: &str) -> Option<String> {
    let address = without_indexes(address);
    let kind = address.rsplit('.').nth(1)?.to_owned();
    Some(kind).filter(|kind| kind.contains('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_exact_only_where_the_module_is_known() {
        let of = |file: &str, block: &str| {
            let (file, block) = (Some(file.to_owned()), Some(block.to_owned()));
            Diagnostic { file, block, ..Diagnostic::default() }
        };
        for (file, block, address, kind) in [
            ("main.tf", "resource \"aws_vpc\" \"a\"", Some("aws_vpc.a"), Some("aws_vpc")),
            ("main.tf", "data \"aws_vpc\" \"a\"", Some("data.aws_vpc.a"), Some("aws_vpc")),
            ("main.tf.json", "resource.aws_vpc.a", Some("aws_vpc.a"), Some("aws_vpc")),
            ("modules/a/main.tf", "resource \"aws_vpc\" \"a\"", None, Some("aws_vpc")),
            ("main.tf", "provider \"aws\"", None, None),
        ] {
            let diagnostic = of(file, block);
            assert_eq!(diagnostic.exact_address().as_deref(), address, "{file} {block}");
            assert_eq!(diagnostic.resource_type().as_deref(), kind, "{file} {block}");
        }
        for (address, kind) in [
            ("module.a[\"x.y]\"].aws_vpc.b[\"k.\\\"l\"]", Some("aws_vpc")),
            ("data.aws_vpc.b", Some("aws_vpc")),
            ("provider.aws", None),
            ("module.a", None),
        ] {
            let of_address = Diagnostic { address: Some(address.into()), ..of("a/b.tf", "x") };
            assert_eq!(of_address.exact_address().as_deref(), Some(address));
            assert_eq!(of_address.resource_type().as_deref(), kind, "{address}");
        }
        let masked = Some("aws_vpc.b[\"***\"]".to_owned());
        assert_eq!(Diagnostic { address: masked, ..of("a.tf", "x") }.exact_address(), None);
    }
}
