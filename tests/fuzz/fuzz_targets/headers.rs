//! Any `Range`, list of entity tags and `Repr-Digest`, of an object of any size.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u64, &str)| datastore::fuzz::headers(input.1, input.0));
