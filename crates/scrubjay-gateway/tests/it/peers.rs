//! The bridge with real servers.
