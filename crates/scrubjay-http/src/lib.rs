//! The HTTP client through which Scrubjay reaches servers and models, and the type of the secrets it sends.
//!
//! HTTP/1.1 over TCP or TLS (rustls with the system's roots), with a connection pool. Deliberately absent:
//! redirects, cookies, retries, and proxies from the environment. Requests, deadlines and the reading of bodies
//! are the callers' business.

mod client;
mod secret;

pub use client::{Client, SendError, root_cause};
pub use secret::Secret;
