//! How an apply has ended, by what the tool itself prints: whether it is complete, and whether its state was refused.
//!
//! What a provisioner prints is not the tool's: such a line begins with the name of its resource, or is part of an error.

use std::io::{self, BufRead};

use anstream::adapter::strip_str;

use crate::tool::diagnostics::each_line;
use crate::tool::diagnostics::line::Line;

/// The file to which the tool writes a state that its backend has refused.
const FILE: &str = "errored.tfstate";
/// The summaries of the tool's errors about such a state.
const SUMMARIES: [&str; 4] =
    ["Failed to save state", "Failed to persist state", "Failed to serialize state", CANNOT_WRITE];
/// The tool then prints the state.
const CANNOT_WRITE: &str = "Failed to create local state file";

/// How the tool says that the backend has refused a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has written the state to a file.
    Written,
    /// It could not, and has printed the state.
    Printed,
}

/// How the tool says that it has applied, with the counts after it.
pub(super) const APPLIED: [&str; 2] =
    ["Apply complete! Resources: ", "Destroy complete! Resources: "];

/// What the tool says about the end of an apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ApplyEnd {
    /// A line of the tool's says that the apply is complete.
    says_complete: bool,
    has_error: bool,
    /// Terragrunt says that a signal has killed a tool of its own.
    was_killed: bool,
    /// Whether the backend has refused the state.
    pub(crate) refusal: Option<Refusal>,
}

impl ApplyEnd {
    /// Reads the output of an apply to its end, in bounded memory.
    pub(crate) fn read(output: impl BufRead) -> io::Result<Self> {
        let mut end = Self::default();
        each_line(output, |line| end.line(&strip_str(line).to_string()))?;
        Ok(end)
    }

    /// Whether the tool says that the apply is complete. An error may quote any line, so there must be none.
    pub(crate) fn is_complete(self) -> bool {
        self.says_complete && !self.has_error
    }

    /// Whether a tool that has failed has ended by itself: then it says why.
    pub(crate) fn has_failed_by_itself(self) -> bool {
        self.has_error && !self.was_killed
    }

    /// A line without escape codes.
    fn line(&mut self, line: &str) {
        let text = Line::parse(line).text;
        if ["(local-exec): ", "(remote-exec): "].iter().any(|name| text.contains(name)) {
            return;
        }
        self.says_complete |= says_complete(text);
        self.was_killed |= text.trim_end().ends_with("signal: killed");
        let message = text.strip_prefix("\u{2502} ").unwrap_or(text);
        let error = message.strip_prefix("Error: ");
        // Of the tool's option `-json`.
        self.has_error |= error.is_some() || text.starts_with("{\"@level\":\"error\"");
        let summary = error.unwrap_or(message);
        if summary.starts_with(CANNOT_WRITE) || message.contains("data is printed above") {
            self.refusal = Some(Refusal::Printed);
        } else if SUMMARIES.iter().any(|known| summary.starts_with(known))
            || self.has_error && message.contains(FILE)
            // With `-json`.
            || text.contains("Error: Failed to save state")
        {
            self.refusal.get_or_insert(Refusal::Written);
        }
    }
}

/// Whether a tool that has succeeded says that it has applied, also with `-json`. One that a signal has reached before the
/// apply can succeed without.
pub(crate) fn says_applied(output: impl BufRead) -> io::Result<bool> {
    let mut says = false;
    each_line(output, |line| {
        says |= APPLIED.iter().any(|words| line.contains(words)) && !line.contains("-exec): ");
    })?;
    Ok(says)
}

