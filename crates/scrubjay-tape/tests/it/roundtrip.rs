//! Entries round-trip through live and sealed tapes, from any entry on, and the footer has their totals.

use proptest::prelude::*;
use scrubjay_core::entry::{End, EntryKind};
use scrubjay_core::reading::EntryReader;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::verify::verify;
use tempfile::TempDir;

use crate::fixture::{Owned, any_entry, begin, home, numbered, read, read_from, scratch};
use crate::random::Random;

/// Realistic messages, so that the totals are not empty.
fn conversation(number: usize) -> Vec<u8> {
    match number % 7 {
        0 => format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"t"}}}}"#),
        1 => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, number - 1),
        2 => r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#.to_owned(),
        3 => format!(r#"{{"jsonrpc":"2.0","id":"{number}","method":"ping"}}"#),
        4 => format!(r#"{{"jsonrpc":"2.0","id":"{}","error":{{"code":-1,"message":""}}}}"#, number - 1),
        5 => r#"[{"jsonrpc":"2.0","id":1,"method":"a"},7]"#.to_owned(),
        _ => r#"{"messages":3,"bytes":10,"forwarded":true,"since_wall_ns":1,"reason":"full"}"#.to_owned(),
    }
    .into_bytes()
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    let sized = |size: usize| any::<u64>().prop_map(move |seed| Random::new(seed).bytes(size));
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..200),
        6 => (0usize..70).prop_map(conversation),
        1 => Just(32 * 1024 - 1).prop_flat_map(sized),
        1 => Just(32 * 1024).prop_flat_map(sized),
        1 => (0usize..100 * 1024).prop_flat_map(sized),
        1 => Just(serde_json::to_vec(&End {
            reason: "a reason".to_owned(),
            exit_code: Some(3),
            signal: None,
            continues_on: None,
        }).unwrap()),
    ]
}

fn append_all(directory: &TempDir, batches: &[Vec<Owned>]) -> Tape {
    let mut writer = begin(&home(directory), 1);
    for batch in batches {
        writer.append(batch.iter().map(Owned::written)).unwrap();
    }
    assert_eq!(writer.entries(), batches.iter().map(|b| b.len() as u64).sum::<u64>());
    let tape = Tape::open(writer.path()).unwrap();
    assert_eq!(tape.state(), TapeState::Live);
    assert_eq!(tape.file_bytes().unwrap(), writer.bytes());
    tape
}

/// Checks a tape in either layout against what was appended.
fn check(tape: &Tape, entries: &[Owned]) {
    let all = numbered(entries);
    assert_eq!(read(tape), all);
    let report = verify(tape).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.entries, report.unfinished_bytes), (entries.len() as u64, 0));
    for from in 0..=entries.len() + 1 {
        let rest = all.get(from..).unwrap_or(&[]);
        assert_eq!(read_from(tape, from as u64), rest, "from {from}");
    }
}

fn check_footer(tape: &Tape, entries: &[Owned]) {
    let mut reader = EntryReader::default();
    for entry in entries {
        reader.read(&entry.entry());
    }
    let footer = tape.footer().unwrap();
    assert_eq!(footer.metadata, reader.finish());
    assert_eq!(footer.metadata.total_entries, entries.len() as u64);
    assert_eq!(footer.ended_wall_ns, entries.last().map_or(0, |e| e.wall_ns));
    assert_eq!(footer.duration_ns, entries.iter().map(|e| e.since_start_ns).max().unwrap_or(0));
    let end = entries.iter().rfind(|e| e.kind == EntryKind::End);
    assert_eq!(footer.end, end.and_then(|e| serde_json::from_slice(&e.payload).ok()));
    assert_eq!(footer.damage, []);
    let mut next = 0;
    for block in &footer.blocks {
        assert_eq!(block.first_entry, next);
        next = block.end();
    }
    assert_eq!(next, entries.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn entries_read_are_entries_appended(
        batches in prop::collection::vec(prop::collection::vec(any_entry(any_payload()), 0..8), 0..6),
    ) {
        let directory = scratch();
        let live = append_all(&directory, &batches);
        let entries = batches.concat();
        check(&live, &entries);
        let sealed = Tape::open(&seal(live.path()).unwrap()).unwrap();
        prop_assert_eq!(sealed.state(), TapeState::Sealed);
        prop_assert_eq!(sealed.header(), live.header());
        check(&sealed, &entries);
        check_footer(&sealed, &entries);
        // The live file was removed, but an open handle can still read it.
        check(&live, &entries);
    }
}

#[test]
fn more_large_payloads_than_one_write_takes_are_read_back() {
    let mut random = Random::new(1);
    let noise = random.bytes(40 * 1024);
    let entries: Vec<Owned> = (0..1100)
        .map(|n| {
            let size = [0, 100, 32 * 1024, 33 * 1024][usize::from(n % 50 == 0) + 2 * usize::from(n % 3 != 0)];
            Owned { since_start_ns: n, ..Owned::message(&noise[random.below(5000)..][..size]) }
        })
        .collect();
    assert!(
        entries.iter().filter(|e| e.payload.len() >= 32 * 1024).count() > 520,
        "the entries must need more than 1024 slices"
    );
    let directory = scratch();
    let live = append_all(&directory, std::slice::from_ref(&entries));
    assert!(read(&live) == numbered(&entries));
    let sealed = Tape::open(&seal(live.path()).unwrap()).unwrap();
    assert!(read(&sealed) == numbered(&entries));
    assert!(sealed.footer().unwrap().blocks.len() >= 4);
    assert!(verify(&sealed).unwrap().is_sound());
    for from in [0, 1, 7, 8, 9, 500, 1098, 1099, 1100, 5000] {
        let rest = numbered(&entries).split_off(from.min(entries.len()));
        assert!(read_from(&sealed, from as u64) == rest, "from {from}");
    }
}

#[test]
fn a_long_backend_name_is_cut_between_characters() {
    let directory = scratch();
    let long = Owned { via: Some(format!("x{}", "é".repeat(300))), ..Owned::message("m") };
    let live = append_all(&directory, &[vec![long]]);
    let read = read(&live);
    assert_eq!(read[0].1.via.as_deref(), Some(format!("x{}", "é".repeat(127)).as_str()));
    assert_eq!(read[0].1.payload, b"m");
}
