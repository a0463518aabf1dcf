//! The one client of OpenAI-compatible chat completions: summaries, stories and routing ask through it.
//!
//! A call has a deadline, few retries and a bounded answer; the key goes into one header and nowhere else.
//! What is asked, and what an answer means, is the caller's business.

mod client;
mod config;
mod reply;
mod request;
mod retry;
#[cfg(feature = "scripted")]
pub mod scripted;
mod transport;

pub use client::{Client, LlmError, LlmTotals};
pub use config::{LlmConfig, LlmConfigError, Secret};
pub use reply::{ChatReply, ToolCall, Usage};
pub use request::{ChatRequest, Message, Tool, ToolChoice};
