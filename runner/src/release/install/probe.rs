//! The version that a program prints.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::process::{self, Program};
use crate::release::error::ReleaseError;
use crate::version::{ToolName, Version};

/// The output of `version -json`; `OpenTofu` uses the same key.
#[derive(serde::Deserialize)]
struct Answer {
    terraform_version: Version,
}

/// Starts a program in `dir` to read its version.
pub(in crate::release) async fn probe(
    path: &Path,
    tool: ToolName,
    dir: PathBuf,
) -> Option<Version> {
    let output = process::output(&asking(path, tool, dir)).await.ok()?;
    printed(output)
}

/// Refuses a new terragrunt of another version. Its publisher signs digests of files without a version in their names, so
/// that a mirror could give an old release for a new one. One that cannot be started here is accepted with a warning.
pub(in crate::release) async fn check_version(
    path: &Path,
    version: &Version,
    url: String,
) -> Result<(), ReleaseError> {
    let program = asking(path, ToolName::Terragrunt, PathBuf::from("/"));
    let output = match process::output_without_variables(&program).await {
        Ok(output) => Some(output),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => None,
        Err(error) => {
            tracing::warn!("the version of {url} is not checked: {error}");
            return Ok(());
        }
    };
    let printed = output.and_then(printed);
    if printed.as_ref() == Some(version) {
        return Ok(());
    }
    let printed = printed.map_or_else(|| "without a version".to_owned(), |own| own.to_string());
    let (tool, version) = (ToolName::Terragrunt, version.to_string());
    Err(ReleaseError::OtherVersion { url, tool, version, printed })
}

/// The program that prints its version.
fn asking(path: &Path, tool: ToolName, dir: PathBuf) -> Program {
    let args: &[&str] = match tool {
        ToolName::Terraform | ToolName::Tofu => &["version", "-json"],
        ToolName::Terragrunt => &["--version"],
    };
    Program {
        path: path.to_owned(),
        args: args.iter().map(Into::into).collect(),
        dir,
        env: vec![("CHECKPOINT_DISABLE".to_owned(), "1".into())],
        // `-lock=false` for all commands would be an error of this one.
        without: &["TF_CLI_ARGS", "TF_CLI_ARGS_version"],
        lock: None,
        forwards: false,
    }
}

/// The version that a program has printed.
fn printed(output: Output) -> Option<Version> {
    if !output.status.success() {
        return None;
    }
    if let Ok(answer) = serde_json::from_slice::<Answer>(&output.stdout) {
        return Some(answer.terraform_version);
    }
    // Terraform before 0.13 has no JSON: `Terraform v0.12.31`. Nor has `terragrunt version v0.98.0`.
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next()?.split_whitespace().find_map(|word| word.parse().ok())
}
