//! Any query, to every route.

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| datastore::fuzz::query(text));
