//! Selecting and buffering: which entries are written, in which order and with which times.

use std::time::Duration;

use scrubjay_core::entry::{Direction, EntryKind, RuleEffects, RuleMarks, Terminator};
use scrubjay_core::selection::{AlwaysKept, LeftOut, Sampling, SelectionSettings, SelectionStrategy};
use scrubjay_tape::clock;
use scrubjay_tape::format::header::Compression;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Item, Policy, RecordError, Recording, selection_note};

use crate::fixture::{LEG, Owned, end, home, read, recording, scratch, until_abandoned};
use crate::random::Random;

const C: Direction = Direction::ClientToServer;
const S: Direction = Direction::ServerToClient;

fn selecting(selection: SelectionSettings) -> Policy {
    Policy { selection, ..Policy::default() }
}

fn focused(before: usize, after: usize) -> Policy {
    let strategy = SelectionStrategy::ErrorFocused { before, after };
    selecting(SelectionSettings { strategy, ..SelectionSettings::default() })
}

fn buffering(buffer_max: usize) -> Policy {
    Policy { buffer_max: Some(buffer_max), ..Policy::default() }
}

fn try_hear(recording: &mut Recording, direction: Direction, line: &str) -> Result<u64, RecordError> {
    let item = Item::new(EntryKind::Message, direction, Terminator::Lf, line.as_bytes());
    recording.record(clock::now(), std::iter::once(item))
}

fn record(recording: &mut Recording, direction: Direction, line: &str) -> u64 {
    try_hear(recording, direction, line).unwrap()
}

fn record_backend(recording: &mut Recording, direction: Direction, operation: u64, line: &str) {
    let mut item = Item::new(EntryKind::Message, direction, Terminator::Lf, line.as_bytes());
    (item.via, item.operation) = (Some(LEG), Some(operation));
    recording.record(clock::now(), std::iter::once(item)).unwrap();
}

fn request(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#)
}

fn result(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

fn error(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no"}}}}"#)
}

fn call(recording: &mut Recording, id: u64, ok: bool) {
    record(recording, C, &request(id));
    record(recording, S, &if ok { result(id) } else { error(id) });
}

/// Returns the messages of a tape, and what it notes as left out.
fn messages_and_left_out(entries: &[(u64, Owned)]) -> (Vec<String>, LeftOut) {
    let mut left_out = LeftOut::default();
    let mut messages = Vec::new();
    for (_, entry) in entries {
        match entry.kind {
            EntryKind::Message => messages.push(String::from_utf8(entry.payload.clone()).unwrap()),
            EntryKind::Note => {
                if let Some(more) = LeftOut::from_note(&entry.payload) {
                    left_out.add(&more);
                }
            }
            _ => {}
        }
    }
    (messages, left_out)
}

fn sealed(recording: Recording) -> (Tape, Vec<(u64, Owned)>) {
    let tape = Tape::open(&recording.finish(&end()).unwrap().unwrap()).unwrap();
    let report = verify(&tape).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let entries = read(&tape);
    (tape, entries)
}

/// Returns the entries of the live tape, as a crash would leave them.
fn live(home: &Home) -> Vec<(u64, Owned)> {
    home.list().unwrap().first().map(|file| read(&home.open(file).unwrap())).unwrap_or_default()
}

#[test]
fn nothing_changes_without_a_policy() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20).with_policy(&Policy::default());
    assert_eq!(recording.flush_interval(), None);
    assert_eq!((record(&mut recording, C, &request(1)), record(&mut recording, S, &result(1))), (0, 1));
    assert_eq!(recording.tape_position(1), Some((1, recording.tape().unwrap())));
    let (_, entries) = sealed(recording);
    let kinds: Vec<EntryKind> = entries.iter().map(|(_, entry)| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::Message, EntryKind::Message, EntryKind::End]);
}

