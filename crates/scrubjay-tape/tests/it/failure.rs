//! If a tape cannot be created, `record` returns the error, and the gap is recorded before the next message.
//!
//! Tests may run as root, whom permissions do not stop, so they put a file in place of the directory.

use std::path::Path;

use scrubjay_core::entry::{Direction, EntryKind, Gap, Terminator};
use scrubjay_tape::clock;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::Item;

use crate::fixture::{Owned, end, read, recording, say, scratch};

fn kinds(entries: &[(u64, Owned)]) -> Vec<EntryKind> {
    entries.iter().map(|(_, entry)| entry.kind).collect()
}

fn gap(entry: &Owned) -> Gap {
    serde_json::from_slice(&entry.payload).unwrap()
}

/// Puts a file where a directory should be, keeping what was there; undone by [`give_back`].
fn take_away(directory: &Path) {
    if directory.exists() {
        std::fs::rename(directory, directory.with_extension("away")).unwrap();
    }
    std::fs::write(directory, "in the way").unwrap();
}

fn give_back(directory: &Path) {
    std::fs::remove_file(directory).unwrap();
    if directory.with_extension("away").exists() {
        std::fs::rename(directory.with_extension("away"), directory).unwrap();
    }
}

#[test]
fn a_gap_is_recorded_before_the_next_message() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    for blocked in [home.root().to_owned(), home.tapes()] {
        let before = clock::now().wall_ns;
        std::fs::create_dir_all(blocked.parent().unwrap()).unwrap();
        take_away(&blocked);
        let mut recording = recording(&home, 1 << 20);
        let first = say(&mut recording, &["one", "two"]).unwrap_err();
        recording.note_gap(2, 6, true, &first);
        let second = say(&mut recording, &["three"]).unwrap_err();
        recording.note_gap(1, 5, true, &second);
        assert!(recording.tape().is_none());
        assert!(recording.session().is_none(), "no session is named after a tape that was not created");
        assert!(second.to_string().contains(&home.tapes().display().to_string()), "{second}");
        give_back(&blocked);

        assert_eq!(say(&mut recording, &["four", "five"]).unwrap(), 1, "the gap is entry 0");
        assert_eq!(say(&mut recording, &["six"]).unwrap(), 3, "the gap is recorded once");
        let path = recording.finish(&end()).unwrap().unwrap();
        let tape = Tape::open(&path).unwrap();
        let entries = read(&tape);
        let message = EntryKind::Message;
        assert_eq!(kinds(&entries), [EntryKind::Gap, message, message, message, EntryKind::End]);
        let gap = gap(&entries[0].1);
        assert_eq!((gap.messages, gap.bytes, gap.forwarded), (3, 11, true));
        assert_eq!(gap.reason, first.source.to_string());
        assert!((before..=clock::now().wall_ns).contains(&gap.since_wall_ns));
        assert_eq!(entries[1].1.payload, b"four");
        assert_eq!(tape.footer().unwrap().metadata.gap_messages, 3);
        assert!(verify(&tape).unwrap().is_sound());
        std::fs::remove_dir_all(home.root()).unwrap();
    }
}

#[test]
fn a_gap_is_recorded_even_without_other_entries() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    take_away(home.root());
    let mut gone = recording(&home, 1 << 20);
    let mut late = recording(&home, 1 << 20);
    for recording in [&mut gone, &mut late] {
        let error = say(recording, &["lost"]).unwrap_err();
        recording.note_gap(1, 4, false, &error);
    }
    gone.finish(&end()).unwrap_err();
    give_back(home.root());
    let path = late.finish(&end()).unwrap().unwrap();
    let entries = read(&Tape::open(&path).unwrap());
    assert_eq!(kinds(&entries), [EntryKind::Gap, EntryKind::End]);
    assert_eq!(gap(&entries[0].1).messages, 1);
    assert!(!gap(&entries[0].1).forwarded);
}

#[test]
fn a_connection_without_messages_leaves_no_files() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    assert!(recording(&home, 1 << 20).finish(&end()).unwrap().is_none());
    assert!(!home.root().exists());
}

#[test]
fn a_removed_data_directory_is_created_again() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut first = recording(&home, 1 << 20);
    say(&mut first, &["before"]).unwrap();
    std::fs::remove_dir_all(home.root()).unwrap();
    let mut second = recording(&home, 1 << 20);
    say(&mut second, &["after"]).unwrap();
    assert_eq!(home.list().unwrap().len(), 1);
    second.finish(&end()).unwrap().unwrap();
    // The first recording still writes to its removed tape, which `finish` reports.
    say(&mut first, &["into the void"]).unwrap();
    first.finish(&end()).unwrap_err();
}

#[test]
fn the_current_tape_grows_if_no_next_one_can_be_created() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 300);
    let sent: Vec<String> = (0..12).map(|n| format!("message number {n}, of some length")).collect();
    for (n, text) in sent.iter().enumerate() {
        match n {
            1 => take_away(&home.tapes()),
            9 => give_back(&home.tapes()),
            _ => {}
        }
        say(&mut recording, &[text]).unwrap();
    }
    recording.finish(&end()).unwrap().unwrap();
    home.seal_abandoned().unwrap();
    let mut tapes: Vec<Tape> = home.list().unwrap().iter().map(|file| home.open(file).unwrap()).collect();
    tapes.sort_by_key(|tape| tape.header().unwrap().part);
    assert!(tapes.len() > 1, "it rotated when it could");
    assert!(tapes.iter().all(|tape| tape.state() == TapeState::Sealed));
    assert_eq!(read(&tapes[0]).len(), 9 + 1, "nine messages and the end");
    let messages: Vec<Vec<u8>> = tapes
        .iter()
        .flat_map(read)
        .filter(|(_, entry)| entry.kind == EntryKind::Message)
        .map(|(_, entry)| entry.payload)
        .collect();
    assert_eq!(messages, sent.iter().map(|text| text.as_bytes()).collect::<Vec<_>>());
    let parts: Vec<u32> = tapes.iter().map(|tape| tape.header().unwrap().part).collect();
    assert_eq!(parts, (1..=u32::try_from(tapes.len()).unwrap()).collect::<Vec<_>>(), "none was skipped");
}

#[test]
fn a_message_too_long_for_a_tape_is_refused_and_recording_continues() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, u64::MAX);
    say(&mut recording, &["before"]).unwrap();
    // Zeroed pages that are never touched take no memory.
    let long = vec![0; 1 << 30];
    let items = [&b"with it"[..], &long]
        .map(|payload| Item::new(EntryKind::Message, Direction::ClientToServer, Terminator::Lf, payload));
    let error = recording.record(clock::now(), items.into_iter()).unwrap_err();
    assert_eq!(error.source.to_string(), "a message of 1073741824 bytes is too long for a tape");
    assert_eq!(say(&mut recording, &["after"]).unwrap(), 1);
    let path = recording.finish(&end()).unwrap().unwrap();
    let payloads: Vec<Vec<u8>> =
        read(&Tape::open(&path).unwrap()).into_iter().map(|(_, e)| e.payload).collect();
    assert_eq!(payloads[..2], [b"before".to_vec(), b"after".to_vec()]);
}
