//! The gateway inside this process: many backends, many clients, and everything that can go wrong between.

mod bad_backends;
mod hosts;
mod misrouting;
mod rig;
