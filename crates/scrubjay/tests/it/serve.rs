//! `scrubjay serve` from outside: what clients of both eras meet at its fronts, and what is on its tapes.

mod conformance;
mod conformance_peers;
mod debug;
mod eras;
mod front;
mod hosts_peers;
mod http;
mod keeping;
mod listen;
mod options;
mod peers;
mod recorder_peers;
mod redaction;
mod reload;
mod remote;
mod rig;
mod roots_peers;
mod route;
mod rules;
mod selection;
mod shutdown;
mod tape;
mod tapes;
mod tapes_peers;
mod toolsets;
