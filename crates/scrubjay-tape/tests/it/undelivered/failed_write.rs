//! Undelivered messages after a failed write. A limit on file sizes makes writes fail, in a process of its own.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scrubjay_core::entry::{EntryKind, WhyUndelivered};
use scrubjay_core::selection::{LeftOut, Sampling, SelectionSettings};
use scrubjay_tape::clock;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::Policy;

use super::{in_order, noted, say};
use crate::fixture::{end, read, recording, run_in_a_process_of_its_own, scratch};

const DIRECTORY: &str = "SCRUBJAY_TEST_FAILED_WRITE";

fn run(test: &str) {
    let scratch = scratch();
    let test = format!("undelivered::failed_write::{test}_in_child_process");
    run_in_a_process_of_its_own("trap '' XFSZ", &test, &[(DIRECTORY, scratch.path())]);
}

fn given_home() -> Home {
    let home =
        Home::new(PathBuf::from(std::env::var_os(DIRECTORY).expect("the parent names it")).join("data"));
    home.create().unwrap();
    home
}

/// Limits the size of files; `None` removes the limit.
fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

fn live(home: &Home) -> PathBuf {
    let files = home.list().unwrap();
    files.into_iter().map(|file| file.path).find(|path| path.extension().unwrap() == "live").unwrap()
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn a_failed_flush_does_not_shift_the_entries_that_notes_name() {
    run("flush");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn flush_in_child_process() {
    let home = given_home();
    let policy = Policy { buffer_max: Some(100), ..Policy::default() };
    let mut recording = recording(&home, u64::MAX).with_policy(&policy);
    say(&mut recording, "before");
    recording.flush(clock::now()).unwrap();
    let numbers: Vec<u64> = (0..5).map(|n| say(&mut recording, &format!("message {n}"))).collect();
    limit_files(Some(size(&live(&home))));
    let failed = recording.flush(clock::now()).unwrap_err();
    assert_eq!(recording.tape_position(numbers[3]), None, "it is on no tape");
    recording.mark_undelivered(numbers[3]..numbers[3] + 1, WhyUndelivered::ClientLeft);
    recording.note_gap(1, 1, false, &failed);
    limit_files(None);
    recording.flush(clock::now()).unwrap();
    recording.mark_undelivered(numbers[4]..numbers[4] + 1, WhyUndelivered::ClientLeft);
    recording.finish(&end()).unwrap();
    assert_eq!(noted(&in_order(&home)).0, ["message 3", "message 4"]);
}

#[test]
fn the_left_out_note_moves_to_the_next_tape_if_the_end_cannot_be_written() {
    run("rotation");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn rotation_in_child_process() {
    let home = given_home();
    let selection =
        SelectionSettings { sampling: Sampling::Systematic { interval: 2 }, ..SelectionSettings::default() };
    let mut recording = recording(&home, 8000).with_policy(&Policy { selection, ..Policy::default() });
    let count = 400;
    for number in 0..count {
        say(
            &mut recording,
            &format!(r#"{{"jsonrpc":"2.0","method":"notifications/n","params":{{"n":{number}}}}}"#),
        );
        // A full tape has no room for its end; the next one is short.
        let bytes = size(&live(&home)).max(4000);
        limit_files((bytes > 7000).then_some(8010));
    }
    limit_files(None);
    recording.finish(&end()).unwrap();
    home.seal_abandoned().unwrap();
    let tapes = in_order(&home);
    let entries: Vec<_> = tapes.iter().flat_map(read).map(|(_, entry)| entry).collect();
    let ends = entries.iter().filter(|entry| entry.kind == EntryKind::End).count();
    assert!(tapes.len() > 2 && ends < tapes.len(), "{ends} of {}", tapes.len());
    let messages = entries.iter().filter(|entry| entry.kind == EntryKind::Message).count() as u64;
    let mut left_out = LeftOut::default();
    entries
        .iter()
        .filter_map(|entry| LeftOut::from_note(&entry.payload))
        .for_each(|more| left_out.add(&more));
    assert_eq!(messages + left_out.total().messages, count);
}

#[test]
fn a_tape_with_an_end_entry_has_its_notes() {
    run("finish");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn finish_in_child_process() {
    let home = given_home();
    let mut recording = recording(&home, u64::MAX);
    let numbers: Vec<u64> = (0..900).map(|_| say(&mut recording, "message")).collect();
    // The first notes are written; what is left makes a note that is longer than an end.
    for number in numbers.iter().step_by(2) {
        recording.mark_undelivered(*number..number + 1, WhyUndelivered::ClientLeft);
    }
    limit_files(Some(size(&live(&home)) + 600));
    let path = recording.finish(&end()).unwrap().unwrap();
    limit_files(None);
    let tape = Tape::open(&path).unwrap();
    assert!(tape.undelivered().unwrap().messages < 450, "the last note did not fit");
    assert_eq!(tape.footer().unwrap().end, None, "a tape without its last note must not look complete");
}
