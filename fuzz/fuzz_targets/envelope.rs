//! Passes the inputs of libFuzzer to `scrubjay_fuzz::envelope`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scrubjay_fuzz::envelope::check(data));
