//! Any bytes as the output of terraform, tofu or terragrunt.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::fuzz::diagnostics(bytes));
