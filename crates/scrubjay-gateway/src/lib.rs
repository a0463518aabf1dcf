//! Moves messages between hosts and servers, and records each before it moves.
//!
//! The relay works on raw bytes, and parses a message only if it must answer one itself. Deliberately absent: typed
//! protocol models, which drop and rewrite what they do not know, and databases.

pub mod backend;
pub mod bridge;
pub mod budget;
mod child;
mod client_message;
pub mod config;
pub mod debug;
pub mod definitions;
pub mod delivery;
pub mod front;
pub mod gateway;
mod listener;
mod mirrored_headers;
mod notice;
mod own_info;
pub mod pipe;
pub mod profile_store;
mod record_first;
pub mod relay;
mod ruled_line;
mod rules_in_force;
pub mod session;
pub mod tree;
pub mod warden;
pub mod wrap;
