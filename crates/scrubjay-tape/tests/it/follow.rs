//! A reader of a tape that is being written, rotated or sealed sees every entry once and in order.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use scrubjay_core::entry::EntryKind;
use scrubjay_tape::format::entries::Entries;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::seal::seal;
use scrubjay_tape::format::verify::verify;

use crate::fixture::{Owned, begin, home, numbered, read, record_live, scratch, until_abandoned};
use crate::random::Random;

fn stream(count: usize) -> Vec<Owned> {
    let mut random = Random::new(31);
    let noise = random.bytes(150_000);
    let mut entries: Vec<Owned> = (0..count)
        .map(|_| {
            let size = [10, 100, 1000, 50_000][random.below(100) / 33];
            Owned::message(&noise[random.below(100_000)..][..size])
        })
        .collect();
    entries.push(Owned { kind: EntryKind::End, ..Owned::message("{}") });
    entries
}

/// Reads until the end entry, polling for more, as `tape follow` does.
fn follow(mut entries: Entries) -> Vec<(u64, Owned)> {
    let mut all = Vec::new();
    loop {
        match entries.next().unwrap() {
            Some((number, entry)) => all.push((number, Owned::from(entry))),
            None => std::thread::yield_now(),
        }
        assert_eq!(entries.damage(), []);
        if all.last().is_some_and(|(_, entry)| entry.kind == EntryKind::End) {
            return all;
        }
    }
}

#[test]
fn readers_see_each_entry_once_while_it_is_written_and_sealed() {
    for round in 0..4 {
        let scratch = scratch();
        let home = home(&scratch);
        let entries = stream(1500);
        let mut writer = begin(&home, round);
        let early = Tape::open(writer.path()).unwrap();
        std::thread::scope(|scope| {
            let following: Vec<_> =
                (0..2).map(|_| scope.spawn(|| follow(early.entries().unwrap()))).collect();
            let late = scope.spawn(|| {
                // Opens the tape again each time, under its current name; the entries are always a prefix.
                let mut seen = 0;
                while seen < entries.len() {
                    let tape = home.open(&home.find("latest").unwrap()).unwrap();
                    let found = read(&tape);
                    assert!(found.len() >= seen, "entries do not go away");
                    assert!(found == numbered(&entries[..found.len()]));
                    assert!(verify(&tape).unwrap().is_sound());
                    seen = found.len();
                }
            });
            let mut random = Random::new(round);
            let mut rest = entries.as_slice();
            while !rest.is_empty() {
                let (batch, behind) = rest.split_at((1 + random.below(20)).min(rest.len()));
                writer.append(batch.iter().map(Owned::written)).unwrap();
                rest = behind;
            }
            seal(writer.path()).unwrap();
            for reader in following {
                assert!(reader.join().unwrap() == numbered(&entries));
            }
            late.join().unwrap();
        });
        assert_eq!(early.state(), TapeState::Live, "the lock is held until the writer is dropped");
        drop(writer);
        until_abandoned(&early);
    }
}

#[test]
fn a_reader_continues_after_a_failed_append_is_truncated() {
    let scratch = scratch();
    let home = home(&scratch);
    let first = [Owned::message("first")];
    // The same tape twice, with another second entry.
    let failed = [first.to_vec(), vec![Owned::message("x".repeat(5000))]].concat();
    let failed = std::fs::read(record_live(&home, &failed)).unwrap();
    let second = [first.to_vec(), vec![Owned::message("second")]].concat();
    let second_bytes = std::fs::read(record_live(&home, &second)).unwrap();
    let path = record_live(&home, &first);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let end = usize::try_from(file.metadata().unwrap().len()).unwrap();

    let tape = Tape::open(&path).unwrap();
    for torn in [3, 8, 31, 32, second_bytes.len() - end, 4000] {
        file.set_len(end as u64).unwrap();
        let mut entries = tape.entries().unwrap();
        assert_eq!(entries.next().unwrap().unwrap().0, 0);
        file.write_all_at(&failed[end..end + torn], end as u64).unwrap();
        assert!(entries.next().unwrap().is_none());
        assert_eq!(entries.unfinished_bytes(), torn as u64);
        file.set_len(end as u64).unwrap();
        if torn % 2 == 0 {
            assert!(entries.next().unwrap().is_none());
            assert_eq!(entries.unfinished_bytes(), 0);
        }
        file.write_all_at(&second_bytes[end..], end as u64).unwrap();
        let (number, entry) = entries.next().unwrap().unwrap();
        assert_eq!((number, entry.payload), (1, &b"second"[..]), "{torn} bytes were torn");
        assert_eq!(entries.damage(), []);
    }
}
