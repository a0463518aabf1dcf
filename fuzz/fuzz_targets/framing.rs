//! Bytes to `scrubjay_fuzz::framing`, which says what must hold of them.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| scrubjay_fuzz::framing::check(data));
