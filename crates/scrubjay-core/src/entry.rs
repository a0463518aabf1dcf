//! The entry of a tape: a message with its direction, its transport and its line end.
//!
//! Shared by the relay, which makes entries, and `scrubjay-tape`, which stores them and defines their layout in a file.

mod backend_ended;
mod rule_marks;
mod session_moved;
mod undelivered;

use serde::{Deserialize, Serialize};

pub use backend_ended::BackendEnded;
pub(crate) use rule_marks::add_line;
pub use rule_marks::{RuleEffects, RuleMarks, is_name};
pub use session_moved::SessionMoved;
pub use undelivered::{Undelivered, WhyUndelivered};

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the host's side towards the server.
    ClientToServer,
    /// From the server's side towards the host.
    ServerToClient,
}

impl Direction {
    /// Returns the direction of an answer.
    #[must_use]
    pub fn reversed(self) -> Self {
        match self {
            Self::ClientToServer => Self::ServerToClient,
            Self::ServerToClient => Self::ClientToServer,
        }
    }
}

/// The transport of a message.
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

/// The line end on the wire, stored so that the bytes can be restored exactly.
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
    /// Returns the bytes of the line end.
    #[must_use]
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::Crlf => b"\r\n",
            Self::Eof => b"",
        }
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A message: payload is its line on the wire, redacted.
    Message,
    /// A line the server wrote to its standard error.
    Stderr,
    /// A line beyond the limit: payload is an [`crate::oversize::Oversize`] as JSON.
    Oversize,
    /// Messages that could not be recorded: payload is a [`Gap`] as JSON.
    Gap,
    /// The connection's end: payload is an [`End`] as JSON.
    End,
    /// An event that is not a message: payload is JSON with an `event`.
    Note,
    /// The original of the message in the next entry, before rules changed it.
    Original,
}

/// One entry of a tape. The payload is borrowed bytes when read, and redacted bytes when written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a, P = &'a [u8]> {
    /// Its kind.
    pub kind: EntryKind,
    /// Its direction.
    pub direction: Direction,
    /// Its transport.
    pub transport: Transport,
    /// Its line end.
    pub terminator: Terminator,
    /// Nanoseconds since the Unix epoch, by the wall clock.
    pub wall_ns: u64,
    /// Nanoseconds since the tape began, by the monotonic clock.
    pub since_start_ns: u64,
    /// Nanoseconds from the arrival of the message to its append.
    pub processing_ns: u32,
    /// The backend, for a message between the gateway and a backend; `None` between the client and the gateway.
    pub via: Option<&'a str>,
    /// The number of the connection to that backend, since ids are unique only within one; 0 if the tape does not say.
    pub connection: u32,
    /// The client's operation that a message to or from a backend belongs to: the number of the entry that began it.
    pub operation: Option<u64>,
    /// The effects of rules on it.
    pub rule_marks: RuleMarks<'a>,
    /// The message, or another payload according to the kind, without its line end.
    pub payload: P,
}

impl<'a, P> Entry<'a, P> {
    /// Returns the same entry with another payload.
    #[must_use]
    pub fn with_payload<Q>(self, payload: Q) -> Entry<'a, Q> {
        // Member by member, because `..self` cannot change the type of the payload.
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

/// A gap in a recording, while writing failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The number of missing messages.
    pub messages: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Whether the missing messages were forwarded all the same.
    pub forwarded: bool,
    /// When recording first failed, nanoseconds since the Unix epoch.
    pub since_wall_ns: u64,
    /// The system's error message.
    pub reason: String,
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Which side ended it, in a few words.
    pub reason: String,
    /// The server's exit code, if it exited by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    /// The signal that ended the server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// The tape on which the connection continues, if this one was full.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub continues_on: Option<crate::id::TapeId>,
}
