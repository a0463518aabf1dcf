//! Which entries of a tape did not reach their receiver: the sum of its notes of undelivered messages.
//!
//! A note comes after the entries it names, so a reader that shows entries needs the notes first. A tape's footer
//! contains this sum; only a tape without a footer has to be read for it. A note may also name entries of an earlier
//! tape, so to show that one, the later tapes are read, too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::entry::Undelivered;
use crate::id::TapeId;

/// The most ranges that are kept for the tape itself, and the most for all other tapes; beyond that only the number of
/// messages is right.
const RANGES_MAX: usize = 4096;

/// Consecutive entries: the first, the last, and why they were not delivered.
type Range = (u64, u64, String);

/// The undelivered messages that the notes on one tape name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndeliveredSum {
    /// The number of messages, including those on other tapes.
    #[serde(default)]
    pub messages: u64,
    /// The ranges of entries on this tape, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<Range>,
    /// The ranges of entries on other tapes, in order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    elsewhere: BTreeMap<TapeId, Vec<Range>>,
    /// Whether ranges were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

impl UndeliveredSum {
    /// Returns whether the tape notes no undelivered message.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.messages == 0
    }

    /// Returns whether it has all ranges of this tape.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is_cut
    }

    /// Returns whether it has all ranges of other tapes: footers of earlier versions do not.
    #[must_use]
    pub fn is_whole_of_others(&self) -> bool {
        let named = messages_in(&self.ranges).saturating_add(self.messages_elsewhere());
        self.is_whole() && self.messages <= named
    }

    /// Adds a note.
    pub fn add(&mut self, note: &Undelivered) {
        self.add_up_to(note, RANGES_MAX);
    }

    /// Adds a note without a limit on ranges, for a sum that lives only while one tape is read.
    pub fn add_whole(&mut self, note: &Undelivered) {
        self.add_up_to(note, usize::MAX);
    }

    fn add_up_to(&mut self, note: &Undelivered, ranges_max: usize) {
        self.messages = self.messages.saturating_add(note.messages);
        let (ranges, known) = match note.tape {
            None => (&mut self.ranges, 0),
            Some(tape) => {
                let known: usize = self.elsewhere.values().map(Vec::len).sum();
                if known >= ranges_max {
                    self.is_cut = true;
                    return;
                }
                let ranges = self.elsewhere.entry(tape).or_default();
                // The limit is on all other tapes together; the ranges of this one are counted again when they are
                // added.
                let of_others = known - ranges.len();
                (ranges, of_others)
            }
        };
        for &(first, last) in &note.entries {
            self.is_cut |= !add_range(ranges, (first, last, &note.why), ranges_max - known);
        }
    }

    /// Leaves out the ranges of other tapes.
    #[must_use]
    pub fn of_this_tape(mut self) -> Self {
        self.messages = self.messages.saturating_sub(self.messages_elsewhere());
        self.elsewhere.clear();
        self
    }

    /// Adds what the notes of another tape say about the entries of this one.
    pub fn add_noted_elsewhere(&mut self, this: TapeId, other: &Self) {
        let ranges = other.elsewhere.get(&this).map(Vec::as_slice).unwrap_or_default();
        for (first, last, why) in ranges {
            add_range(&mut self.ranges, (*first, *last, why), usize::MAX);
        }
        self.messages = self.messages.saturating_add(messages_in(ranges));
    }

    fn messages_elsewhere(&self) -> u64 {
        self.elsewhere.values().fold(0, |sum, ranges| sum.saturating_add(messages_in(ranges)))
    }

    /// Returns why an entry was not delivered; none if no note says that.
    #[must_use]
    pub fn why(&self, entry: u64) -> Option<&str> {
        let at = self.ranges.partition_point(|(first, ..)| *first <= entry);
        // Ranges on imported tapes may overlap, so an earlier one may still contain the entry. Only the last sixteen
        // are checked, so that a lookup stays short.
        let before = self.ranges[..at].iter().rev().take(16);
        before.into_iter().find(|(_, last, _)| entry <= *last).map(|(.., why)| why.as_str())
    }
}

fn messages_in(ranges: &[Range]) -> u64 {
    // Imported tapes may contain any numbers.
    ranges
        .iter()
        .fold(0, |sum, (first, last, _)| sum.saturating_add(last.saturating_sub(*first).saturating_add(1)))
}

