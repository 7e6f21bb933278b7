//! The datastore over HTTP, in this process and as a program.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up should panic")]

mod artifacts;
mod auth;
mod bundles;
mod burrito;
mod changed;
mod claims;
mod client;
mod clouds;
mod cluster;
mod commands;
mod cut;
mod deploy;
mod disk;
mod endurance;
mod faults;
mod gc;
mod http;
mod hung;
mod limits;
mod logs;
mod metrics;
mod namespaces;
mod openapi;
mod plans;
mod probe;
mod process;
mod runs;
mod seal;
mod service;
mod shares;
mod tenants;
mod tls;
mod transfer;
