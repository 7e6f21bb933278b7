//! The runner, as a process.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up should panic")]

mod apply;
mod burrito;
mod checkout;
mod faults;
mod install;
mod keys;
mod killed;
mod machine;
mod mirrors;
mod odd;
mod plan;
mod refusals;
mod remote;
mod resolve;
mod signals;
mod stored;
mod stress;

const RUNNER: &str = env!("CARGO_BIN_EXE_runner");

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}
