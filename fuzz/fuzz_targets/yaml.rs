//! Passes the inputs of libFuzzer to `scrubjay_fuzz::yaml`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scrubjay_fuzz::yaml::check(data));
