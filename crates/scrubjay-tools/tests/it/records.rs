//! The records toolset as agents use it: several clients at once on one data directory.

mod activation;
mod errors;
mod patterns;
mod peer;
mod tools;
