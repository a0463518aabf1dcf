//! The envelope of a message: its kind, id, method and tool, without the contents.
//!
//! Total: any bytes have an [`Envelope`], which lists what is wrong as [`Defect`]s. Validates only what is needed to
//! tell messages apart, and rewrites nothing: ids keep their spelling, because a 30-digit id is not a float.

mod parse;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The deepest nesting without a [`Defect::TooDeep`]: the default limit of `serde_json`.
pub const DEPTH_MAX: usize = 128;
/// The most messages of a batch that are parsed. A line can have millions of `{}`, and each envelope takes memory.
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
    /// A request, which has an id and expects an answer.
    Request,
    /// An answer with a result.
    Response,
    /// An answer with an error.
    Error,
    /// A notification, which expects no answer.
    Notification,
    /// Several messages in one array.
    Batch,
    /// Not JSON-RPC.
    #[default]
    Opaque,
}

/// The era of the protocol that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// With `initialize` and sessions.
    Legacy,
    /// With stateless requests that state their version.
    Modern,
}

/// Something wrong with a message. It is recorded and forwarded anyway.
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
    /// A key of the envelope occurs twice.
    RepeatedKey,
    /// `jsonrpc` is not `"2.0"`.
    WrongVersion,
    /// A request with the id `null`.
    NullId,
    /// An answer with no id.
    MissingId,
    /// An answer with a result and an error.
    ResultAndError,
    /// A batch of no messages.
    EmptyBatch,
    /// A batch of more than [`BATCH_MAX`] messages, which are not parsed.
    LargeBatch,
}

/// The envelope of one message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope {
    /// Its kind.
    pub kind: MessageKind,
    /// Its id, unless it is null.
    pub id: Option<JsonId>,
    /// The method of a request or notification.
    pub method: Option<String>,
    /// The tool, prompt or resource it names.
    pub name: Option<String>,
    /// The era, if the message shows it.
    pub era: Option<Era>,
    /// The protocol version it states.
    pub protocol_version: Option<String>,
    /// `clientInfo` or `serverInfo` as raw JSON.
    pub peer_info: Option<String>,
    /// The code of an error.
    pub error_code: Option<i64>,
    /// The message of an error.
    pub error_message: Option<String>,
    /// Whether a result has `isError`.
    pub is_error: bool,
    /// Whether a result asks for input instead of answering.
    pub input_required: bool,
    /// Size of `params` or `result` as raw JSON.
    pub body_bytes: usize,
    /// Its references to other messages.
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
    /// Returns whether this message reports a failure: an error, or a result with `isError`.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.kind == MessageKind::Error || self.is_error
    }
}
