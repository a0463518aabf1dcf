//! Notes on a later tape about entries of an earlier one: readers of the earlier tape show them.

use scrubjay_core::entry::{EntryKind, WhyUndelivered};
use scrubjay_core::reading::EntryReader;
use scrubjay_tape::format::header::TapeKind;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::Recording;

use super::{in_order, noted, say};
use crate::fixture::{end, home, recording_of, scratch, subject};

/// Returns the messages that a reader of each tape shows as undelivered.
fn shown(home: &Home, tapes: &[Tape]) -> Vec<String> {
    let mut shown = Vec::new();
    for tape in tapes {
        let mut reader: EntryReader = home.reader(tape).unwrap();
        let before = shown.len();
        let mut entries = tape.entries().unwrap();
        while let Some((number, entry)) = entries.next().unwrap() {
            if reader.read_numbered(number, &entry).undelivered.is_some() {
                assert_eq!(entry.kind, EntryKind::Message);
                shown.push(String::from_utf8(entry.payload.to_vec()).unwrap());
            }
        }
        let counted = home.undelivered(tape).unwrap().messages;
        assert_eq!(
            counted,
            (shown.len() - before) as u64,
            "the count must equal the number of shown messages"
        );
    }
    shown.sort();
    shown
}

fn recorded(home: &Home, gateway: Option<&str>, kind: TapeKind, tape_bytes_max: u64) -> Recording {
    let mut subject = subject();
    (subject.gateway, subject.kind) = (gateway.map(str::to_owned), kind);
    recording_of(home, subject, tape_bytes_max)
}

/// A slow client leaves when its messages are on several tapes, the last of which is live.
#[test]
fn notes_on_later_tapes_mark_entries_of_their_own_tape() {
    for gateway in [None, Some("run")] {
        let scratch = scratch();
        let home = home(&scratch);
        let mut recording = recorded(&home, gateway, TapeKind::Conversation, 2000);
        let numbers: Vec<u64> = (0..120).map(|n| say(&mut recording, &format!("message {n:03}"))).collect();
        let expected: Vec<String> = (30..120).map(|n| format!("message {n:03}")).collect();
        for number in &numbers[30..] {
            recording.mark_undelivered(*number..number + 1, WhyUndelivered::ClientLeft);
        }
        recording.finish(&end()).unwrap();
        let tapes = in_order(&home);
        assert!(tapes.len() > 3, "{}", tapes.len());
        assert_eq!(noted(&tapes).0, expected);
        assert_eq!(shown(&home, &tapes), expected);
        // A tape with notes may be missing; the notes of the others are still shown.
        std::fs::remove_file(tapes[tapes.len() - 1].path()).unwrap();
        assert!(shown(&home, &tapes[..tapes.len() - 1]).len() < expected.len());
    }
}

#[test]
fn a_late_note_counts_only_within_the_same_gateway_run() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut first = recorded(&home, Some("run"), TapeKind::Conversation, u64::MAX);
    let refs = ["one", "two", "three"].map(|text| {
        let number = say(&mut first, text);
        first.entry_ref(number)
    });
    first.finish(&end()).unwrap();
    let late = [
        (Some("run"), TapeKind::Late, 0),
        // Notes of unrelated tapes could name any entry, so they are ignored.
        (Some("another run"), TapeKind::Late, 1),
        (Some("run"), TapeKind::Conversation, 2),
    ];
    for (gateway, kind, at) in late {
        let mut late = recorded(&home, gateway, kind, u64::MAX);
        late.mark_entry_undelivered(&refs[at], WhyUndelivered::ClientLeft);
        late.finish(&end()).unwrap();
    }
    let first: Vec<Tape> = in_order(&home)
        .into_iter()
        .filter(|tape| !shown(&home, std::slice::from_ref(tape)).is_empty())
        .collect();
    assert_eq!(shown(&home, &first), ["one"]);
}
