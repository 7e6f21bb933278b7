//! How the tool below a terragrunt has ended that has itself ended with exit code 0: terragrunt can ignore an error of the tool
//! (`errors { ignore }`), and leave out a unit (`exclude`, `skip`).

use std::io::{self, BufRead};

use anstream::adapter::strip_str;

use crate::tool::diagnostics::apply_end::APPLIED;
use crate::tool::diagnostics::each_line;
use crate::tool::diagnostics::line::Line;

/// Terragrunt's message that it ignores an error, of the tool or of a hook.
const IGNORES: &str = "Ignoring error, reason:";
/// The beginnings of terragrunt's messages that it leaves out a unit: `exclude`, and `skip` of older versions.
const LEFT_OUT: [&str; 2] = ["Early exit in terragrunt unit ", "Skipping terragrunt module "];

/// What an output shows of the tool below terragrunt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below {
    /// The tool says that it has applied.
    says_applied: bool,
    /// The tool has printed an error, and has not said after it that it has applied.
    has_error: bool,
    ignores: bool,
    /// Terragrunt's message that it leaves out the unit or ignores an error.
    pub(crate) message: Option<String>,
}

impl Below {
    /// Reads the output of a step to its end, in bounded memory.
    pub(crate) fn read(output: impl BufRead) -> io::Result<Self> {
        let mut below = Self::default();
        each_line(output, |line| below.line(&strip_str(line).to_string()))?;
        Ok(below)
    }

    /// Whether terragrunt has ignored the failure of this step. The failure of a hook is none: the tool has done its work.
    pub(crate) fn hides_failure(&self, step: &str) -> bool {
        self.ignores
            && match step {
                "apply" => !self.says_applied || self.has_error,
                // A tool that was killed has left no plan, which is found out there.
                "plan" => self.has_error,
                _ => true,
            }
    }

    /// Whether the tool says that it has applied.
    pub(crate) fn says_applied(&self) -> bool {
        self.says_applied
    }

    /// A line without escape codes.
    fn line(&mut self, line: &str) {
        // What a provisioner prints.
        if line.contains("-exec): ") {
            return;
        }
        if APPLIED.iter().any(|words| line.contains(words)) {
            (self.says_applied, self.has_error) = (true, false);
        }
        let text = Line::parse(line).text;
        let message = text.strip_prefix("\u{2502} ").unwrap_or(text);
        // With the tool's option `-json` it is a level.
        self.has_error |=
            message.starts_with("Error: ") || text.starts_with("{\"@level\":\"error\"");
        let ignores = line.contains(IGNORES);
        self.ignores |= ignores;
        let at = LEFT_OUT.iter().find_map(|words| line.find(words));
        if let Some(at) = at.or_else(|| line.find(IGNORES)) {
            self.message = Some(line[at..].trim_end().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPLY: &str = "Apply complete! Resources: 1 added, 0 changed, 0 destroyed.\n";
    const ERROR: &str =
        "\u{2577}\n\u{2502} Error: local-exec provisioner error\n\u{2502} \n\u{2575}\n";

    fn read(output: &str) -> Below {
        Below::read(output.as_bytes()).unwrap()
    }

    #[test]
    fn ignored_error_of_the_tool_is_a_failure_in_every_format_of_the_log() {
        for ignoring in [
            "11:51:25.705 WARN   Ignoring error, reason: my words\n",
            "{\"time\":\"x\", \"level\":\"warn\", \"msg\":\"Ignoring error, reason: my words\"}\n",
            "WARN[0000] Ignoring error, reason: \n",
            "time=x level=warn msg=Ignoring error, reason: my words\n",
            "warn Ignoring error, reason: my words\n",
        ] {
            let failed = read(&format!("a.b: Creating...\n{ERROR}{ignoring}"));
            for step in ["plan", "apply", "import"] {
                assert!(failed.hides_failure(step), "{ignoring}");
            }
            let killed = read(&format!("a.b: Creating...\n{ignoring}"));
            assert!(killed.hides_failure("apply"), "{ignoring}");
            // That of a hook before it.
            let other = read(&format!("{APPLY}{ERROR}{ignoring}"));
            assert!(other.hides_failure("apply"), "{ignoring}");
            assert!(failed.message.unwrap().starts_with("Ignoring error, reason:"));
        }
    }

    #[test]
    fn ignored_error_of_a_hook_is_no_failure_of_the_tool() {
        let ignoring = "11:51:25.705 WARN   Ignoring error, reason: my words\n";
        assert!(!read(&format!("{APPLY}{ignoring}")).hides_failure("apply"));
        assert!(!read(&format!("Plan: 1 to add\n{ignoring}")).hides_failure("plan"));
        // Tries that failed, before one that succeeded.
        assert!(!read(&format!("{ERROR}{APPLY}{ignoring}")).hides_failure("apply"));
        assert!(!read(&format!("{ERROR}{APPLY}")).hides_failure("apply"));
        let printed = "terraform_data.b (local-exec): Ignoring error, reason: x\n";
        assert!(!read(&format!("{printed}{ERROR}")).hides_failure("plan"));
    }

    #[test]
    fn unit_that_is_left_out_has_applied_nothing() {
        for (output, message) in [
            (
                "11:54:05.028 INFO   Early exit in terragrunt unit /a/b due to exclude block with no_run = true\n",
                "Early exit in terragrunt unit /a/b due to exclude block with no_run = true",
            ),
            (
                "11:54:04.494 INFO   Skipping terragrunt module ./terragrunt.hcl due to skip = true.\n",
                "Skipping terragrunt module ./terragrunt.hcl due to skip = true.",
            ),
        ] {
            let below = read(output);
            assert_eq!(below.message.as_deref(), Some(message));
            assert!(!below.says_applied() && !below.hides_failure("apply"), "{below:?}");
        }
        assert!(read(APPLY).says_applied());
        let json = "{\"@level\":\"info\",\"@message\":\"Apply complete! Resources: 1 added\"}\n";
        assert!(read(json).says_applied());
    }
}