/// `Apply complete! Resources: 1 added, 0 changed, 0 destroyed.`; later versions also count imports and actions.
fn says_complete(line: &str) -> bool {
    let Some(counts) = line.trim_end().strip_prefix("Apply complete! Resources: ") else {
        return false;
    };
    let Some(counts) = counts.strip_suffix('.') else { return false };
    counts.split([',', '.']).all(|count| {
        let count = count.trim().trim_start_matches("Actions: ");
        let words = count.split_once(' ');
        words.is_some_and(|(number, what)| {
            number.parse::<u64>().is_ok() && what.bytes().all(|byte| byte.is_ascii_lowercase())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> ApplyEnd {
        ApplyEnd::read(output.as_bytes()).unwrap()
    }

    #[test]
    fn only_a_line_of_the_tool_says_that_an_apply_is_complete() {
        let line = "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.";
        for output in [
            format!("{line}\n"),
            format!("\x1b[0m\x1b[1m\x1b[32m\n{line}\n\x1b[0m"),
            format!("\x1b[0m\x1b[1m\x1b[32m{line}\x1b[0m\n\nOutputs:\n\na = \"Error: b\"\n"),
            format!("12:30:45.123 STDOUT terraform: {line}\n"),
            "Apply complete! Resources: 2 imported, 1 added, 0 changed, 0 destroyed.\n".into(),
            "Apply complete! Resources: 0 added, 0 changed, 0 destroyed. Actions: 1 invoked.\n"
                .into(),
        ] {
            assert!(read(&output).is_complete(), "{output}");
        }
        for output in [
            format!("terraform_data.a (local-exec): {line}\n"),
            format!("\x1b[0m\x1b[1mterraform_data.a (local-exec):\x1b[0m \x1b[0m{line}\n"),
            format!("  {line}\n"),
            format!("{line} Or is it?\n"),
            format!("{line}\n\nError: Failed to save state\n"),
            format!("Error: local-exec provisioner error\n\nOutput: x\n{line}\n"),
            format!("\u{2502} {line}\n"),
            "Apply complete! Resources: 1 added, 0 chan".into(),
            "Apply complete! Resources: .\n".into(),
        ] {
            assert!(!read(&output).is_complete(), "{output}");
        }
    }

    #[test]
    fn tool_that_says_nothing_or_was_killed_has_not_failed_by_itself() {
        for (output, by_itself) in [
            ("\u{2502} Error: creating EC2 Instance: InsufficientInstanceCapacity\n", true),
            ("Error: creating EC2 Instance: InsufficientInstanceCapacity\n", true),
            ("{\"@level\":\"error\",\"@message\":\"Error: creating EC2 Instance\"}\n", true),
            (
                "Error: local-exec provisioner error\n\nError running command 'x': signal: killed. Output: \n",
                true,
            ),
            ("a_b.c: Creating...\nKilled\n", false),
            ("{\"@level\":\"info\",\"@message\":\"a_b.c: Creating...\"}\n", false),
            (
                "Error: first try\n* Failed to execute \"terraform apply\" in .\n  signal: killed\n",
                false,
            ),
            ("Error: Failed to save state\n", true),
        ] {
            assert_eq!(read(output).has_failed_by_itself(), by_itself, "{output}");
        }
    }

    /// Output of terraform 1.11.4.
    #[test]
    fn refusal_of_a_state_is_found_among_any_number_of_errors() {
        let many = "Error: creating x\n\nbecause\n\n".repeat(200);
        let save = "Error: Failed to save state\n\nError saving state: HTTP error: 403\n\n";
        let written = "Error: Failed to persist state to backend\n\nThe error shown above has prevented Terraform \
             from writing the updated\nstate to the configured backend. To allow for recovery, the state has \
             been\nwritten to the file \"errored.tfstate\" in the current working directory.\n";
        let printed = "\u{2577}\n\u{2502} Error: Failed to create local state file\n\u{2502} \n\u{2502} Error \
             creating local state file for recovery: no space left on device\n\u{2575}\n";
        for (output, refusal) in [
            (format!("{many}{save}{written}"), Some(Refusal::Written)),
            (format!("\x1b[31m{save}\x1b[0m"), Some(Refusal::Written)),
            (format!("{save}{printed}{written}"), Some(Refusal::Printed)),
            ("terraform_data.a (local-exec): Error: Failed to save state\n".into(), None),
            ("local_file.a: Creating errored.tfstate\n".into(), None),
            (many, None),
        ] {
            assert_eq!(read(&output).refusal, refusal, "{output}");
        }
    }
}