#[test]
fn buffered_entries_keep_their_order_and_times() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20).with_policy(&focused(2, 0));
    call(&mut recording, 1, true);
    let asked = record(&mut recording, C, &request(2));
    record_backend(&mut recording, C, asked, &request(77));
    assert!(live(&home).is_empty(), "nothing is decided yet");
    assert_eq!(recording.tape_position(asked), None);
    let before = clock::now().wall_ns;
    record_backend(&mut recording, S, asked, &error(77));
    assert_eq!(live(&home).len(), 4, "a failure: what waited is on tape before it is passed on");
    record(&mut recording, S, &error(2));
    call(&mut recording, 3, true);
    let position = recording.tape_position(asked).unwrap();
    assert_eq!(position.0, 1);
    let (tape, entries) = sealed(recording);
    let (messages, left_out) = messages_and_left_out(&entries);
    assert_eq!(messages, [request(2), request(77), error(77), error(2)]);
    let waited = &entries[2].1;
    let leg = (waited.via.as_deref(), waited.connection, waited.transport);
    assert_eq!(
        leg,
        (Some(LEG.backend), LEG.connection, LEG.transport),
        "a delayed message must keep its leg"
    );
    assert_eq!((left_out.total().messages, left_out.strategy), (4, left_out.total()));
    assert_eq!(tape.footer().unwrap().metadata.left_out, left_out);
    let note = selection_note(&entries[0].1.payload).expect("it begins with what is in force");
    assert_eq!(note["settings"]["strategy"]["kind"], "error_focused");
    assert_eq!(note["recorded_before_passed_on"], false);
    let operations: Vec<Option<u64>> = entries[1..5].iter().map(|(_, entry)| entry.operation).collect();
    assert_eq!(operations, [None, Some(1), Some(1), None], "named by its number on the tape");
    let times: Vec<(u64, u64)> =
        entries[1..5].iter().map(|(_, entry)| (entry.since_start_ns, entry.wall_ns)).collect();
    assert!(times.is_sorted() && times[1].1 <= before && times[2].1 >= before, "{times:?} {before}");
    assert!(times[0].0 < times[1].0, "the tape begins with the first of them: {times:?}");
    let tail: Vec<EntryKind> = entries[5..].iter().map(|(_, entry)| entry.kind).collect();
    assert_eq!(tail, [EntryKind::Note, EntryKind::End]);
}

#[test]
fn entries_decided_at_once_are_written_at_once() {
    let scratch = scratch();
    let home = home(&scratch);
    let sampling = Sampling::Systematic { interval: 2 };
    let policy = selecting(SelectionSettings { sampling, ..SelectionSettings::default() });
    let mut recording = recording(&home, 1 << 20).with_policy(&policy);
    assert_eq!(recording.flush_interval(), None, "nothing waits");
    for id in 0..4 {
        record(&mut recording, C, &request(id));
        assert_eq!(messages_and_left_out(&live(&home)).0.contains(&request(id)), id % 2 == 0);
        record(&mut recording, S, &result(id));
    }
    let (_, entries) = sealed(recording);
    let (messages, left_out) = messages_and_left_out(&entries);
    assert_eq!(messages, [request(0), result(0), request(2), result(2)]);
    assert_eq!((left_out.sample.messages, left_out.total()), (4, left_out.sample));
    let note = selection_note(&entries[0].1.payload).unwrap();
    assert_eq!(note["recorded_before_passed_on"], true);
}

#[test]
fn a_buffer_is_written_when_it_is_full_or_due_and_a_crash_loses_the_rest() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20).with_policy(&buffering(3));
    assert_eq!(recording.flush_interval(), Some(Duration::from_secs(5)));
    let lines: Vec<String> = (0..8).map(request).collect();
    for line in &lines[..2] {
        record(&mut recording, C, line);
    }
    assert!(live(&home).is_empty());
    record(&mut recording, C, &lines[2]);
    assert_eq!(messages_and_left_out(&live(&home)).0, lines[..3], "a full buffer must be written");
    record(&mut recording, C, &lines[3]);
    assert_eq!(messages_and_left_out(&live(&home)).0, lines[..3]);
    recording.flush(clock::now()).unwrap();
    assert_eq!(messages_and_left_out(&live(&home)).0, lines[..4], "a flush must write what is due");
    record(&mut recording, C, &lines[4]);
    drop(recording);
    let tape = home.open(&home.find("latest").unwrap()).unwrap();
    until_abandoned(&tape);
    home.seal_abandoned().unwrap();
    let entries = live(&home);
    assert_eq!(messages_and_left_out(&entries).0, lines[..4]);
    let note = selection_note(&entries[0].1.payload).unwrap().to_string();
    assert!(note.contains("after a crash, the last 3 entries"), "{note}");
}

