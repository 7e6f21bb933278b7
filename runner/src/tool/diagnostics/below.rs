//! How the tool below a terragrunt has ended that has itself ended with exit code 0: terragrunt can ignore an error of the tool
//! (`errors { ignore }`), and leave out a unit (`exclude`, `skip`).
//!
//! Terragrunt names a hook before it runs it, and again if it has failed. An error in between is of the hook, which comes before
//! the tool or after it. Terragrunt does not say that a hook has succeeded: what follows then may be an error of the tool.

use std::io::{self, BufRead};

use anstream::adapter::strip_str;

use crate::tool::diagnostics::apply_end::APPLIED;
use crate::tool::diagnostics::each_line;
use crate::tool::diagnostics::line::Line;

/// Terragrunt's message that it ignores an error, of the tool or of a hook.
const IGNORES: &str = "Ignoring error, reason:";
/// The beginnings of terragrunt's messages that it leaves out a unit: `exclude`, and `skip` of older versions.
const LEFT_OUT: [&str; 2] = ["Early exit in terragrunt unit ", "Skipping terragrunt module "];

/// Terragrunt's message before it runs a hook, at its level `info`, with the hook's name after it.
const RUNS_HOOK: &str = "Executing hook: ";

/// What an output shows of the tool below terragrunt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below {
    /// The tool says that it has applied.
    says_applied: bool,
    /// The tool has printed an error, and has not said after it that it has applied.
    has_error: bool,
    hook: Hook,
    ignores: bool,
    /// Terragrunt's message that it leaves out the unit or ignores an error.
    pub(crate) message: Option<String>,
}

/// The hook of terragrunt to which an error may belong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Hook {
    /// None: an error is the tool's.
    #[default]
    None,
    /// The last one that was started. Whether an error that came since is its own, is known if it fails.
    Started { name: String, has_error: bool },
    /// It has failed, and terragrunt quotes its output, until the next message of terragrunt's.
    Failed,
}

impl Below {
    /// Reads the output of a step to its end, in bounded memory.
    pub(crate) fn read(output: impl BufRead) -> io::Result<Self> {
        let mut below = Self::default();
        each_line(output, |line| below.line(&strip_str(line).to_string()))?;
        below.end_hook();
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
            if let Hook::Started { has_error, .. } = &mut self.hook {
                *has_error = false;
            }
        }
        let Line { text, level, .. } = Line::parse(line);
        self.hook_line(line, text, level.is_some());
        let message = text.strip_prefix("\u{2502} ").unwrap_or(text);
        // With the tool's option `-json` it is a level.
        if text.starts_with("{\"@level\":\"error\"") {
            self.has_error = true;
        } else if message.starts_with("Error: ") {
            match &mut self.hook {
                Hook::None => self.has_error = true,
                Hook::Started { has_error, .. } => *has_error = true,
                Hook::Failed => {}
            }
        }
        let ignores = line.contains(IGNORES);
        self.ignores |= ignores;
        let at = LEFT_OUT.iter().find_map(|words| line.find(words));
        if let Some(at) = at.or_else(|| line.find(IGNORES)) {
            self.message = Some(line[at..].trim_end().to_owned());
        }
    }

    /// Follows the hooks. `text` is that of the line; `is_message`: the line has a prefix of terragrunt's log.
    fn hook_line(&mut self, line: &str, text: &str, is_message: bool) {
        if let Some((_, name)) = text.split_once(RUNS_HOOK) {
            self.end_hook();
            // In JSON a quote ends it.
            let name = name.split('"').next().unwrap_or_default().trim_end().to_owned();
            self.hook = Hook::Started { name, has_error: false };
            return;
        }
        match &self.hook {
            Hook::Started { name, .. } if has_failed(name, text) => self.hook = Hook::Failed,
            // Some formats of the log have no prefix that is known.
            Hook::Failed if is_message || line.contains(IGNORES) => self.hook = Hook::None,
            _ => {}
        }
    }

    /// Counts the error that came since a hook was started: the hook has not failed, so that the error may be the tool's.
    fn end_hook(&mut self) {
        let hook = std::mem::take(&mut self.hook);
        self.has_error |= matches!(hook, Hook::Started { has_error: true, .. });
    }
}

