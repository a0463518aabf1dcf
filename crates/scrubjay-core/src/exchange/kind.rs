//! The types of entries and messages, with their names and the numbers that stand for them in the index.

use serde::{Deserialize, Serialize};

use crate::entry::EntryKind;
use crate::envelope::MessageKind;

/// The type of a message or another entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeKind {
    /// Asks for an answer.
    Request,
    /// An answer with a result.
    Response,
    /// An answer with an error.
    Error,
    /// Asks for no answer.
    Notification,
    /// A batch that cannot be parsed.
    Batch,
    /// Not JSON-RPC.
    Opaque,
    /// A line of standard error.
    Stderr,
    /// A line longer than the limit.
    TooLong,
    /// Messages that are missing.
    Gap,
    /// The end of the connection.
    End,
    /// A note.
    Note,
    /// A message before rules changed it.
    Original,
}

impl ExchangeKind {
    /// All of them, in the order of their codes.
    // The index stores these positions, so a new type goes to the end.
    pub(super) const ALL: [(Self, &str); 12] = [
        (Self::Request, "request"),
        (Self::Response, "response"),
        (Self::Error, "error"),
        (Self::Notification, "notification"),
        (Self::Batch, "batch"),
        (Self::Opaque, "opaque"),
        (Self::Stderr, "stderr"),
        (Self::TooLong, "too_long"),
        (Self::Gap, "gap"),
        (Self::End, "end"),
        (Self::Note, "note"),
        (Self::Original, "original"),
    ];
    /// Their names, for a person.
    pub const NAMES: &'static str = "request, response, error, notification, batch, opaque, stderr, too_long, gap, end, note and original";

    /// Reads a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(what, _)| *what)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns the number that stands for it in the index.
    #[must_use]
    pub fn code(self) -> i64 {
        self as i64
    }

    /// Returns the type with this number.
    #[must_use]
    pub fn of_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|code| Self::ALL.get(code)).map(|(what, _)| *what)
    }

    pub(super) fn of_message(kind: MessageKind) -> Self {
        match kind {
            MessageKind::Request => Self::Request,
            MessageKind::Response => Self::Response,
            MessageKind::Error => Self::Error,
            MessageKind::Notification => Self::Notification,
            MessageKind::Batch => Self::Batch,
            MessageKind::Opaque => Self::Opaque,
        }
    }

    pub(super) fn of_entry(kind: EntryKind) -> Self {
        match kind {
            EntryKind::Message => Self::Opaque,
            EntryKind::Stderr => Self::Stderr,
            EntryKind::Oversize => Self::TooLong,
            EntryKind::Gap => Self::Gap,
            EntryKind::End => Self::End,
            EntryKind::Note => Self::Note,
            EntryKind::Original => Self::Original,
        }
    }
}
