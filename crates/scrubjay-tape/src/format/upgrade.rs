//! Reads older tapes: one step for each version turns entries of version n into entries of version n + 1.
//!
//! Steps are never edited or removed, so that every tape ever written can be opened. Tapes are not rewritten: the steps
//! run as entries are read.

use scrubjay_core::entry::Entry;

use super::header::VERSION;

/// Turns an entry of one version into one of the next.
pub(crate) type UpgradeStep = for<'a> fn(Entry<'a>) -> Entry<'a>;

/// The step at index n turns version n + 1 into version n + 2.
const STEPS: [UpgradeStep; VERSION as usize - 1] = [];

/// Returns the steps that a tape of this version needs.
#[must_use]
pub(crate) fn steps_from(version: u16) -> &'static [UpgradeStep] {
    STEPS.get(usize::from(version.max(1)) - 1..).unwrap_or(&[])
}

/// Brings an entry up to date.
#[must_use]
pub fn apply<'a>(steps: &[UpgradeStep], entry: Entry<'a>) -> Entry<'a> {
    steps.iter().fold(entry, |entry, step| step(entry))
}

#[cfg(test)]
mod tests {
    use scrubjay_core::entry::{Direction, EntryKind, Terminator, Transport};

    use super::*;

    #[test]
    fn steps_run_in_order_from_the_version_of_the_tape() {
        fn double(entry: Entry<'_>) -> Entry<'_> {
            Entry { since_start_ns: entry.since_start_ns * 2, ..entry }
        }
        fn add_one(entry: Entry<'_>) -> Entry<'_> {
            Entry { since_start_ns: entry.since_start_ns + 1, ..entry }
        }
        let entry = Entry {
            kind: EntryKind::Message,
            direction: Direction::ClientToServer,
            transport: Transport::Stdio,
            terminator: Terminator::Lf,
            wall_ns: 0,
            since_start_ns: 5,
            processing_ns: 0,
            via: None,
            connection: 0,
            operation: None,
            rule_marks: scrubjay_core::entry::RuleMarks::default(),
            payload: &b""[..],
        };
        assert_eq!(apply(&[double, add_one], entry).since_start_ns, 11);
        assert!(steps_from(VERSION).is_empty());
    }
}