/// Whether terragrunt says that the hook with this name has failed. Before 1.0.0 the message is another one.
fn has_failed(name: &str, text: &str) -> bool {
    // In the box of an error of the tool it is a text of someone else's.
    if text.starts_with('\u{2502}') {
        return false;
    }
    let old = format!("Error running hook {name} with message: ");
    let quotes = ["\"", "\\\""].into_iter();
    let mut new = quotes.flat_map(|quote| {
        let of_hook = |end| format!("Hook {quote}{name}{quote} {end}");
        ["(command: ", "failed to execute: "].map(of_hook)
    });
    text.contains(&old) || new.any(|words| text.contains(&words))
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
            // Without a message about a hook it may be the tool's.
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

    const IGNORING: &str = "11:51:25.705 WARN   Ignoring error, reason: my words\n";
    const BEFORE: &str = "14:32:57.081 INFO   Executing hook: first\n";

    /// Outputs of a hook that prints an error and fails, in formats of the log of 0.72.5 and 1.0.0.
    fn failed_hooks() -> [String; 5] {
        let prints = "Error: UPGRADE FAILED: no\n";
        let pretty = format!("14:32:57.081 INFO   Executing hook: x\n{prints}");
        let json = "{\"level\":\"info\",\"msg\":\"Executing hook: x\"}\n";
        let key_value = "time=x level=info prefix=[a] msg=Executing hook: x\n";
        let old = "Error running hook x with message: Failed to execute \"sh -c y\" in .";
        let failed = "exited with non-zero exit code 3";
        [
            format!("{pretty}14:32:57.082 ERROR  {old}\n{prints}\nexit status 3\n"),
            format!(
                "{pretty}14:32:57.082 ERROR  Hook \"x\" (command: y\n{prints}) {failed}:\n{prints}"
            ),
            format!("{pretty}14:32:57.082 ERROR  Hook \"x\" failed to execute: no memory\n"),
            format!(
                "{json}{prints}{{\"level\":\"error\",\"msg\":\"Hook \\\"x\\\" (command: y) {failed}:\\nError: no\"}}\n"
            ),
            format!("{key_value}{prints}time=x level=error prefix=[a] msg={old}\n{prints}"),
        ]
    }

    #[test]
    fn error_that_a_failed_hook_prints_is_none_of_the_tool() {
        for hook in failed_hooks() {
            for (step, done) in [("apply", APPLY), ("plan", "Plan: 1 to add\n")] {
                for output in [
                    format!("{done}{hook}{IGNORING}"),
                    format!("{BEFORE}{done}{hook}{hook}{IGNORING}"),
                    // That of a command before it.
                    format!("{hook}{IGNORING}{done}"),
                ] {
                    assert!(!read(&output).hides_failure(step), "{output}");
                }
            }
        }
    }

    #[test]
    fn error_of_the_tool_counts_beside_those_of_hooks() {
        let other = "14:32:57.082 ERROR  Error running hook other with message: y\n";
        let quoted = "\u{2502} Error running hook first with message: y\n";
        let json = "{\"@level\":\"error\",\"@message\":\"Error: x\"}\n";
        for hook in failed_hooks() {
            for output in [
                format!("{ERROR}{hook}{IGNORING}"),
                format!("{BEFORE}{ERROR}{hook}{IGNORING}"),
                format!("{hook}{IGNORING}{ERROR}"),
                format!("{hook}{BEFORE}{ERROR}{IGNORING}"),
                format!("{BEFORE}{ERROR}{other}{hook}{IGNORING}"),
                format!("{BEFORE}{ERROR}{quoted}{hook}{IGNORING}"),
                hook.replace("Error: UPGRADE", &format!("{json}Error: UPGRADE")) + IGNORING,
            ] {
                assert!(read(&output).hides_failure("plan"), "{output}");
                assert!(read(&format!("{APPLY}{output}")).hides_failure("apply"), "{output}");
            }
        }
        // A hook that has succeeded, or the tool after it.
        assert!(read(&format!("{APPLY}{BEFORE}{ERROR}{IGNORING}")).hides_failure("apply"));
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