#[test]
fn the_end_writes_buffered_entries() {
    let scratch = scratch();
    let home = home(&scratch);
    let policy = Policy { buffer_max: Some(100), ..focused(10, 0) };
    let mut recording = recording(&home, 1 << 20).with_policy(&policy);
    call(&mut recording, 1, true);
    record(&mut recording, C, &request(2));
    // Decided before an earlier entry is; the buffer still writes them in order.
    record(&mut recording, S, "what?");
    record(&mut recording, S, &error(2));
    record(&mut recording, C, &request(3));
    let (_, entries) = sealed(recording);
    let expected = [request(1), result(1), request(2), "what?".to_owned(), error(2), request(3)];
    assert_eq!(messages_and_left_out(&entries).0, expected);
}

#[test]
fn every_tape_of_a_connection_notes_what_was_left_out() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut policy = focused(0, 0);
    policy.selection.always = AlwaysKept { errors: true, slow: None };
    let mut recording = recording(&home, 600).with_policy(&policy);
    for id in 0..60 {
        call(&mut recording, id, id % 3 != 0);
    }
    recording.finish(&end()).unwrap().unwrap();
    home.seal_abandoned().unwrap();
    let mut tapes: Vec<Tape> = home.list().unwrap().iter().map(|file| home.open(file).unwrap()).collect();
    tapes.sort_by_key(|tape| tape.header().unwrap().part);
    assert!(tapes.len() > 3);
    let mut all = (Vec::new(), LeftOut::default());
    for tape in &tapes {
        let entries = read(tape);
        assert!(selection_note(&entries[0].1.payload).is_some());
        let (messages, left_out) = messages_and_left_out(&entries);
        assert!(messages.len() % 2 == 0, "an operation is on one tape");
        assert!(!left_out.is_nothing());
        all.0.extend(messages);
        all.1.add(&left_out);
    }
    let expected: Vec<String> = (0..60).step_by(3).flat_map(|id| [request(id), error(id)]).collect();
    assert_eq!(all.0, expected);
    assert_eq!(all.1.total().messages, 80);
}

#[test]
fn entries_that_cannot_be_written_are_kept() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20).with_policy(&focused(4, 0));
    call(&mut recording, 1, true);
    record(&mut recording, C, &request(2));
    let tapes = home.tapes();
    std::fs::remove_dir_all(&tapes).ok();
    std::fs::write(&tapes, "in the way").unwrap();
    let e = try_hear(&mut recording, S, &error(2)).unwrap_err();
    // The caller notes whether it forwarded the message. Entries that were forwarded before still wait.
    recording.note_gap(1, 9, false, &e);
    let e = try_hear(&mut recording, C, &request(9)).expect_err("nothing is accepted before that is written");
    recording.note_gap(1, 9, false, &e);
    std::fs::remove_file(&tapes).unwrap();
    call(&mut recording, 3, false);
    let (tape, entries) = sealed(recording);
    assert_eq!(messages_and_left_out(&entries).0, [request(1), result(1), request(2), request(3), error(3)]);
    assert_eq!(entries[0].1.kind, EntryKind::Gap);
    assert_eq!(tape.footer().unwrap().metadata.gap_messages, 2);
}

#[test]
fn new_messages_are_refused_while_the_buffer_cannot_be_written() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20).with_policy(&buffering(2));
    let tapes = home.tapes();
    std::fs::create_dir_all(home.root()).unwrap();
    std::fs::remove_dir_all(&tapes).ok();
    std::fs::write(&tapes, "in the way").unwrap();
    record(&mut recording, C, &request(1));
    recording.flush(clock::now()).unwrap_err();
    for _ in 0..3 {
        let e = try_hear(&mut recording, C, &request(2)).unwrap_err();
        recording.note_gap(1, 9, false, &e);
    }
    std::fs::remove_file(&tapes).unwrap();
    record(&mut recording, C, &request(3));
    let (tape, entries) = sealed(recording);
    assert_eq!(messages_and_left_out(&entries).0, [request(1), request(3)]);
    assert_eq!(tape.footer().unwrap().metadata.gap_messages, 3);
}

#[test]
fn entries_that_wait_too_long_are_written() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20).with_policy(&focused(0, 0));
    record(&mut recording, C, &request(1));
    recording.flush(clock::now()).unwrap();
    assert!(live(&home).is_empty());
    let mut later = clock::now();
    later.instant += Duration::from_secs(61);
    recording.flush(later).unwrap();
    assert_eq!(messages_and_left_out(&live(&home)).0, [request(1)]);
    record(&mut recording, S, &result(1));
    assert_eq!(messages_and_left_out(&sealed(recording).1).0, [request(1), result(1)]);
}

