//! The note that recorded messages did not reach their receiver, and why.
//!
//! A message is on tape before it is sent, so its own entry cannot say whether it was delivered. A later note names the
//! entries in ranges. A message that no note names was handed to the operating system.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::TapeId;

/// The `event` of the note.
const EVENT: &str = "undelivered";

/// The most ranges of one note that are read: a tape may come from anywhere.
const RANGES_MAX: usize = 65_536;

/// Why a message did not reach its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WhyUndelivered {
    /// The client closed its stream or ended before the message was sent.
    ClientLeft,
    /// The client did not read for so long that others would have had to wait.
    ClientDidNotRead,
    /// A limit on what may wait for the receiver was reached.
    DroppedByLimit,
    /// The server or backend closed its stream or ended before the message was sent.
    ServerLeft,
    /// The server could not be connected to.
    ServerUnreachable,
    /// The recorder stopped before the message was sent.
    Stopped,
}

impl WhyUndelivered {
    /// Returns the words that are written to the tape.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClientLeft => "client left",
            Self::ClientDidNotRead => "client did not read",
            Self::DroppedByLimit => "dropped by limit",
            Self::ServerLeft => "server left",
            Self::ServerUnreachable => "server unreachable",
            Self::Stopped => "recorder stopped",
        }
    }
}

impl fmt::Display for WhyUndelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Messages that did not reach their receiver, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undelivered {
    /// Why, in words.
    pub why: String,
    /// How many messages.
    pub messages: u64,
    /// Their entries, as ranges: the first and the last of each.
    #[serde(default)]
    pub entries: Vec<(u64, u64)>,
    /// The tape of those entries; `None` if it is the one with this note.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tape: Option<TapeId>,
}

#[derive(Serialize, Deserialize)]
struct Note<E> {
    event: E,
    #[serde(flatten)]
    undelivered: Undelivered,
}

impl Undelivered {
    /// Returns the payload of the note.
    #[must_use]
    pub fn note(&self) -> Vec<u8> {
        let note = Note { event: EVENT, undelivered: self.clone() };
        serde_json::to_vec(&note).expect("ranges are plain data")
    }

    /// Reads the payload of a note; `None` if the note is about something else.
    #[must_use]
    pub fn from_note(payload: &[u8]) -> Option<Self> {
        // Every note is checked and few are of this kind, so most are not parsed.
        let mentions = payload.windows(EVENT.len()).any(|part| part == EVENT.as_bytes());
        let note: Note<String> = mentions.then(|| serde_json::from_slice(payload).ok()).flatten()?;
        let mut undelivered = note.undelivered;
        undelivered.entries.retain(|(first, last)| first <= last);
        undelivered.entries.truncate(RANGES_MAX);
        (note.event == EVENT).then_some(undelivered)
    }

    /// Describes it in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        const RANGES_SHOWN: usize = 8;
        let range = |(first, last): &(u64, u64)| {
            if first == last { first.to_string() } else { format!("{first}–{last}") }
        };
        let shown: Vec<String> = self.entries.iter().take(RANGES_SHOWN).map(range).collect();
        let more = if self.entries.len() > RANGES_SHOWN { ", …" } else { "" };
        let which = match (&self.tape, shown.is_empty()) {
            (_, true) => String::new(),
            (None, false) => format!(" (entries {}{more})", shown.join(", ")),
            (Some(tape), false) => format!(" (entries {}{more} of tape {})", shown.join(", "), tape.short()),
        };
        format!("undelivered: {}, {} messages{which}", self.why, self.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_round_trips_and_names_its_entries() {
        let undelivered = Undelivered {
            why: WhyUndelivered::ClientLeft.to_string(),
            messages: 6,
            entries: vec![(3, 7), (9, 9)],
            tape: None,
        };
        assert_eq!(Undelivered::from_note(&undelivered.note()), Some(undelivered.clone()));
        assert_eq!(undelivered.describe(), "undelivered: client left, 6 messages (entries 3–7, 9)");
        assert_eq!(Undelivered::from_note(br#"{"event":"session","session":"undelivered"}"#), None);
        assert_eq!(Undelivered::from_note(b"undelivered"), None);
    }

    #[test]
    fn a_reversed_range_is_dropped() {
        let note = br#"{"event":"undelivered","why":"x","messages":1,"entries":[[9,3],[4,4]]}"#;
        assert_eq!(Undelivered::from_note(note).map(|read| read.entries), Some(vec![(4, 4)]));
    }
}
