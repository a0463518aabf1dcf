//! A full tape is continued on another: linked in both directions, with every entry on exactly one of them, in order.

use scrubjay_core::entry::{Direction, End, EntryKind, Terminator};
use scrubjay_core::id::TapeId;
use scrubjay_tape::clock;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::{Item, Recording};

use crate::fixture::{LEG, Owned, end, home, read, recording, say, scratch, until_abandoned};
use crate::random::Random;

fn in_order(home: &Home) -> Vec<Tape> {
    let mut tapes: Vec<Tape> = home.list().unwrap().iter().map(|file| home.open(file).unwrap()).collect();
    tapes.sort_by_key(|tape| tape.header().unwrap().part);
    tapes
}

/// Checks the links of the tapes of one connection, and returns their messages.
fn follow(tapes: &[Tape]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let mut continues: Option<TapeId> = None;
    let mut announced: Option<TapeId> = None;
    for (tape, part) in tapes.iter().zip(1..) {
        let header = tape.header().unwrap();
        assert_eq!((header.part, header.continues), (part, continues));
        assert_eq!(announced, (part > 1).then_some(header.id), "part {part} is the one announced");
        let report = verify(tape).unwrap();
        assert!(report.is_sound(), "{report:?}");
        let entries = read(tape);
        announced = None;
        for (_, entry) in entries {
            match entry.kind {
                EntryKind::Message => messages.push(entry.payload),
                EntryKind::End => {
                    assert_eq!(announced, None, "a tape has one end entry");
                    announced = serde_json::from_slice::<End>(&entry.payload).unwrap().continues_on;
                }
                kind => panic!("{kind:?}"),
            }
        }
        continues = Some(header.id);
    }
    assert_eq!(announced, None, "the last one is not continued");
    messages
}

fn texts(count: usize) -> Vec<String> {
    let mut random = Random::new(21);
    (0..count).map(|n| format!("{n}:{}", "x".repeat(random.below(400)))).collect()
}

fn bytes(texts: &[String]) -> Vec<&[u8]> {
    texts.iter().map(|text| text.as_bytes()).collect()
}

#[test]
fn tapes_of_one_connection_are_linked_and_have_every_entry_once() {
    for limit in [0, 1, 500, 2_000, 10_000] {
        let scratch = scratch();
        let home = home(&scratch);
        let mut recording = recording(&home, limit);
        let sent = texts(60);
        for batch in sent.chunks(3) {
            say(&mut recording, &batch.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        }
        let last = recording.tape().unwrap();
        let path = recording.finish(&end()).unwrap().unwrap();
        assert!(path.to_string_lossy().contains(last.as_str()));
        // Sealing in the background may not have kept up; those tapes wait for the next start.
        for outcome in home.seal_abandoned().unwrap() {
            outcome.unwrap();
        }
        let tapes = in_order(&home);
        assert!(tapes.iter().all(|tape| tape.state() == TapeState::Sealed), "limit {limit}");
        assert_eq!(follow(&tapes), bytes(&sent), "limit {limit}");
        assert!(tapes.len() > 1, "limit {limit}: {}", tapes.len());
        for tape in &tapes {
            // A tape is never empty, and a batch stays together.
            let messages = read(tape).iter().filter(|(_, e)| e.kind == EntryKind::Message).count();
            assert!(messages > 0 && messages % 3 == 0, "limit {limit}: {messages}");
        }
    }
}

#[test]
fn an_operation_is_named_only_on_its_own_tape() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 600);
    let answer = |recording: &mut Recording, operation: u64| {
        let mut item = Item::new(EntryKind::Message, Direction::ServerToClient, Terminator::Lf, b"answer");
        (item.via, item.operation) = (Some(LEG), Some(operation));
        recording.record(clock::now(), std::iter::once(item)).unwrap();
    };
    let first = say(&mut recording, &["asked"]).unwrap();
    answer(&mut recording, first);
    say(&mut recording, &[&"x".repeat(600)]).unwrap();
    assert_eq!(recording.tape_position(first), None, "it is on the tape before");
    answer(&mut recording, first);
    let second = say(&mut recording, &["asked"]).unwrap();
    answer(&mut recording, second);
    recording.finish(&end()).unwrap().unwrap();
    home.seal_abandoned().unwrap();
    let named: Vec<Vec<(u64, Option<u64>)>> = in_order(&home)
        .iter()
        .map(|tape| read(tape).iter().map(|(n, entry)| (*n, entry.operation)).collect())
        .collect();
    let answers: Vec<Option<u64>> = named.iter().flatten().filter_map(|(_, o)| o.map(Some)).collect();
    assert_eq!(answers.len(), 2, "{named:?}");
    for tape in &named {
        let asked = |(n, operation): &(u64, Option<u64>)| operation.is_none_or(|o| o + 1 == *n);
        assert!(tape.iter().all(asked), "each names the entry before it: {named:?}");
    }
    assert!(named.len() > 2, "{named:?}");
}

