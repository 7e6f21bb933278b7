//! Any entries as an archive that is the source of a run.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: (bool, Vec<(u8, &[u8], &[u8], &[u8])>)| {
    runner::fuzz::source_archive(&input.1, input.0);
});
