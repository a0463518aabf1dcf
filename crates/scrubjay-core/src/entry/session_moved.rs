//! The note that a connection is in another session from here on: its agent named one, or began another.
//!
//! A tape's header says which session its connection was in when it began; the last such note says where it is now.

use serde::{Deserialize, Serialize};

/// The `event` of the note.
const EVENT: &str = "session";

/// A connection moved to another session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMoved {
    /// The id of the session.
    pub session: String,
}

#[derive(Serialize, Deserialize)]
struct Note<E> {
    event: E,
    #[serde(flatten)]
    moved: SessionMoved,
}

impl SessionMoved {
    /// Returns the payload of the note.
    #[must_use]
    pub fn note(&self) -> Vec<u8> {
        let note = Note { event: EVENT, moved: self.clone() };
        serde_json::to_vec(&note).expect("a session is plain data")
    }

    /// Reads the payload of a note; `None` if the note is about something else.
    #[must_use]
    pub fn from_note(payload: &[u8]) -> Option<Self> {
        let note: Note<String> = serde_json::from_slice(payload).ok()?;
        (note.event == EVENT).then_some(note.moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back() {
        let moved = SessionMoved { session: "k3f9".to_owned() };
        assert_eq!(SessionMoved::from_note(&moved.note()), Some(moved));
        assert_eq!(SessionMoved::from_note(br#"{"event":"other","session":"x"}"#), None);
        assert_eq!(SessionMoved::from_note(b"no note"), None);
    }
}
