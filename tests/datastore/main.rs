//! The datastore over HTTP, in this process and as a program.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up should panic")]

mod client;
mod encryption;
mod http;
mod ui;

/// Routes: what a request means and what is answered.
mod api {
    mod approvals;
    mod artifacts;
    mod bundles;
    mod burrito_contract;
    mod claims;
    pub(crate) mod documents;
    pub(crate) mod health;
    mod layer_metrics;
    mod live_logs;
    mod logs;
    mod metrics;
    mod openapi;
    mod plans;
    mod requests;
    mod runs;
    pub(crate) mod transfer;
}

/// Who calls, and what the caller may access.
mod access {
    pub(crate) mod authentication;
    pub(crate) mod browser;
    mod kubernetes;
    mod namespaces;
    mod oidc;
    mod rules;
    mod sessions;
    mod tenant_requests;
    pub(crate) mod tenants;
}

/// What people look at: namespaces, layers, and the changes of plans.
mod lists {
    mod changes;
    mod layers;
}

/// Buckets and directories, their faults, and the index of runs.
mod storage {
    pub(crate) mod buckets;
    mod concurrent_creation;
    mod disk;
    mod fuse_program;
    mod get_faults;
    mod hanging_file_system;
    mod hanging_fuse_mount;
    mod kill_and_load;
    mod links;
    mod live_logs;
    pub(crate) mod modified_objects;
    mod probe;
    mod put_faults;
    mod run_index;
    mod unfit_servers;
}

/// States of terraform: the backend `http`, versions, locks and leases.
mod state {
    mod absent;
    mod backend;
    mod commands;
    mod damage;
    pub(crate) mod documents;
    mod first_state;
    mod gc;
    mod history;
    mod kills;
    mod leases;
    mod lock_info;
    pub(crate) mod program;
    mod races;
    mod tenants;
    mod terraform;
    mod uploads;
}

/// Connections, limits, memory and TLS.
mod transport {
    mod connections;
    mod malformed_uploads;
    pub(crate) mod memory;
    mod memory_per_transfer;
    mod persistent_senders;
    mod sizes;
    mod slow_readers;
    mod timeouts;
    pub(crate) mod tls;
}

/// The program: start, stop, and the commands that maintain a storage.
mod program {
    pub(crate) mod commands;
    mod credentials;
    pub(crate) mod deploy;
    mod gc;
    mod listen;
    mod log;
    mod monitoring;
    pub(crate) mod process;
    mod token;
}
