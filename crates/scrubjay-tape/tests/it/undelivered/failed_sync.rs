//! Undelivered messages after a failed sync with `durability: power`: which are marked, and by which numbers.

use scrubjay_core::entry::{EntryKind, WhyUndelivered};
use scrubjay_core::selection::{SelectionSettings, SelectionStrategy};
use scrubjay_tape::clock;
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Policy, Recording};

use super::{in_order, noted, say};
use crate::fixture::{end, home, read, recording, scratch};
use crate::syncs::{complain, failed, gaps};

fn surviving(home: &Home, tape_bytes_max: u64) -> Recording {
    let mut recording = recording(home, tape_bytes_max);
    recording.survive_power();
    recording
}

fn fail_sync(recording: &mut Recording) {
    let sync = recording.begin_sync(recording.sync_point()).unwrap().expect("something is to be synced");
    recording.end_sync(sync.extent(), failed()).unwrap_err();
}

fn mark(recording: &mut Recording, number: u64) {
    recording.mark_undelivered(number..number + 1, WhyUndelivered::ClientLeft);
}

#[test]
fn an_undelivered_message_on_the_previous_tape_is_named_with_that_tape() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = surviving(&home, u64::MAX);
    let kept = [say(&mut recording, "kept 1"), say(&mut recording, "kept 2")];
    recording.sync().unwrap();
    let refused = [say(&mut recording, "refused 1"), say(&mut recording, "refused 2")];
    fail_sync(&mut recording);
    let after =
        [say(&mut recording, "after 1"), say(&mut recording, "after 2"), say(&mut recording, "after 3")];
    recording.sync().unwrap();
    assert!(after[0] > refused[1], "a number is given once");
    for number in [kept[1], refused[0], refused[1], after[2]] {
        mark(&mut recording, number);
    }
    recording.finish(&end()).unwrap();
    let tapes = in_order(&home);
    assert_eq!((tapes.len(), noted(&tapes).0), (2, vec!["after 3".to_owned(), "kept 2".to_owned()]));
}

/// The first tape is removed with its entries; their numbers must not name entries of the next tape.
#[test]
fn marking_a_truncated_message_names_no_other() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = surviving(&home, u64::MAX);
    let refused = say(&mut recording, "refused");
    fail_sync(&mut recording);
    say(&mut recording, "after");
    recording.sync().unwrap();
    mark(&mut recording, refused);
    recording.finish(&end()).unwrap();
    assert_eq!(noted(&in_order(&home)), (vec![], 0));
}

#[test]
fn a_note_that_was_not_synced_is_written_again() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = surviving(&home, u64::MAX);
    let numbers = [say(&mut recording, "one"), say(&mut recording, "two"), say(&mut recording, "three")];
    recording.sync().unwrap();
    numbers.iter().for_each(|number| mark(&mut recording, *number));
    say(&mut recording, "refused");
    fail_sync(&mut recording);
    recording.finish(&end()).unwrap();
    let tapes = in_order(&home);
    assert_eq!(noted(&tapes).0, ["one", "three", "two"]);
    assert_eq!(home.undelivered(&tapes[0]).unwrap().messages, 3);
}

/// More is written during a long sync. If the next sync fails, notes that the first one covered are not repeated.
#[test]
fn a_synced_note_is_not_written_again() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = surviving(&home, u64::MAX);
    let number = say(&mut recording, "refused");
    fail_sync(&mut recording);
    recording.note_gap(1, 7, false, &recording_error());
    mark(&mut recording, number);
    let number = say(&mut recording, "kept");
    complain(&mut recording, "nobody waits for this, and it is synced");
    mark(&mut recording, number);
    let sync = recording.begin_sync(recording.sync_point()).unwrap().unwrap();
    say(&mut recording, "refused meanwhile");
    recording.end_sync(sync.extent(), sync.run()).unwrap();
    fail_sync(&mut recording);
    say(&mut recording, "after");
    recording.finish(&end()).unwrap();
    let tapes = in_order(&home);
    assert_eq!(noted(&tapes).0, ["kept"]);
    let all: Vec<_> = tapes.iter().flat_map(read).map(|(_, entry)| entry).collect();
    assert_eq!(gaps(&all), [(1, false)]);
}

fn recording_error() -> scrubjay_tape::recording::RecordError {
    scrubjay_tape::recording::RecordError { path: "tape".into(), source: failed().unwrap_err() }
}

