//! The runner, as a process.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up should panic")]

mod apply;
mod burrito;
mod checkout;
mod errored;
mod faults;
mod full_disk;
mod hcl;
mod install;
mod keys;
mod killed;
mod machine;
mod mirrors;
mod odd;
mod orphans;
mod place;
mod plan;
mod plan_file;
mod records;
mod refusals;
mod remote;
mod resolve;
mod signals;
mod silence;
mod stored;
mod stress;
mod submodules;
mod terragrunt;
mod tools;
mod words;

const RUNNER: &str = env!("CARGO_BIN_EXE_runner");

/// Whether there is what a test needs; where everything must run, there has to be.
#[expect(clippy::disallowed_methods, reason = "a variable says whether everything must run")]
#[expect(clippy::print_stderr, reason = "a test that cannot show anything should say so")]
fn can(what: &str, can: bool) -> bool {
    let must = std::env::var("PLANCHA_E2E").is_ok_and(|value| value == "1");
    assert!(can || !must, "{what} cannot be had here");
    if !can {
        eprintln!("not seen here: {what} cannot be had");
    }
    can
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}
