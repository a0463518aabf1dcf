//! What the selection left out of a tape: counted by reason, and noted on the tape itself.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::units;

/// Why something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOutReason {
    /// A filter or a capture flag excludes it.
    Filter,
    /// It is not in the sample.
    Sample,
    /// The strategy excludes it for how it ended.
    Strategy,
}

/// A number of messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutAmount {
    /// Entries of messages.
    pub messages: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

impl LeftOutAmount {
    fn add(&mut self, other: Self) {
        // An imported tape may contain any numbers.
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// What was left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// By filters and capture flags.
    #[serde(default)]
    pub filter: LeftOutAmount,
    /// By sampling.
    #[serde(default)]
    pub sample: LeftOutAmount,
    /// By the strategy, for how it ended.
    #[serde(default)]
    pub strategy: LeftOutAmount,
}

/// The `event` of the note that records it.
const EVENT: &str = "left_out";

impl LeftOut {
    /// Counts one more.
    pub fn count(&mut self, reason: LeftOutReason, bytes: u64) {
        let amount = match reason {
            LeftOutReason::Filter => &mut self.filter,
            LeftOutReason::Sample => &mut self.sample,
            LeftOutReason::Strategy => &mut self.strategy,
        };
        amount.add(LeftOutAmount { messages: 1, bytes });
    }

    /// Adds another sum.
    pub fn add(&mut self, other: &Self) {
        self.filter.add(other.filter);
        self.sample.add(other.sample);
        self.strategy.add(other.strategy);
    }

    /// Returns the sum over all reasons.
    #[must_use]
    pub fn total(&self) -> LeftOutAmount {
        let mut total = self.filter;
        total.add(self.sample);
        total.add(self.strategy);
        total
    }

    /// Returns whether nothing was left out.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.total().messages == 0
    }

    /// Returns the note that records it on the tape.
    #[must_use]
    pub fn note(&self) -> Value {
        let LeftOutAmount { messages, bytes } = self.total();
        json!({
            "event": EVENT, "messages": messages, "bytes": bytes,
            "filter": self.filter, "sample": self.sample, "strategy": self.strategy,
        })
    }

    /// Reads it from a note; none if the note is about something else.
    #[must_use]
    pub fn from_note(payload: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Note {
            event: String,
            #[serde(flatten)]
            left_out: LeftOut,
        }
        let note: Note = serde_json::from_slice(payload).ok()?;
        (note.event == EVENT).then_some(note.left_out)
    }

    /// Describes it in words; empty if nothing was left out.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.is_nothing() {
            return String::new();
        }
        let reasons = [(self.filter, "filter"), (self.sample, "sample"), (self.strategy, "strategy")];
        let reasons: Vec<String> = reasons
            .iter()
            .filter(|(amount, _)| amount.messages > 0)
            .map(|(amount, reason)| format!("{} by {reason}", amount.messages))
            .collect();
        let LeftOutAmount { messages, bytes } = self.total();
        let messages = units::counted(messages, "message");
        format!("{messages} ({}) left out: {}", units::size(bytes), reasons.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_reads_back() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.describe(), "");
        left_out.count(LeftOutReason::Sample, 1000);
        left_out.count(LeftOutReason::Sample, 215);
        left_out.count(LeftOutReason::Strategy, 5);
        let note = left_out.note().to_string();
        assert_eq!(LeftOut::from_note(note.as_bytes()), Some(left_out));
        assert_eq!(left_out.describe(), "3 messages (1.22 kB) left out: 2 by sample, 1 by strategy");
        assert_eq!(LeftOut::from_note(br#"{"event":"task_routed"}"#), None);
        assert_eq!(LeftOut::from_note(br#"{"event":"left_out","filter":"x"}"#), None);
        let endless = format!(r#"{{"event":"left_out","filter":{{"messages":{0},"bytes":{0}}}}}"#, u64::MAX);
        let mut sum = LeftOut::from_note(endless.as_bytes()).unwrap();
        sum.add(&left_out);
        sum.count(LeftOutReason::Filter, 1);
        assert_eq!(sum.total(), LeftOutAmount { messages: u64::MAX, bytes: u64::MAX });
    }
}
