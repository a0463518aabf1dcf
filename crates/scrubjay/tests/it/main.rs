//! Drives the built program from outside, as a host, a person or a crash would.

mod peers;
mod serve;
