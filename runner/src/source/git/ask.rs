//! Questions of `runner doctor` to git. It never asks for a password.

use std::ffi::OsString;
use std::path::Path;

use crate::cli::Environment;
use crate::process;
use crate::source::git::command::program;
use crate::source::git::reason::reason_of;
use crate::source::git::source::GitSource;

/// Runs git in a directory and returns its output; the error is its reason.
pub(crate) async fn ask(dir: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    ask_with(dir, args, Vec::new()).await
}

impl GitSource {
    /// Asks the repository for its HEAD, with the credentials of the URL; the error is git's reason.
    pub(crate) async fn ask(&self, environment: &Environment) -> Result<Vec<u8>, String> {
        let args = ["ls-remote", "--quiet", "--", self.url(), "HEAD"];
        ask_with(Path::new("."), &args, self.git_credentials(environment)).await
    }
}

async fn ask_with(
    dir: &Path,
    args: &[&str],
    credentials: Vec<(String, OsString)>,
) -> Result<Vec<u8>, String> {
    let env = [
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "false"),
        ("SSH_ASKPASS", "false"),
        ("SSH_ASKPASS_REQUIRE", "force"),
        ("LC_ALL", "C"),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), OsString::from(value)));
    let env = env.into_iter().chain(credentials).collect();
    match process::output(&program(dir, args, env)).await {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => Err(reason_of(&String::from_utf8_lossy(&output.stderr), output.status)),
        Err(error) => Err(error.to_string()),
    }
}