/// Inserts a range in order, or extends the one before if they touch and have the same reason; returns whether there
/// was room for it.
fn add_range(ranges: &mut Vec<Range>, (first, last, why): (u64, u64, &str), ranges_max: usize) -> bool {
    let at = ranges.partition_point(|(begin, ..)| *begin <= first);
    let before = at.checked_sub(1).and_then(|before| ranges.get_mut(before));
    if let Some((_, end, _)) =
        before.filter(|(_, end, reason)| reason == why && end.saturating_add(1) >= first)
    {
        *end = last.max(*end);
    } else if ranges.len() < ranges_max {
        ranges.insert(at, (first, last, why.to_owned()));
    } else {
        return false;
    }
    true
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
    fn ranges_are_limited_and_message_counts_are_not() {
        let mut sum = UndeliveredSum::default();
        let scattered: Vec<(u64, u64)> = (0..RANGES_MAX as u64 + 10).map(|n| (n * 2, n * 2)).collect();
        sum.add(&note("client left", &scattered));
        assert_eq!((sum.messages, sum.is_whole()), (RANGES_MAX as u64 + 10, false));
        let mut whole = UndeliveredSum::default();
        whole.add_whole(&note("client left", &scattered));
        assert!(whole.is_whole() && whole.why(RANGES_MAX as u64 * 2 + 2).is_some());
    }

    fn tape(number: u8) -> TapeId {
        TapeId::from_random([number; 10])
    }

    #[test]
    fn a_note_about_another_tape_is_counted_here_and_shown_there() {
        let mut later = UndeliveredSum::default();
        later.add(&note("x", &[(1, 1)]));
        later.add(&Undelivered { tape: Some(tape(1)), ..note("y", &[(5, 7)]) });
        later.add(&Undelivered { tape: Some(tape(2)), ..note("y", &[(5, 5)]) });
        assert_eq!((later.messages, later.why(5), later.is_whole_of_others()), (5, None, true));
        let later: UndeliveredSum = serde_json::from_str(&serde_json::to_string(&later).unwrap()).unwrap();
        let mut first = UndeliveredSum::default();
        first.add(&note("x", &[(2, 2)]));
        first.add_noted_elsewhere(tape(1), &later);
        first.add_noted_elsewhere(tape(3), &later);
        assert_eq!(
            (first.messages, first.why(2), first.why(6), first.why(8)),
            (4, Some("x"), Some("y"), None)
        );
        let later = later.of_this_tape();
        assert_eq!((later.messages, later.why(1)), (1, Some("x")));
    }

    #[test]
    fn an_old_footer_without_other_tapes_is_recognised() {
        let old: UndeliveredSum = serde_json::from_str(r#"{"messages":5,"ranges":[[1,1,"x"]]}"#).unwrap();
        assert!(old.is_whole() && !old.is_whole_of_others());
        let alone: UndeliveredSum = serde_json::from_str(r#"{"messages":1,"ranges":[[1,1,"x"]]}"#).unwrap();
        assert!(alone.is_whole_of_others());
    }

    #[test]
    fn ranges_of_other_tapes_are_limited_together() {
        let mut sum = UndeliveredSum::default();
        let scattered: Vec<(u64, u64)> = (0..RANGES_MAX as u64 / 2 + 1).map(|n| (n * 2, n * 2)).collect();
        for number in 1..=3 {
            sum.add(&Undelivered { tape: Some(tape(number)), ..note("x", &scattered) });
        }
        let kept: usize = sum.elsewhere.values().map(Vec::len).sum();
        assert_eq!((kept, sum.is_whole(), sum.elsewhere.len()), (RANGES_MAX, false, 2));
        assert_eq!(sum.messages, 3 * scattered.len() as u64);
    }

    #[test]
    fn a_range_up_to_the_largest_number_does_not_overflow() {
        let mut sum = UndeliveredSum::default();
        let endless = Undelivered { messages: u64::MAX, entries: vec![(0, u64::MAX)], ..note("x", &[]) };
        sum.add(&endless);
        sum.add(&Undelivered { tape: Some(tape(1)), ..endless });
        assert!(sum.is_whole_of_others());
        assert_eq!(sum.of_this_tape().messages, 0);
    }
}
