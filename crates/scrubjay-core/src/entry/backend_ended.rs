//! The note that a connection to a backend is over: how the backend ended, and the last lines of its standard error.
//!
//! The gateway writes it on its tapes. Readers learn from it which requests will never be answered.

use serde::{Deserialize, Serialize};

/// The `event` of the note.
const EVENT: &str = "backend_ended";

/// How a backend ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendEnded {
    /// The backend.
    pub backend: String,
    /// The number of the connection to it.
    #[serde(default)]
    pub connection: u32,
    /// Why, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Its exit status, if it exited by itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<i32>,
    /// The last lines of its standard error.
    #[serde(default)]
    pub stderr: Vec<String>,
    /// How many calls it left unanswered.
    #[serde(default)]
    pub calls: u64,
}

#[derive(Serialize, Deserialize)]
struct Note<E> {
    event: E,
    #[serde(flatten)]
    ended: BackendEnded,
}

impl BackendEnded {
    /// Returns the payload of the note.
    #[must_use]
    pub fn note(&self) -> Vec<u8> {
        let note = Note { event: EVENT, ended: self.clone() };
        serde_json::to_vec(&note).expect("an end is plain data")
    }

    /// Reads the payload of a note; `None` if the note is about something else.
    #[must_use]
    pub fn from_note(payload: &[u8]) -> Option<Self> {
        let note: Note<String> = serde_json::from_slice(payload).ok()?;
        (note.event == EVENT).then_some(note.ended)
    }

    /// Describes how it ended, without its standard error, so that ends of one kind have one text and can be counted.
    #[must_use]
    pub fn how(&self) -> String {
        match (self.status, self.signal) {
            (Some(status), _) => format!("backend {} ended: exit status {status}", self.backend),
            (None, Some(signal)) => format!("backend {} ended: signal {signal}", self.backend),
            (None, None) => match &self.why {
                Some(why) => format!("backend {} ended: {why}", self.backend),
                None => format!("backend {} ended", self.backend),
            },
        }
    }

    /// Returns the last line of its standard error that is not blank.
    #[must_use]
    pub fn last_words(&self) -> Option<&str> {
        self.stderr.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty())
    }

    /// Describes it in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.last_words() {
            Some(line) => format!("{} — {line}", self.how()),
            None => self.how(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_round_trips_and_describes_the_end() {
        let mut ended = BackendEnded {
            backend: "files".to_owned(),
            connection: 2,
            why: None,
            status: Some(1),
            signal: None,
            stderr: vec!["starting".to_owned(), " no such folder".to_owned(), String::new()],
            calls: 3,
        };
        assert_eq!(BackendEnded::from_note(&ended.note()), Some(ended.clone()));
        assert_eq!(ended.describe(), "backend files ended: exit status 1 — no such folder");
        (ended.status, ended.signal) = (None, Some(9));
        ended.stderr.clear();
        assert_eq!(ended.describe(), "backend files ended: signal 9");
        ended.signal = None;
        assert_eq!(ended.describe(), "backend files ended");
        ended.why = Some("it was not used for a while".to_owned());
        assert_eq!(ended.describe(), "backend files ended: it was not used for a while");
        assert_eq!(BackendEnded::from_note(br#"{"event":"task_routed","backend":"files"}"#), None);
    }
}
