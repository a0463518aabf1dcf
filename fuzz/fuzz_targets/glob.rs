//! Passes the inputs of libFuzzer to `scrubjay_fuzz::glob`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scrubjay_fuzz::glob::check(data));
