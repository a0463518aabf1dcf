//! Servers behind HTTP, as streams of lines: Streamable HTTP, or the transport that came before it.
//!
//! A line written is a message POSTed; what the server answers or says by itself comes back as lines. Texts
//! pass as they are: only an error without an id gets the id of the request it answers. Deliberately absent:
//! redirects, cookies, proxies from the environment, and any credential but the configured headers.

pub mod endpoint;
mod exchange;
mod first_transport;
pub mod http;
pub(crate) mod mirrored;
pub(crate) mod outgoing;
pub mod received;
mod refusal;
pub(crate) mod sse;
mod waiting;
