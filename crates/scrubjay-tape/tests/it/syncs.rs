//! Failed syncs with `durability: power`: no message that was refused because of one stays on a tape.

use std::io;

use scrubjay_core::entry::{Direction, EntryKind, Gap, Terminator};
use scrubjay_tape::clock;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Item, Recording};

use crate::fixture::{Owned, end, read, recording, say, scratch};

pub(crate) fn failed() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(5))
}

/// All entries of all tapes, in the order of their parts.
fn taped(home: &Home) -> Vec<Vec<Owned>> {
    home.seal_abandoned().unwrap();
    let mut tapes: Vec<Tape> = home.list().unwrap().iter().map(|file| home.open(file).unwrap()).collect();
    tapes.sort_by_key(|tape| tape.header().unwrap().part);
    assert!(tapes.iter().all(|tape| verify(tape).unwrap().is_sound()));
    tapes.iter().map(|tape| read(tape).into_iter().map(|(_, entry)| entry).collect()).collect()
}

fn payloads(entries: &[Owned]) -> Vec<String> {
    let messages = entries.iter().filter(|entry| entry.kind == EntryKind::Message);
    messages.map(|entry| String::from_utf8(entry.payload.clone()).unwrap()).collect()
}

pub(crate) fn gaps(entries: &[Owned]) -> Vec<(u64, bool)> {
    let gaps = entries.iter().filter(|entry| entry.kind == EntryKind::Gap);
    gaps.map(|entry| serde_json::from_slice(&entry.payload).unwrap())
        .map(|gap: Gap| (gap.messages, gap.forwarded))
        .collect()
}

pub(crate) fn complain(recording: &mut Recording, text: &str) {
    let item = Item::new(EntryKind::Stderr, Direction::ServerToClient, Terminator::Lf, text.as_bytes());
    recording.record(clock::now(), std::iter::once(item)).unwrap();
}

/// Two callers wait for one sync, which fails: both get the error, and neither message is on the tape.
#[test]
fn a_failed_sync_truncates_all_unsynced_entries() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 1 << 20);
    recording.survive_power();
    say(&mut recording, &["kept"]).unwrap();
    recording.sync().unwrap();
    complain(&mut recording, "nobody waits for this");
    say(&mut recording, &["refused one"]).unwrap();
    let first = recording.sync_point();
    let sync = recording.begin_sync(first).unwrap().expect("something is to be synced");
    say(&mut recording, &["refused two", "refused three"]).unwrap();
    let second = recording.sync_point();
    let error = recording.end_sync(sync.extent(), failed()).unwrap_err();
    recording.note_gap(1, 11, false, &error);
    let error = recording.begin_sync(second).unwrap_err();
    assert!(error.to_string().contains("Input/output error"), "{error}");
    recording.note_gap(2, 24, false, &error);
    say(&mut recording, &["goes on"]).unwrap();
    recording.sync().unwrap();
    recording.finish(&end()).unwrap().unwrap();
    let tapes = taped(&home);
    assert_eq!(tapes.iter().map(|tape| payloads(tape)).collect::<Vec<_>>(), [["kept"], ["goes on"]]);
    assert_eq!(gaps(&tapes[1]), [(1, true), (3, false)], "forwarded messages are noted separately");
}

/// The entry of a gap was not synced either, so it is recorded again.
#[test]
fn an_unsynced_gap_is_recorded_again() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 1 << 20);
    recording.survive_power();
    for _ in 0..3 {
        say(&mut recording, &["refused"]).unwrap();
        let sync = recording.begin_sync(recording.sync_point()).unwrap().unwrap();
        let error = recording.end_sync(sync.extent(), failed()).unwrap_err();
        recording.note_gap(1, 7, false, &error);
        assert_eq!(home.list().unwrap().len(), 0, "an empty tape is removed");
    }
    recording.finish(&end()).unwrap().unwrap();
    let tapes = taped(&home);
    assert_eq!((tapes.len(), gaps(&tapes[0])), (1, vec![(3, false)]));
}

/// One sync covers everything recorded before it began; later entries need another.
#[test]
fn one_sync_covers_all_earlier_entries() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 1 << 20);
    recording.survive_power();
    say(&mut recording, &["one"]).unwrap();
    let one = recording.sync_point();
    say(&mut recording, &["two"]).unwrap();
    let two = recording.sync_point();
    let sync = recording.begin_sync(one).unwrap().unwrap();
    say(&mut recording, &["three"]).unwrap();
    recording.end_sync(sync.extent(), sync.run()).unwrap();
    assert!(recording.begin_sync(two).unwrap().is_none());
    assert!(recording.begin_sync(recording.sync_point()).unwrap().is_some());
}

/// A tape that is full during a sync keeps growing until the outcome is known.
#[test]
fn a_tape_is_not_rotated_during_a_sync() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let mut recording = recording(&home, 200);
    recording.survive_power();
    say(&mut recording, &["kept"]).unwrap();
    recording.sync().unwrap();
    say(&mut recording, &["refused, and long enough for the tape to be full"]).unwrap();
    let sync = recording.begin_sync(recording.sync_point()).unwrap().unwrap();
    say(&mut recording, &["refused with it"]).unwrap();
    recording.end_sync(sync.extent(), failed()).unwrap_err();
    say(&mut recording, &["next"]).unwrap();
    recording.sync().unwrap();
    recording.finish(&end()).unwrap().unwrap();
    let on_tape: Vec<String> = taped(&home).iter().flat_map(|tape| payloads(tape)).collect();
    assert_eq!(on_tape.iter().filter(|text| text.starts_with("refused")).count(), 0, "{on_tape:?}");
    assert!(on_tape.contains(&"kept".to_owned()) && on_tape.contains(&"next".to_owned()), "{on_tape:?}");
}
