//! Servers on HTTP as streams of lines: Streamable HTTP, or the transport that came before it.
//!
//! Each line that is written is POSTed; answers and other messages of the server come back as lines. Their text is
//! unchanged: only an error without an id gets the id of the request it answers. Deliberately absent:
//! redirects, cookies, proxies from the environment, and any credential but the configured headers.

pub mod endpoint;
mod exchange;
mod first_transport;
pub mod http;
mod mirrored;
mod outgoing;
pub mod received;
mod refusal;
pub(crate) mod sse;
mod unanswered;
