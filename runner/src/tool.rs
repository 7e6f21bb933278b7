//! The arguments, the output and the files of terraform, tofu and terragrunt.

pub(crate) mod argv;
pub(crate) mod cli_args;
pub(crate) mod cli_config;
pub(crate) mod declared_backend;
pub(crate) mod diagnosis;
pub(crate) mod diagnostics;
pub(crate) mod file_names;
pub(crate) mod import_file;
pub(crate) mod path_dir;
pub(crate) mod preflight;
pub(crate) mod sensitive;
pub(crate) mod state_file;
pub(crate) mod terragrunt;
pub(crate) mod waiting;
