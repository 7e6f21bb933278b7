//! Any bytes as a list of versions.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::fuzz::list(bytes));