#[test]
fn a_tape_is_also_full_by_age() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, u64::MAX);
    say(&mut recording, &["young"]).unwrap();
    let first = recording.tape();
    say(&mut recording, &["still young"]).unwrap();
    assert_eq!(recording.tape(), first);
    let mut later = clock::now();
    later.instant += std::time::Duration::from_secs(3601);
    let item = Owned::message("an hour later");
    let items = std::iter::once(scrubjay_tape::recording::Item::new(
        item.kind,
        item.direction,
        item.terminator,
        &item.payload,
    ));
    recording.record(later, items).unwrap();
    assert_ne!(recording.tape(), first);
    recording.finish(&end()).unwrap().unwrap();
    assert_eq!(follow(&in_order(&home)), [&b"young"[..], b"still young", b"an hour later"]);
}

#[test]
fn tapes_whose_sealing_could_not_keep_up_are_sealed_later() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1);
    // The first takes long to seal, and the others come right behind it.
    let mut sent = vec!["y".repeat(30 << 20)];
    sent.extend(texts(20));
    for text in &sent {
        say(&mut recording, &[text]).unwrap();
    }
    recording.finish(&end()).unwrap().unwrap();
    in_order(&home).iter().for_each(until_abandoned);
    let waiting = in_order(&home).iter().filter(|tape| tape.state() == TapeState::Abandoned).count();
    let outcomes = home.seal_abandoned().unwrap();
    assert_eq!(outcomes.len(), waiting);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    let tapes = in_order(&home);
    assert!(tapes.iter().all(|tape| tape.state() == TapeState::Sealed));
    assert!(follow(&tapes) == bytes(&sent));
    assert_eq!(home.seal_abandoned().unwrap().len(), 0, "nothing is left to do");
}

/// Makes the sealing of the current tape fail: a directory that is not empty has the name of its temporary file.
fn obstruct(home: &Home, recording: &Recording) -> std::path::PathBuf {
    let id = recording.tape().unwrap();
    let file = home.find(id.as_str()).unwrap();
    let obstacle = file.path.with_extension("sealing");
    std::fs::create_dir_all(obstacle.join("full")).unwrap();
    obstacle
}

#[test]
fn one_tape_that_cannot_be_sealed_does_not_stop_the_others() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1);
    say(&mut recording, &["first"]).unwrap();
    let obstacle = obstruct(&home, &recording);
    say(&mut recording, &["second"]).unwrap();
    let last = recording.tape().unwrap();
    recording.finish(&end()).unwrap_err();
    let last = home.open(&home.find(last.as_str()).unwrap()).unwrap();
    assert_eq!(last.state(), TapeState::Sealed, "the last one is sealed");
    std::fs::remove_dir_all(obstacle).unwrap();
    home.seal_abandoned().unwrap();
    assert_eq!(follow(&in_order(&home)), [b"first".to_vec(), b"second".to_vec()]);
}

#[test]
fn a_recording_that_is_dropped_leaves_an_abandoned_tape() {
    let scratch = scratch();
    let home = home(&scratch);
    let mut recording = recording(&home, 1 << 20);
    say(&mut recording, &["said"]).unwrap();
    let tape = home.open(&home.find("latest").unwrap()).unwrap();
    assert_eq!(tape.state(), TapeState::Live);
    assert_eq!(home.seal_abandoned().unwrap().len(), 0, "its writer lives");
    drop(recording);
    until_abandoned(&tape);
    assert_eq!(home.seal_abandoned().unwrap().len(), 1);
    let sealed = home.open(&home.find("latest").unwrap()).unwrap();
    assert_eq!(read(&sealed)[0].1.payload, b"said");
    assert_eq!(sealed.footer().unwrap().end, None, "it was cut off");
}
