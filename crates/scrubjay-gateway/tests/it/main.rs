//! The gateway's rooms with real sockets and real peers.

mod bridge;
mod peers;
mod scripted;
