//! The vocabulary of a tape: which way a message went, over what, and how its line ended.
//!
//! Shared by the relay that makes entries and the store that keeps them. How an entry is laid out in a
//! file is the store's business.

mod backend_ended;
mod rule_marks;
mod session_moved;
mod undelivered;

use serde::{Deserialize, Serialize};

pub use backend_ended::BackendEnded;
pub(crate) use rule_marks::add_line;
pub use rule_marks::{NAME_BYTES_MAX, RuleEffects, RuleMarks, is_name};
pub use session_moved::SessionMoved;
pub use undelivered::{Undelivered, WhyUndelivered};

/// Which way a message travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the host's side towards the server.
    ClientToServer,
    /// From the server's side towards the host.
    ServerToClient,
}

impl Direction {
    /// Returns the way an answer travels.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::ClientToServer => Self::ServerToClient,
            Self::ServerToClient => Self::ClientToServer,
        }
    }
}

/// What carried a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Newline-framed pipes.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// A toolset inside this process.
    Memory,
}

/// How a line ended on the wire, kept so that the bytes can be given back exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Terminator {
    /// A line feed.
    Lf,
    /// A carriage return and a line feed.
    Crlf,
    /// The stream ended first.
    Eof,
}

impl Terminator {
    /// Returns the bytes that ended the line.
    #[must_use]
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::Crlf => b"\r\n",
            Self::Eof => b"",
        }
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A message, payload as it was on the wire.
    Message,
    /// A line the server wrote to its standard error.
    Stderr,
    /// A line beyond the limit: payload is an [`crate::oversize::Oversize`] as JSON.
    Oversize,
    /// Messages that could not be recorded: payload is a [`Gap`] as JSON.
    Gap,
    /// The connection's end: payload is an [`End`] as JSON.
    End,
    /// Something worth knowing that is not a message: payload is JSON with an `event`.
    Note,
    /// The message of the next entry as it came, before rules changed it.
    Original,
}

/// One entry of a tape: one that was read, or with another type of payload one to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a, P = &'a [u8]> {
    /// What it is.
    pub kind: EntryKind,
    /// Which way it went.
    pub direction: Direction,
    /// What carried it.
    pub transport: Transport,
    /// How its line ended.
    pub terminator: Terminator,
    /// Nanoseconds since the Unix epoch, by the wall clock.
    pub wall_ns: u64,
    /// Nanoseconds since the tape began, by the monotonic clock.
    pub since_start_ns: u64,
    /// Nanoseconds from the arrival of the message to its append.
    pub processing_ns: u32,
    /// The backend, for a message between the gateway and one; none between the client and the gateway.
    pub via: Option<&'a str>,
    /// Which connection to that backend: ids of one say nothing about another. 0 where the tape does not tell.
    pub connection: u32,
    /// The operation of the client that a message to or from a backend belongs to: the entry that began it.
    pub operation: Option<u64>,
    /// What rules did to it.
    pub rule_marks: RuleMarks<'a>,
    /// The message (or line, or JSON facts), without its line ending.
    pub payload: P,
}

impl<'a, P> Entry<'a, P> {
    /// Returns the same entry with another payload.
    #[must_use]
    pub fn with_payload<Q>(self, payload: Q) -> Entry<'a, Q> {
        Entry {
            kind: self.kind,
            direction: self.direction,
            transport: self.transport,
            terminator: self.terminator,
            wall_ns: self.wall_ns,
            since_start_ns: self.since_start_ns,
            processing_ns: self.processing_ns,
            via: self.via,
            connection: self.connection,
            operation: self.operation,
            rule_marks: self.rule_marks,
            payload,
        }
    }
}

/// A stretch in which recording failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// How many messages are missing.
    pub messages: u64,
    /// How many bytes those messages had.
    pub bytes: u64,
    /// Whether the missing messages were forwarded all the same.
    pub forwarded: bool,
    /// When recording first failed, nanoseconds since the Unix epoch.
    pub since_wall_ns: u64,
    /// What the system said.
    pub reason: String,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Which side ended it, in a few words.
    pub reason: String,
    /// The server's exit code, where it exited by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    /// The signal that ended the server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// The tape on which the connection goes on, where this one was full.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub continues_on: Option<crate::id::TapeId>,
}
