//! Any text as a version, a constraint and a request.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| runner::fuzz::request(text));
