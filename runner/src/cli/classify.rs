//! The arguments of `runner classify`.

use std::path::PathBuf;

use clap::Args;

/// `runner classify`
#[derive(Debug, Args)]
pub struct ClassifyArgs {
    /// The output of a failed run of terraform, tofu or terragrunt, with its standard error [default: standard input]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Rules that come before the runner's own, as YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Print a JSON document: class, retryable, and the errors with class, address, `import_id`, summary and rule
    #[arg(long)]
    pub json: bool,
    /// Say of each error which rule matched and why
    #[arg(long)]
    pub explain: bool,
}

/// The end of the help.
pub(super) const CLASSIFY_HELP: &str = "\
The first line is the class of the run: lock, config, quota, already_exists, auth, interrupted, transient or unknown, \
the first of these that one of its errors has. A line for each error follows. Retry a run only if --json says \
\"retryable\": true: then all of its errors are transient. The exit code is 0 whatever the class is.

Examples:
  runner classify run.log
  terraform apply 2>&1 | tee run.log | runner classify
  runner logs vpc-apply-x4k2q | runner classify --explain
  runner classify --json run.log | jq -r .class
  runner classify --rules rules.yaml run.log

A file of rules (docs/runner.md has all fields):
  rules:
    - id: our-proxy
      class: transient
      pattern: 'proxy-7\\.example\\.com.*(502|503)'";
