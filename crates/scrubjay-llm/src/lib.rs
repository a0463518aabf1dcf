//! The one client of OpenAI-compatible chat completions: summaries, stories and routing ask through it.
//!
//! A call has a deadline, few retries and a bounded answer. The key goes into one header and nowhere else.
//! The wording of a request and the meaning of an answer are the caller's business.

mod client;
mod config;
mod reply;
mod request;
mod retry;
#[cfg(feature = "scripted")]
pub mod scripted;
mod transport;

pub use client::{Client, LlmError};
pub use config::{LlmConfig, LlmConfigError};
pub use reply::{ChatReply, MalformedReply, ToolCall};
pub use request::{ChatRequest, Message, Tool};
pub use scrubjay_http::Secret;
