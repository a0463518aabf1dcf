//! The gateway's rooms with real sockets, real processes and real peers, and everything that can go wrong
//! between them.

mod apart;
mod asking;
mod bad_backends;
mod bridge;
mod fourteen;
mod gateway_peers;
mod handles;
mod misrouting;
#[path = "../../../../tests/needs.rs"]
mod needs;
mod own_toolsets;
mod peers;
mod rig;
mod ruled;
mod scripted;
mod simulation;
mod stopping;
