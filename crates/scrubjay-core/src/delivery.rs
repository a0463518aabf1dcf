//! Which entries of a tape did not reach their receiver: what its notes of undelivered messages add up to.
//!
//! The notes stand behind the entries they name, so whoever shows entries reads the notes first. A tape's footer holds
//! this sum; only a tape without a footer has to be read for it.

use serde::{Deserialize, Serialize};

use crate::entry::Undelivered;

/// So many ranges are kept for one tape; beyond it only the number of messages is right.
const RANGES_MAX: usize = 4096;

/// The undelivered messages of one tape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndeliveredSum {
    /// How many messages, those on earlier tapes of the connection included.
    #[serde(default)]
    pub messages: u64,
    /// The ranges of entries on this tape, in order: the first, the last, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<(u64, u64, String)>,
    /// Whether there are more ranges than that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

impl UndeliveredSum {
    /// Returns whether everything was delivered, as far as the tape tells.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.messages == 0
    }

    /// Returns whether it names every range there is.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// Takes a note.
    pub fn add(&mut self, note: &Undelivered) {
        self.messages = self.messages.saturating_add(note.messages);
        if note.tape.is_none() {
            self.add_ranges(note, RANGES_MAX);
        }
    }

    /// Takes a note with all its ranges, for as long as one tape is looked at.
    pub fn add_whole(&mut self, note: &Undelivered) {
        self.messages = self.messages.saturating_add(note.messages);
        if note.tape.is_none() {
            self.add_ranges(note, usize::MAX);
        }
    }

    fn add_ranges(&mut self, note: &Undelivered, ranges_max: usize) {
        for &(first, last) in &note.entries {
            let at = self.ranges.partition_point(|(begin, ..)| *begin <= first);
            let before = at.checked_sub(1).and_then(|before| self.ranges.get(before));
            let joins =
                before.is_some_and(|(_, end, why)| *why == note.why && end.saturating_add(1) >= first);
            if joins {
                let end = &mut self.ranges[at - 1].1;
                *end = last.max(*end);
            } else if self.ranges.len() < ranges_max {
                self.ranges.insert(at, (first, last, note.why.clone()));
            } else {
                self.is_cut = true;
            }
        }
    }

    /// Returns why an entry was not delivered; none where it was, or where nobody noted otherwise.
    #[must_use]
    pub fn why(&self, entry: u64) -> Option<&str> {
        let at = self.ranges.partition_point(|(first, ..)| *first <= entry);
        // A range that begins before may reach over the next one: tapes of others may say so.
        let before = self.ranges[..at].iter().rev().take(16);
        before.into_iter().find(|(_, last, _)| entry <= *last).map(|(.., why)| why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(why: &str, entries: &[(u64, u64)]) -> Undelivered {
        let messages = entries.iter().map(|(first, last)| last - first + 1).sum();
        Undelivered { why: why.to_owned(), messages, entries: entries.to_vec(), tape: None }
    }

    #[test]
    fn entries_are_found_in_the_ranges_of_all_notes() {
        let mut sum = UndeliveredSum::default();
        sum.add(&note("client left", &[(10, 12), (20, 20)]));
        sum.add(&note("dropped by limit", &[(2, 3), (13, 13)]));
        sum.add(&note("client left", &[(21, 30)]));
        let why = |entry| sum.why(entry).unwrap_or("-");
        assert_eq!((why(1), why(2), why(3), why(4)), ("-", "dropped by limit", "dropped by limit", "-"));
        assert_eq!(
            (why(10), why(12), why(13), why(14)),
            ("client left", "client left", "dropped by limit", "-")
        );
        assert_eq!((why(20), why(25), why(31)), ("client left", "client left", "-"));
        assert_eq!((sum.messages, sum.ranges.len(), sum.is_whole()), (17, 4, true));
    }

    #[test]
    fn ranges_are_limited_and_their_number_is_not() {
        let mut sum = UndeliveredSum::default();
        let scattered: Vec<(u64, u64)> = (0..RANGES_MAX as u64 + 10).map(|n| (n * 2, n * 2)).collect();
        sum.add(&note("client left", &scattered));
        assert_eq!((sum.messages, sum.is_whole()), (RANGES_MAX as u64 + 10, false));
        let mut whole = UndeliveredSum::default();
        whole.add_whole(&note("client left", &scattered));
        assert!(whole.is_whole() && whole.why(RANGES_MAX as u64 * 2 + 2).is_some());
    }

    #[test]
    fn what_is_noted_of_another_tape_is_counted_here_and_shown_there() {
        let mut sum = UndeliveredSum::default();
        sum.add(&Undelivered { tape: Some(crate::id::TapeId::from_random([1; 10])), ..note("x", &[(5, 5)]) });
        assert_eq!((sum.messages, sum.why(5)), (1, None));
    }
}
