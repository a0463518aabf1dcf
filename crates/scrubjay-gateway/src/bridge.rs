//! Servers behind Streamable HTTP, as streams of lines.
//!
//! A line written is a message POSTed; what the server answers or says by itself comes back as lines. Texts
//! pass as they are: only an error without an id gets the id of the request it answers. Deliberately absent:
//! redirects, cookies, proxies from the environment, and any credential but the configured headers.

mod client;
pub mod endpoint;
mod exchange;
pub mod http;
mod mirrored;
mod outgoing;
mod refusal;
mod sse;
mod waiting;
