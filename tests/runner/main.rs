//! The runner, as a process.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up should panic")]

mod aws;
mod burrito;
mod real_layer;
mod redaction;
mod state_server;
mod stored_run;
mod terragrunt;

/// Plans and applies, and what is stored of them.
mod run {
    mod apply;
    pub(crate) mod apply_once;
    mod file_locks;
    mod full_disk;
    mod output_streams;
    mod overlap;
    mod plan;
    mod plan_file;
    pub(crate) mod plan_origin;
    mod scratch_directory;
    mod summary;
    mod unsaved_state;
    mod unsent_files;
    mod upload;
}

/// What check and converge do, once and again and again.
mod converge {
    mod approval;
    mod aws_provider;
    mod check;
    mod every;
    mod hooks;
    mod job_pod;
    mod manifests;
    mod metrics_file;
    mod policy;
    mod without_state;
}

/// What `runner destroy` does.
mod destroy {
    mod approval;
    mod state;
}

/// The tool of a layer, and the migration to another one.
mod migrate {
    mod interrupted;
    mod layer_tool;
    mod migration;
    mod refusals;
    mod tofu;
}

/// Steps that fail.
mod failure {
    pub(crate) mod apply_retries;
    mod aws_provider;
    mod existing;
    mod exit_codes;
    mod http_backend;
    mod messages;
    mod resources;
    mod retries;
}

/// Policies, and what `runner policy test` says.
mod policy {
    mod conftest;
    mod docs;
    mod test_command;
}

/// Runs, shown to people.
mod show {
    mod attempt;
    mod logs;
    mod runs;
    mod terminal;
}

/// What a plan is bound to, and its snapshot.
mod binding {
    mod absolute_paths;
    mod aws_provider;
    mod document;
    mod each_compare;
    pub(crate) mod elsewhere;
    mod modules;
    mod named_files;
    mod newest_plan;
    mod other_state;
    mod outside_files;
    mod plan_inputs;
    mod renderings;
    pub(crate) mod snapshot;
    mod snapshot_files;
}

/// Signals, kills and a datastore that does not respond.
mod interruption {
    mod datastore_responses;
    mod dying_datastore;
    mod each_moment;
    mod earlier_creates;
    mod killed_runner;
    mod killed_tool;
    mod ledger;
    mod limits;
    mod lock_probe;
    mod orphaned_tool;
    mod signals;
    mod silent_datastore;
    mod terragrunt_signals;
    mod unsaved_states;
}

/// Leases of layers, and states in the datastore under them.
mod layers {
    mod dependants;
    mod example;
    mod graph;
    mod inputs;
    mod needs;
    mod pair;
}

mod lease {
    mod exclusion;
    mod layers;
    mod loss;
    mod rights;
    mod stale_lock;
    mod state;
}

/// The code of a run.
mod source {
    mod archives;
    mod called_modules;
    pub(crate) mod checkout;
    mod dumb_http;
    mod git_server;
    mod git_url;
    mod hcl;
    mod interrupted_git;
    mod lfs;
    mod ordered_revision;
    mod places;
    mod read_only;
    mod slow_git;
    mod sparse;
    pub(crate) mod submodules;
    mod work_dir;
}

/// Where states are: in the datastore, in files, in Secrets.
mod state {
    mod clones;
    mod files;
    mod ignored_files;
    mod kubernetes;
    mod local_states;
    mod machines;
    mod refused;
    mod snapshots;
    mod without_state;
}

/// Versions, downloads, verification and mirrors.
mod release {
    pub(crate) mod concurrent_installs;
    mod install;
    mod install_environment;
    mod installed_tools;
    mod keys;
    mod mirror_fill;
    mod mirrors;
    mod prune;
    pub(crate) mod resolve;
    mod site_faults;
    mod tenv_remote_yaml;
}

/// Arguments, environment and error messages.
mod cli {
    mod classify;
    mod doctor;
    mod environment;
    mod error_messages;
    mod last_line;
    mod output_files;
    mod plan_binding;
    mod preflight;
    mod usage_errors;
}

const RUNNER: &str = env!("CARGO_BIN_EXE_runner");

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}
