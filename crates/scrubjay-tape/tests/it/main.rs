//! Properties of whole, torn, damaged and forged tapes.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod crash;
mod damage;
mod failure;
mod fixture;
mod follow;
mod forged;
mod home;
mod hostile;
mod modes;
#[path = "../../../../tests/random.rs"]
mod random;
mod redaction;
mod retention;
mod rotation;
mod roundtrip;
mod selection;
mod syncs;
mod tampering;
mod undelivered;
mod versions;
