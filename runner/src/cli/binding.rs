//! Arguments that bind an apply to its plan.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What binds an apply to its plan.
#[derive(Clone, Debug, Args)]
pub struct BindingArgs {
    /// Whether a plan stores a snapshot of its working directory in the datastore, and an apply works in its plan's.
    /// auto: yes for a git URL, an archive, a bundle or a read-only directory, if it is complete; an apply uses it for a
    /// git URL of the plan's repository, or where no source is named. Not with terragrunt, nor in Burrito's pods
    #[arg(
        long,
        env = "PLANCHA_SNAPSHOT",
        help_heading = "Binding",
        value_name = "WHEN",
        default_value = "auto"
    )]
    pub snapshot: SnapshotMode,
    /// Sign the plan with this key: Ed25519 (PEM), or a shared secret of at least 32 printable ASCII
    /// characters without spaces
    #[arg(long, env = "PLANCHA_SIGNING_KEY", help_heading = "Binding", value_name = "FILE")]
    pub signing_key: Option<PathBuf>,
    /// Apply only a plan that is signed with this key: the public keys (PEM), or the shared secret
    #[arg(long, env = "PLANCHA_VERIFY_KEY", help_heading = "Binding", value_name = "FILE")]
    pub verify_key: Option<PathBuf>,
}

/// When there is a snapshot of a plan's working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SnapshotMode {
    /// For a git URL, an archive, a bundle or a read-only directory, if it is complete. Not with terragrunt, nor in Burrito's
    /// pods.
    Auto,
    /// In every case. A plan or an apply without one fails, except where the datastore takes no snapshots, and in pods.
    Always,
    /// In no case.
    Never,
}