#[test]
fn buffered_entries_are_redacted() {
    let scratch = scratch();
    let home = home(&scratch);
    let policy = Policy { buffer_max: Some(100), ..focused(4, 0) };
    let mut recording = recording(&home, 1 << 20).with_policy(&policy);
    record(
        &mut recording,
        C,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"password":"c4n4ry"}}}"#,
    );
    let in_memory = |text: &str| {
        let bytes = format!("{:?}", text.as_bytes());
        format!("{recording:?}").contains(bytes.trim_matches(['[', ']']))
    };
    assert!(in_memory("tools/call") && !in_memory("c4n4ry"), "a secret must not stay in memory");
    record(&mut recording, S, &error(1));
    let (_, entries) = sealed(recording);
    assert!(messages_and_left_out(&entries).0.concat().contains("[redacted:password]"));
}

#[test]
fn disabled_recording_leaves_no_files() {
    let scratch = scratch();
    let home = Home::new(scratch.path().join("data"));
    let policy = Policy { enabled: false, ..Policy::default() };
    let mut recording = recording(&home, 1 << 20).with_policy(&policy);
    call(&mut recording, 1, false);
    recording.flush(clock::now()).unwrap();
    assert_eq!(recording.flush_interval(), None);
    assert_eq!(recording.finish(&end()).unwrap(), None);
    assert!(!home.root().exists());
}

#[test]
fn a_tape_that_is_not_compressed_reads_the_same() {
    let scratch = scratch();
    let home = home(&scratch);
    let long = format!("{}, {}", "x".repeat(300_000), request(9));
    let sizes = [Compression::Zstd, Compression::None].map(|compression| {
        let policy = Policy { compression, ..Policy::default() };
        let mut recording = recording(&home, 1 << 30).with_policy(&policy);
        record(&mut recording, C, &long);
        for id in 0..3000 {
            call(&mut recording, id, true);
        }
        let (tape, entries) = sealed(recording);
        assert_eq!(tape.state(), TapeState::Sealed);
        assert_eq!(messages_and_left_out(&entries).0.len(), 6001);
        assert_eq!(messages_and_left_out(&entries).0[0], long);
        tape.file_bytes().unwrap()
    });
    assert!(sizes[0] * 4 < sizes[1], "{sizes:?}");
}

#[test]
fn old_tapes_are_removed_and_no_others() {
    let scratch = scratch();
    let home = home(&scratch);
    for n in 0..3 {
        let mut old = recording(&home, 1 << 20);
        record(&mut old, C, &format!("old {n}"));
        old.finish(&end()).unwrap().unwrap();
    }
    let mut long = recording(&home, 1 << 20);
    record(&mut long, C, "begun before, and ended behind");
    let mut living = recording(&home, 1 << 20);
    record(&mut living, C, "begun before, and still there");
    // Names of files have milliseconds.
    let limit = clock::now().wall_ns + 2_000_000;
    while clock::now().wall_ns <= limit {
        std::thread::yield_now();
    }
    long.finish(&end()).unwrap().unwrap();
    let mut fresh = recording(&home, 1 << 20);
    record(&mut fresh, C, "begun behind");
    fresh.finish(&end()).unwrap().unwrap();
    assert_eq!(home.remove_ended_before(0).unwrap(), 0);
    assert_eq!(home.remove_ended_before(limit).unwrap(), 3);
    assert_eq!(home.list().unwrap().len(), 3);
    assert_eq!(home.remove_ended_before(limit).unwrap(), 0);
    living.finish(&end()).unwrap().unwrap();
}

/// A message that rules changed is recorded with its original, or not at all.
#[test]
fn an_original_message_is_written_to_the_tape_of_the_changed_one() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20).with_policy(&focused(0, 0));
    let mut changed = |id: u64, ok: bool| {
        let (came, went) = (format!("{} ", request(id)), request(id));
        let rule_marks = RuleMarks { effects: RuleEffects::CHANGED, rules: "cap", tags: "seen" };
        let items = [
            Item::new(EntryKind::Original, C, Terminator::Lf, came.as_bytes()),
            Item { rule_marks, ..Item::new(EntryKind::Message, C, Terminator::Lf, went.as_bytes()) },
        ];
        let asked = recording.record(clock::now(), items.into_iter()).unwrap();
        record_backend(&mut recording, S, asked, &if ok { result(id) } else { error(id) });
        record(&mut recording, S, &if ok { result(id) } else { error(id) });
    };
    changed(1, true);
    changed(2, false);
    changed(3, true);
    let (_, entries) = sealed(recording);
    let kinds: Vec<EntryKind> = entries[1..5].iter().map(|(_, entry)| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::Original, EntryKind::Message, EntryKind::Message, EntryKind::Message]);
    assert_eq!(entries[1].1.payload, format!("{} ", request(2)).into_bytes());
    assert_eq!(entries[3].1.operation, Some(2), "the message must name the operation that went on");
    let (messages, left_out) = messages_and_left_out(&entries);
    assert_eq!((messages.len(), left_out.total().messages), (3, 6));
}

