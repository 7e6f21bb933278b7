//! Any entries as an archive that is the source of a run, whole and damaged.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u8, u16, Vec<(u8, &[u8], &[u8], &[u8])>)| {
    runner::fuzz::source_archive(&input.2, input.0, input.1);
});
