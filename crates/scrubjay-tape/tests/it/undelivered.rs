//! Undelivered messages: few notes name them, with the right tape and the right entries.

mod failed_sync;
mod failed_write;
mod later;

use scrubjay_core::entry::{Direction, EntryKind, Terminator, Undelivered, WhyUndelivered};
use scrubjay_tape::clock;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Item, Policy, RecordError, Recording};

use crate::fixture::{end, home, read, recording, scratch};

const S: Direction = Direction::ServerToClient;

fn try_say(recording: &mut Recording, text: &str) -> Result<u64, RecordError> {
    let item = Item::new(EntryKind::Message, S, Terminator::Lf, text.as_bytes());
    recording.record(clock::now(), std::iter::once(item))
}

fn say(recording: &mut Recording, text: &str) -> u64 {
    try_say(recording, text).unwrap()
}

fn in_order(home: &Home) -> Vec<Tape> {
    let mut tapes: Vec<Tape> = home.list().unwrap().iter().map(|file| home.open(file).unwrap()).collect();
    tapes.sort_by_key(|tape| tape.header().unwrap().part);
    tapes
}

/// Returns the messages that the notes of all tapes name, in order, and how many notes there are.
fn noted(tapes: &[Tape]) -> (Vec<String>, usize) {
    let (mut named, mut notes) = (Vec::new(), 0);
    for tape in tapes {
        for (_, entry) in read(tape) {
            let Some(note) = Undelivered::from_note(&entry.payload) else { continue };
            notes += 1;
            let on = note.tape.unwrap_or(tape.header().unwrap().id);
            let on = tapes.iter().find(|tape| tape.header().unwrap().id == on).unwrap();
            let entries = read(on);
            let count: u64 = note.entries.iter().map(|(first, last)| last - first + 1).sum();
            assert_eq!(count, note.messages, "{note:?}");
            for (first, last) in note.entries {
                for number in first..=last {
                    let (_, entry) = entries.iter().find(|(n, _)| *n == number).unwrap();
                    assert_eq!(entry.kind, EntryKind::Message);
                    named.push(String::from_utf8(entry.payload.clone()).unwrap());
                }
            }
        }
    }
    named.sort();
    (named, notes)
}

#[test]
fn many_messages_make_few_notes_that_name_each_once() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, u64::MAX);
    let mut expected = Vec::new();
    for number in 0..5000 {
        let text = format!("message {number:05}");
        let entry = say(&mut recording, &text);
        if number % 7 != 0 {
            recording.mark_undelivered(entry..entry + 1, WhyUndelivered::ClientLeft);
            expected.push(text);
        }
    }
    recording.finish(&end()).unwrap();
    let tapes = in_order(&home);
    let (named, notes) = noted(&tapes);
    assert_eq!(named, expected);
    assert!((2..=30).contains(&notes), "{notes}");
    let sum = tapes[0].undelivered().unwrap();
    assert_eq!(sum.messages, expected.len() as u64);
    for (number, entry) in read(&tapes[0]) {
        let is_marked =
            entry.kind == EntryKind::Message && expected.contains(&String::from_utf8(entry.payload).unwrap());
        assert_eq!(sum.why(number).is_some(), is_marked, "{number}");
    }
}

#[test]
fn a_message_on_an_earlier_tape_is_named_with_its_tape() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 400);
    let numbers: Vec<u64> = (0..40).map(|n| say(&mut recording, &format!("message {n:02}"))).collect();
    let expected: Vec<String> = [1, 2, 3, 20, 39].iter().map(|n| format!("message {n:02}")).collect();
    for n in [1, 2, 3, 20, 39] {
        recording.mark_undelivered(numbers[n]..numbers[n] + 1, WhyUndelivered::DroppedByLimit);
    }
    recording.finish(&end()).unwrap();
    let tapes = in_order(&home);
    assert!(tapes.len() > 3, "{}", tapes.len());
    assert_eq!(noted(&tapes).0, expected);
}

#[test]
fn a_message_of_a_finished_recording_is_named_on_the_next_one() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut first = recording(&home, u64::MAX);
    let entry = say(&mut first, "too late");
    let late = first.entry_ref(entry);
    first.finish(&end()).unwrap();
    let mut second = recording(&home, u64::MAX);
    second.mark_entry_undelivered(&late, WhyUndelivered::ClientLeft);
    second.finish(&end()).unwrap();
    let tapes = in_order(&home);
    assert_eq!(tapes.len(), 2);
    assert_eq!(noted(&tapes).0, ["too late"]);
}

#[test]
fn a_buffered_message_is_named_once_it_is_written() {
    let scratch = scratch();
    let home = home(&scratch);
    let policy = Policy { buffer_max: Some(10), ..Policy::default() };
    let mut recording = recording(&home, u64::MAX).with_policy(&policy);
    let mut expected = Vec::new();
    for number in 0..55 {
        let text = format!("message {number:02}");
        let entry = say(&mut recording, &text);
        if number % 3 == 0 {
            recording.mark_undelivered(entry..entry + 1, WhyUndelivered::ClientDidNotRead);
            expected.push(text);
        }
    }
    recording.finish(&end()).unwrap();
    assert_eq!(noted(&in_order(&home)).0, expected);
}

/// A tape becomes full while messages for it are still in memory.
#[test]
fn a_buffered_message_is_named_on_the_tape_it_is_written_to() {
    let scratch = scratch();
    let home = home(&scratch);
    let policy = Policy { buffer_max: Some(7), ..Policy::default() };
    let mut recording = recording(&home, 1500).with_policy(&policy);
    let mut expected = Vec::new();
    for number in 0..120 {
        let text = format!("message {number:03}");
        let entry = say(&mut recording, &text);
        if number % 2 == 0 {
            recording.mark_undelivered(entry..entry + 1, WhyUndelivered::ClientDidNotRead);
            expected.push(text);
        }
    }
    recording.finish(&end()).unwrap();
    let tapes = in_order(&home);
    assert!(tapes.len() > 2, "{}", tapes.len());
    assert_eq!(noted(&tapes).0, expected);
}

/// A client leaves while many messages are buffered. If marking were quadratic in their number, this would take
/// minutes.
#[test]
fn every_second_of_many_buffered_messages_is_marked() {
    let scratch = scratch();
    let home = home(&scratch);
    let policy = Policy { buffer_max: Some(100_000), ..Policy::default() };
    let mut recording = recording(&home, u64::MAX).with_policy(&policy);
    let numbers: Vec<u64> = (0..60_000).map(|_| say(&mut recording, "a message")).collect();
    for number in numbers.iter().step_by(2) {
        recording.mark_undelivered(*number..number + 1, WhyUndelivered::ClientLeft);
    }
    recording.finish(&end()).unwrap();
    assert_eq!(in_order(&home)[0].undelivered().unwrap().messages, 30_000);
}

#[test]
fn messages_that_are_not_kept_need_no_note() {
    let scratch = scratch();
    let home = home(&scratch);
    let policy = Policy { enabled: false, ..Policy::default() };
    let mut recording = recording(&home, u64::MAX).with_policy(&policy);
    let entry = say(&mut recording, "nothing");
    recording.mark_undelivered(entry..entry + 1, WhyUndelivered::ClientLeft);
    recording.finish(&end()).unwrap();
    assert!(in_order(&home).is_empty());
}
