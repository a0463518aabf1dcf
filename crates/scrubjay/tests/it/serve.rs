//! `scrubjay serve` from outside: what clients of both eras meet at its fronts, and what is on its tapes.

mod conformance;
mod conversations;
mod debug;
mod eras;
mod front;
mod http;
mod keeping;
mod listen;
mod peers;
mod proxy;
mod recorder_peers;
mod redaction;
mod refusals;
mod remote;
mod rig;
mod route;
mod rules;
mod selection;
mod tape;
mod tapes;
mod tapes_peers;
mod upstream;
