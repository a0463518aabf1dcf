//! Bytes to `scrubjay_fuzz::glob`, which says what must hold of them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scrubjay_fuzz::glob::check(data));
