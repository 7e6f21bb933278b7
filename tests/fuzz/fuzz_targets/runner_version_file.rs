//! Any bytes as every kind of version file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runner::fuzz::version_file(bytes));
