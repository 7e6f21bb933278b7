//! Whether an apply of terragrunt's has failed before terragrunt has started the tool's apply: terragrunt first downloads the
//! source, reads the outputs of dependencies, and runs init.

use std::io::{self, BufRead};
use std::path::Path;

use anstream::adapter::strip_str;

use crate::tool::diagnostics::each_line;

/// How terragrunt begins the message that it cannot download the source.
const DOWNLOAD: &str = "downloading source url ";
/// How it names each command that has failed. In JSON the quote is escaped.
const FAILED: &str = "Failed to execute ";
/// The commands of the tool that come before an apply.
const BEFORE: [&str; 2] = [" init", " output"];

/// What shows that the tool's apply may have begun, in any format of the log: its own lines, those of a provisioner, and that
/// terragrunt has started the tool again, after an error of any command.
const BEGUN: [&str; 9] = [
    ": Creating...",
    ": Modifying...",
    ": Destroying...",
    ": Importing...",
    "-exec): ",
    "Apply complete!",
    "Destroy complete!",
    "Encountered retryable error",
    "eligible for retrying",
];

/// Whether the output of an apply says that only a download, or a command of `tool` before the apply has failed. No doubt is
/// left: nothing shows the apply, and no other command has failed.
pub(crate) fn failed_before_apply(output: impl BufRead, tool: &Path) -> io::Result<bool> {
    let (mut has_failed, mut may_have_begun) = (false, false);
    each_line(output, |line| {
        let line = strip_str(line).to_string();
        may_have_begun |= BEGUN.iter().any(|words| line.contains(words));
        has_failed |= line.contains(DOWNLOAD);
        for (at, _) in line.match_indices(FAILED) {
            let is_before = is_before_apply(&line[at + FAILED.len()..], tool);
            has_failed |= is_before;
            may_have_begun |= !is_before;
        }
    })?;
    Ok(has_failed && !may_have_begun)
}

/// Whether the text begins with a command of the tool, in quotes, that comes before an apply. Terragrunt before 1.0.0 shows the
/// path of the tool as a relative one.
fn is_before_apply(text: &str, tool: &Path) -> bool {
    let text = text.trim_start_matches(['\\', '"']);
    BEFORE.iter().any(|command| {
        let Some((program, rest)) = text.split_once(command) else { return false };
        let is_tool = Path::new(program) == tool
            || !program.contains(char::is_whitespace)
                && Path::new(program)
                    .file_name()
                    .is_some_and(|name| tool.file_name() == Some(name));
        is_tool && rest.starts_with([' ', '"', '\\'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(output: &str) -> bool {
        failed_before_apply(output.as_bytes(), Path::new("/the tools/tofu")).unwrap()
    }

    const INIT: &str =
        "* Failed to execute \"/the tools/tofu init -no-color\" in ./unit\n  \n  Error: x\n";
    const DOWNLOADED: &str = "11:11:11.111 ERROR  downloading source url git::https://host/x.git\n";

    #[test]
    fn failure_of_a_download_or_of_init_is_one_before_the_apply() {
        for output in [
            INIT,
            "* Failed to execute \"../../tools/tofu init\" in ./dep\n",
            "* Failed to execute \"./tofu output -json\" in ./dep\n",
            "{\"level\":\"error\", \"msg\":\"error occurred:\\n\\n* Failed to execute \\\"./tofu init\\\" in ./dep\\n\"}\n",
            DOWNLOADED,
        ] {
            let output = format!("Initializing the backend...\n{output}\nexit status 1\n");
            assert!(failed(&output), "{output}");
        }
    }

    #[test]
    fn apply_that_may_have_begun_has_not_failed_before_it() {
        for output in [
            "",
            "Error: x\n",
            "* Failed to execute \"/the tools/tofu apply -input=false /p\" in .\n",
            // Of hooks.
            "* Failed to execute \"sh -c tofu init\" in .\n",
            "* Failed to execute \"/other tools/tofu init\" in .\n",
            "* Failed to execute \"/the tools/tofu initialize\" in .\n",
        ] {
            assert!(!failed(output), "{output}");
            let both = output.contains("execute").then(|| format!("{INIT}{output}"));
            assert!(both.is_none_or(|both| !failed(&both)), "{output}");
        }
        for begun in [
            "terraform_data.a: Creating...\n",
            "11:11:11.111 STDOUT terraform: a_b.c: Destroying... [id=1]\n",
            "a_b.c: Importing... [id=1]\n",
            "{\"@level\":\"info\",\"@message\":\"a_b.c: Creating...\",\"hook\":{\"resource\":{\"addr\":\"a_b.c\"},\"action\":\"create\"},\"type\":\"apply_start\"}\n",
            "Apply complete! Resources: 0 added, 0 changed, 0 destroyed.\n",
            "custom format: \u{1b}[1ma_b.c: Modifying...\n",
            "a_b.c (local-exec): Executing\n",
            "11:11:11.111 WARN   Encountered retryable error: x\n",
        ] {
            for error in [INIT, DOWNLOADED] {
                assert!(!failed(&format!("{begun}{error}")), "{begun}");
                assert!(!failed(&format!("{error}{begun}")), "{begun}");
            }
        }
    }
}