#[test]
fn repeated_sync_failures_keep_the_link_to_the_previous_tape() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = surviving(&home, u64::MAX);
    say(&mut recording, "kept");
    recording.sync().unwrap();
    for _ in 0..3 {
        say(&mut recording, "refused");
        fail_sync(&mut recording);
    }
    say(&mut recording, "after");
    recording.sync().unwrap();
    recording.finish(&end()).unwrap();
    let tapes = in_order(&home);
    assert_eq!(tapes.len(), 2);
    let (first, header) = (tapes[0].header().unwrap(), tapes[1].header().unwrap());
    assert_eq!((header.continues, header.part), (Some(first.id), 2));
    let previous = header.links.previous.as_ref().expect("it names the end of the tape before");
    assert_eq!((previous.tape, previous.entries), (first.id, 1));
    assert_eq!(Some(&previous.digest), tapes[0].footer().unwrap().digest.as_ref());
}

/// The next tape names the end of a full one including its notes, so these must survive a loss of power.
#[test]
fn the_notes_of_a_full_tape_are_synced_before_the_next_one_names_them() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = surviving(&home, 2000);
    let number = say(&mut recording, "kept");
    let second = say(&mut recording, "kept as well");
    recording.sync().unwrap();
    // The first is noted at once, the second waits for more.
    mark(&mut recording, number);
    mark(&mut recording, number + 1);
    mark(&mut recording, second);
    let settled = recording.sync_point();
    say(&mut recording, &"long ".repeat(500));
    assert!(recording.begin_sync(settled).unwrap().is_none(), "what is on the full tape was synced");
    recording.sync().unwrap();
    recording.finish(&end()).unwrap();
    assert_eq!(in_order(&home).len(), 2);
}

/// Moves the data directory away while a function runs, so that the sync of a tape's name fails.
fn without_directory<T>(home: &Home, run: impl FnOnce() -> T) -> T {
    let away = home.root().with_extension("away");
    std::fs::rename(home.root(), &away).unwrap();
    let done = run();
    std::fs::rename(&away, home.root()).unwrap();
    done
}

/// Makes a recording that buffers or selects; its tape has only a note, and its name was never synced.
fn with_tape(home: &Home, policy: &Policy) -> Recording {
    let mut over = recording(home, u64::MAX);
    let number = say(&mut over, "of a recording that is over");
    let late = over.entry_ref(number);
    over.finish(&end()).unwrap();
    let mut recording = surviving(home, u64::MAX).with_policy(policy);
    recording.mark_entry_undelivered(&late, WhyUndelivered::ClientLeft);
    assert!(recording.tape().is_some());
    recording
}

/// Returns the messages recorded after [`with_tape`], and those that the notes of all tapes name.
fn messages_and_notes(home: &Home) -> (Vec<String>, Vec<String>) {
    home.seal_abandoned().unwrap();
    let tapes = in_order(home);
    assert!(tapes.iter().all(|tape| verify(tape).unwrap().is_sound()));
    let messages = tapes.iter().flat_map(read).filter(|(_, entry)| entry.kind == EntryKind::Message);
    let messages = messages.map(|(_, entry)| String::from_utf8(entry.payload).unwrap());
    (messages.filter(|text| !text.contains("is over")).collect(), noted(&tapes).0)
}

#[test]
fn a_buffer_whose_sync_fails_is_written_again_and_its_marks_name_it() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = with_tape(&home, &Policy { buffer_max: Some(100), ..Policy::default() });
    let numbers: Vec<u64> = (0..5).map(|n| say(&mut recording, &format!("message {n}"))).collect();
    without_directory(&home, || recording.flush(clock::now()).unwrap_err());
    assert_eq!(recording.tape_position(numbers[1]), None, "it is on no tape");
    mark(&mut recording, numbers[1]);
    recording.note_gap(1, 2, false, &recording_error());
    recording.flush(clock::now()).unwrap();
    assert!(recording.tape_position(numbers[1]).is_some());
    mark(&mut recording, numbers[3]);
    recording.finish(&end()).unwrap();
    let (messages, noted) = messages_and_notes(&home);
    let expected: Vec<String> = (0..5).map(|n| format!("message {n}")).collect();
    assert_eq!(messages, expected);
    assert_eq!(noted, ["message 1", "message 3", "of a recording that is over"]);
}

#[test]
fn a_failed_sync_refuses_the_new_message_and_keeps_forwarded_ones() {
    let scratch = scratch();
    let home = home(&scratch);
    let strategy = SelectionStrategy::ErrorFocused { before: 2, after: 0 };
    let selection = SelectionSettings { strategy, ..SelectionSettings::default() };
    let mut recording = with_tape(&home, &Policy { selection, ..Policy::default() });
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#;
    let asked = say(&mut recording, request);
    let refused = without_directory(&home, || super::try_say(&mut recording, error).unwrap_err());
    recording.note_gap(1, 9, false, &refused);
    mark(&mut recording, asked);
    let second = say(&mut recording, error);
    mark(&mut recording, second);
    recording.finish(&end()).unwrap();
    let (messages, noted) = messages_and_notes(&home);
    assert_eq!(messages, [request, error]);
    let mut expected = ["of a recording that is over", error, request];
    expected.sort_unstable();
    assert_eq!(noted, expected);
}
