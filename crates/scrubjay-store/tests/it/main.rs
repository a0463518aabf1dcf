//! What the store promises of its tapes: laws over whole, torn and damaged files.

#![expect(clippy::unwrap_used, reason = "clippy excuses unwraps in test functions but not in what they call")]

mod crash;
mod damage;
mod failure;
mod fixture;
mod follow;
mod home;
mod hostile;
mod modes;
mod rotation;
mod roundtrip;
mod versions;
mod workspace;
