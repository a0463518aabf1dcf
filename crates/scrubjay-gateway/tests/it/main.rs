//! Integration tests of the gateway with real sockets, processes and peers, and with errors in all of them.

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
