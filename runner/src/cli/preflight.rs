//! The argument about credentials.

use clap::{Args, ValueEnum};

/// How the credentials are examined.
#[derive(Clone, Copy, Debug, Args)]
pub struct PreflightArgs {
    /// Examine the credentials of the providers and the backend before init. local: variables and files; what is certain
    /// to fail is refused (exit code 5), and the rest is a warning. online: STS and Vault are asked, too. Not with
    /// terragrunt
    #[arg(
        long,
        env = "PLANCHA_PREFLIGHT",
        help_heading = "Credentials",
        value_name = "MODE",
        default_value = "local"
    )]
    pub preflight: PreflightMode,
}

/// How the credentials are examined before init.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PreflightMode {
    /// Variables and files.
    Local,
    /// Also by requests to the services.
    Online,
    /// Not at all.
    Off,
}
