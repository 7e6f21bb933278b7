//! Questions of `runner doctor` to git. It never asks for a password.

use std::ffi::OsString;
use std::path::Path;

use crate::process;
use crate::source::git::command::program;
use crate::source::git::reason::reason_of;

/// Runs git in a directory and returns its output; the error is its reason.
pub(crate) async fn ask(dir: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    let env = [
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "false"),
        ("SSH_ASKPASS", "false"),
        ("SSH_ASKPASS_REQUIRE", "force"),
        ("LC_ALL", "C"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), OsString::from(value))).to_vec();
    match process::output(&program(dir, args, env)).await {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(reason_of(&String::from_utf8_lossy(&output.stderr), output.status)),
        Err(error) => Err(error.to_string()),
    }
}
