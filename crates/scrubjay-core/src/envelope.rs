//! Reads the outside of a message: what kind it is, whose answer, which method and tool.
//!
//! Total: whatever the bytes are, the answer is an [`Envelope`], with what is wrong with it listed as
//! [`Defect`]s. Nothing is validated beyond what telling messages apart needs, and nothing is rewritten: ids
//! keep their spelling, because a 30-digit id is not a float.

mod parse;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Nesting beyond this is flagged.
pub const DEPTH_MAX: usize = 128;
/// A batch of more messages than this is not looked into.
pub const BATCH_MAX: usize = 1024;

/// A JSON-RPC id, spelled as it was on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JsonId(Box<str>);

impl JsonId {
    /// Takes the raw JSON text of an id.
    #[must_use]
    pub fn from_raw(raw: &str) -> Self {
        Self(raw.into())
    }

    /// Returns the raw JSON text.
    #[must_use]
    pub fn as_raw(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JsonId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Asks for an answer.
    Request,
    /// An answer with a result.
    Response,
    /// An answer with an error.
    Error,
    /// Asks for no answer.
    Notification,
    /// Several messages in one array.
    Batch,
    /// Not JSON-RPC.
    #[default]
    Opaque,
}

/// Which era of the protocol a message shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// `initialize` and sessions.
    Legacy,
    /// Stateless requests that carry their version.
    Modern,
}

/// Something wrong with a message, which was recorded and forwarded all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Defect {
    /// The line was empty.
    Empty,
    /// The line began with a byte order mark.
    ByteOrderMark,
    /// Some bytes are not UTF-8.
    InvalidUtf8,
    /// Not JSON.
    InvalidJson,
    /// JSON, but neither an object nor a batch.
    NotAMessage,
    /// Nested more than [`DEPTH_MAX`] deep.
    TooDeep,
    /// A key of the envelope stood there twice.
    RepeatedKey,
    /// `jsonrpc` is not `"2.0"`.
    WrongVersion,
    /// A request with the id `null`.
    NullId,
    /// An answer with no id.
    MissingId,
    /// An answer with a result and an error.
    ResultAndError,
    /// A batch with nothing in it.
    EmptyBatch,
    /// A batch of more than [`BATCH_MAX`] messages, not looked into.
    LargeBatch,
}

/// The outside of one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope {
    /// What it is.
    pub kind: MessageKind,
    /// Its id, where it has one that is not null.
    pub id: Option<JsonId>,
    /// The method of a request or notification.
    pub method: Option<String>,
    /// The tool, prompt or resource it names.
    pub name: Option<String>,
    /// The era it shows, where it shows one.
    pub era: Option<Era>,
    /// The protocol version it states.
    pub protocol_version: Option<String>,
    /// `clientInfo` or `serverInfo` as raw JSON, where it carries one.
    pub peer_info: Option<String>,
    /// The code of an error.
    pub error_code: Option<i64>,
    /// The message of an error.
    pub error_message: Option<String>,
    /// Whether a result says of itself that the call failed.
    pub is_error: bool,
    /// Whether a result asks for input instead of being one.
    pub input_required: bool,
    /// Size of `params` or `result` as raw JSON.
    pub body_bytes: usize,
    /// What references it to other messages.
    pub references: References,
    /// The messages of a batch.
    pub batch: Vec<Self>,
    /// What is wrong with it.
    pub defects: Vec<Defect>,
}

/// The values by which one message refers to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    /// The token under which a request wants progress, or progress is reported.
    pub progress_token: Option<JsonId>,
    /// The request that a cancellation names.
    pub cancels: Option<JsonId>,
    /// The opaque state that links the rounds of one request.
    pub request_state: Option<String>,
    /// Whether a request answers an earlier demand for input.
    pub answers_input: bool,
    /// The task a message creates, asks about or belongs to.
    pub task: Option<String>,
    /// The listening request that a notification belongs to.
    pub subscription: Option<JsonId>,
}

impl Envelope {
    /// Returns whether this message reports a failure: an error, or a result that says so of itself.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.kind == MessageKind::Error || self.is_error
    }
}