/// Records many interleaved calls, some of which fail; returns the messages of each and whether it failed.
fn crowd(recording: &mut Recording, random: &mut Random) -> Vec<(Vec<String>, bool)> {
    let mut calls: Vec<(Vec<String>, bool)> = Vec::new();
    let mut under_way: Vec<(u64, u64)> = Vec::new();
    for id in 0..60 {
        let number = record(recording, C, &request(id));
        record_backend(recording, C, number, &request(1000 + id));
        calls.push((vec![request(id), request(1000 + id)], false));
        under_way.push((id, number));
        while !under_way.is_empty() && (id == 59 || random.below(3) > 0) {
            let (id, number) = under_way.swap_remove(random.below(under_way.len()));
            let failed = random.below(5) == 0;
            let answer = |id| if failed { error(id) } else { result(id) };
            record_backend(recording, S, number, &answer(1000 + id));
            record(recording, S, &answer(id));
            let call = &mut calls[usize::try_from(id).unwrap()];
            call.0.extend([answer(1000 + id), answer(id)]);
            call.1 = failed;
        }
        if random.below(4) == 0 {
            recording.flush(clock::now()).unwrap();
        }
    }
    calls
}

#[test]
fn random_selections_keep_calls_whole_ordered_and_counted() {
    let mut random = Random::new(31);
    for round in 0..40 {
        let scratch = scratch();
        let home = home(&scratch);
        let strategy = match round % 4 {
            0 => SelectionStrategy::ErrorFocused { before: random.below(6), after: random.below(6) },
            1 => SelectionStrategy::Performance { threshold: Duration::from_secs(9) },
            _ => SelectionStrategy::Full,
        };
        let sampling = match round % 4 {
            2 => Sampling::Systematic { interval: 3 },
            _ => Sampling::Random { rate: 1.0 },
        };
        let always = AlwaysKept { errors: true, slow: None };
        let buffer_max = (round % 3 == 0).then(|| 1 + random.below(20));
        let selection = SelectionSettings { strategy, sampling, always, ..SelectionSettings::default() };
        let policy = Policy { selection, buffer_max, ..Policy::default() };
        let limit = [1 << 20, 2_000][random.below(2)];
        let mut recording = recording(&home, limit).with_policy(&policy);
        let calls = crowd(&mut recording, &mut random);
        recording.finish(&end()).unwrap().unwrap();
        home.seal_abandoned().unwrap();
        let mut tapes: Vec<Tape> = home.list().unwrap().iter().map(|file| home.open(file).unwrap()).collect();
        tapes.sort_by_key(|tape| tape.header().unwrap().part);
        let (mut messages, mut left_out) = (Vec::new(), LeftOut::default());
        for tape in &tapes {
            assert!(verify(tape).unwrap().is_sound());
            let entries = read(tape);
            for (_, entry) in entries.iter().filter(|(_, entry)| entry.operation.is_some()) {
                let began = &entries[usize::try_from(entry.operation.unwrap()).unwrap()].1;
                let ids = [began, entry].map(|e| String::from_utf8_lossy(&e.payload)[..30].to_owned());
                let id = |text: &str| text.split([':', ',']).nth(3).unwrap().parse::<u64>().unwrap();
                assert_eq!(id(&ids[1]), 1000 + id(&ids[0]), "round {round}");
            }
            let (more, less) = messages_and_left_out(&entries);
            messages.extend(more);
            left_out.add(&less);
        }
        let total: usize = calls.iter().map(|(lines, _)| lines.len()).sum();
        assert_eq!(left_out.total().messages + messages.len() as u64, total as u64, "round {round}");
        for (lines, failed) in &calls {
            let there: Vec<&String> = messages.iter().filter(|line| lines.contains(line)).collect();
            let whole: Vec<&String> = lines.iter().collect();
            assert!(there.is_empty() || there == whole, "round {round}: {there:?}");
            assert!(!failed || !there.is_empty(), "round {round}: a failure is missing");
        }
    }
}
