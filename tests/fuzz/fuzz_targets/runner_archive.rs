//! Any bytes as the archive of a release.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::fuzz::archive(bytes));
