//! Any bytes as a configuration, in HCL and in JSON.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::fuzz::configuration(bytes));
