//! The arguments and the output of terraform, tofu and terragrunt.

pub(crate) mod argv;
pub(crate) mod diagnostics;
pub(crate) mod path_dir;
pub(crate) mod provider_mirror;
pub(crate) mod terragrunt;
