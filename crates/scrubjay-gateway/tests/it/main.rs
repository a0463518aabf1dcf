//! The gateway's rooms with real sockets, real processes and real peers, and everything that can go wrong
//! between them.

mod bridge;
mod bridge_peers;
mod broken_backends;
mod gateway_peers;
mod handles;
mod in_process_toolsets;
mod isolation;
mod misbehaving_backends;
mod misrouting;
#[path = "../../../../tests/needs.rs"]
mod needs;
mod questions;
mod rig;
mod rules;
mod scripted_server;
mod shutdown;
mod simulation;
