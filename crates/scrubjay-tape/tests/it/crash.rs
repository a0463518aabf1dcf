//! Crashes and damage of live tapes: after a crash a prefix is left, after damage everything but the damaged entries.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::format::seal::SealError;
use scrubjay_tape::format::verify::verify;
use scrubjay_tape::home::Home;
use tempfile::TempDir;

use crate::fixture::{Owned, any_entry, begin, home, numbered, read, scratch};
use crate::random::Random;

/// A live tape whose writer has ended.
struct CrashedTape {
    _directory: TempDir,
    home: Home,
    live: PathBuf,
    bytes: Vec<u8>,
    entries: Vec<Owned>,
    /// Where the header ends, and then each entry.
    ends: Vec<usize>,
}

impl CrashedTape {
    fn new(batches: &[Vec<Owned>]) -> Self {
        let directory = scratch();
        let home = home(&directory);
        let mut writer = begin(&home, 1);
        let mut ends = vec![usize::try_from(writer.bytes()).unwrap()];
        for batch in batches {
            writer.append(batch.iter().map(Owned::written)).unwrap();
        }
        let live = writer.path().to_owned();
        drop(writer);
        let bytes = std::fs::read(&live).unwrap();
        while let Some(length) = bytes[*ends.last().unwrap()..].first_chunk() {
            ends.push(ends.last().unwrap() + 8 + u32::from_le_bytes(*length) as usize);
        }
        let entries = batches.concat();
        assert_eq!(ends.len(), entries.len() + 1);
        Self { _directory: directory, home, live, bytes, entries, ends }
    }

    /// Replaces the bytes of the tape, and opens it.
    fn replace(&self, bytes: &[u8]) -> Tape {
        for extension in ["tape", "damaged"] {
            let _ = std::fs::remove_file(self.live.with_extension(extension));
        }
        std::fs::write(&self.live, bytes).unwrap();
        Tape::open(&self.live).unwrap()
    }

    fn seal(&self) -> Tape {
        let outcomes = self.home.seal_abandoned().unwrap();
        assert_eq!(outcomes.len(), 1);
        let sealed = outcomes.into_iter().next().unwrap().unwrap();
        assert_eq!(sealed, self.live.with_extension("tape"));
        Tape::open(&sealed).unwrap()
    }

    /// Checks that these bytes are a prefix of the tape with at most one torn entry after it.
    fn check_prefix(&self, bytes: &[u8], what: &str) {
        let whole =
            self.ends.iter().take_while(|end| bytes.get(..**end) == Some(&self.bytes[..**end])).count();
        let expected = numbered(&self.entries[..whole - 1]);
        let tape = self.replace(bytes);
        assert_eq!(tape.state(), TapeState::Abandoned);
        assert_eq!(read(&tape), expected, "{what}");
        let report = verify(&tape).unwrap();
        assert!(report.is_sound(), "{what}: {report:?}");
        assert_eq!(report.entries, expected.len() as u64, "{what}");
        assert_eq!(report.unfinished_bytes, (bytes.len() - self.ends[whole - 1]) as u64, "{what}");
        let sealed = self.seal();
        assert_eq!(read(&sealed), expected, "{what}: sealed");
        assert!(verify(&sealed).unwrap().is_sound(), "{what}: sealed");
        assert!(!self.live.exists() && !self.live.with_extension("damaged").exists(), "{what}");
    }

    /// Checks a tape on which only these entries were damaged; `named` is the first one that `verify` names.
    fn check_without(&self, bytes: &[u8], lost: &[usize], named: Option<u64>, what: &str) {
        let mut expected = numbered(&self.entries);
        expected.retain(|(number, _)| !lost.contains(&usize::try_from(*number).unwrap()));
        let tape = self.replace(bytes);
        assert_eq!(read(&tape), expected, "{what}");
        let report = verify(&tape).unwrap();
        assert!(!report.is_sound(), "{what}: not noticed");
        assert_eq!(report.first_bad_entry(), named, "{what}: {report:?}");
        assert_eq!(report.entries, expected.len() as u64, "{what}");
        let sealed = self.seal();
        assert_eq!(read(&sealed), expected, "{what}: sealed");
        let report = verify(&sealed).unwrap();
        assert!(!report.is_sound() && report.head.is_some(), "{what}: {report:?}");
        assert_eq!(report.first_bad_entry(), named, "{what}: sealed: {report:?}");
        assert!(!self.live.exists(), "{what}");
        let evidence = std::fs::read(self.live.with_extension("damaged")).unwrap();
        assert!(evidence == bytes, "{what}: the original is kept as it was");
    }
}

fn any_batches() -> impl Strategy<Value = Vec<Vec<Owned>>> {
    let entry = any_entry(prop::collection::vec(any::<u8>(), 0..40));
    prop::collection::vec(prop::collection::vec(entry, 0..4), 0..5)
}

/// Twelve entries of one size, so that a damaged length can lead right to the wrong one, and some others.
fn mixed() -> Vec<Owned> {
    let mut entries: Vec<Owned> = (0..12).map(|n| Owned::message(format!("{{\"n\":{n:02}}}"))).collect();
    entries.push(Owned::message(""));
    entries.push(Owned::message(Random::new(3).bytes(300)));
    entries.push(Owned::message("the last"));
    entries
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn a_tape_cut_at_any_length_has_the_entries_before_the_cut(batches in any_batches()) {
        let crashed = CrashedTape::new(&batches);
        for length in crashed.ends[0]..=crashed.bytes.len() {
            crashed.check_prefix(&crashed.bytes[..length], &format!("cut at {length}"));
        }
    }

    #[test]
    fn zeros_after_a_cut_are_no_damage(batches in any_batches(), size in 1usize..100) {
        let crashed = CrashedTape::new(&batches);
        for length in (crashed.ends[0]..=crashed.bytes.len()).step_by(3) {
            let mut bytes = crashed.bytes[..length].to_vec();
            bytes.resize(length + size, 0);
            crashed.check_prefix(&bytes, &format!("cut at {length}, {size} zeros"));
        }
    }
}

#[test]
fn a_long_run_of_zeros_is_reported_with_its_full_length() {
    let crashed = CrashedTape::new(&[mixed()]);
    for zeros in [4096, 255 * 1024, 600 * 1024] {
        let mut bytes = crashed.bytes.clone();
        bytes.resize(bytes.len() + zeros, 0);
        crashed.check_prefix(&bytes, &format!("{zeros} zeros"));
    }
}

#[test]
fn a_large_torn_entry_is_reported_as_unfinished() {
    let crashed = CrashedTape::new(&[mixed(), vec![Owned::message(Random::new(4).bytes(700_000))]]);
    for length in [1, 31, 32, 40, 300_000, 699_000] {
        crashed.check_prefix(
            &crashed.bytes[..crashed.ends[crashed.ends.len() - 2] + length],
            &format!("{length} of it"),
        );
    }
}

#[test]
fn a_file_cut_within_the_header_is_not_a_tape() {
    let crashed = CrashedTape::new(&[mixed()]);
    for length in 0..crashed.ends[0] {
        std::fs::write(&crashed.live, &crashed.bytes[..length]).unwrap();
        assert!(Tape::open(&crashed.live).is_err());
        let outcomes = crashed.home.seal_abandoned().unwrap();
        assert!(matches!(outcomes.as_slice(), [Err(SealError::Open(_))]), "{outcomes:?}");
        assert_eq!(
            std::fs::read(&crashed.live).unwrap(),
            &crashed.bytes[..length],
            "a tape that cannot be opened must stay unchanged"
        );
    }
}

#[test]
fn a_flipped_byte_loses_only_its_own_entry() {
    let crashed = CrashedTape::new(&[mixed()]);
    let mut random = Random::new(11);
    for at in crashed.ends[0]..*crashed.ends.last().unwrap() {
        let hit = crashed.ends.partition_point(|end| *end <= at) - 1;
        // The length of the last entry may turn into one that a crash could have cut off: tested below.
        let last_length = crashed.ends[crashed.entries.len() - 1];
        if (last_length..last_length + 4).contains(&at) {
            continue;
        }
        for with in [0x01, 0x80, 0xFF, u8::try_from(1 + random.below(255)).unwrap()] {
            let mut bytes = crashed.bytes.clone();
            bytes[at] ^= with;
            let what = format!("byte {at} of entry {hit} xor {with:#04x}");
            crashed.check_without(&bytes, &[hit], Some(hit as u64), &what);
        }
    }
}

#[test]
fn a_longer_last_entry_is_an_unfinished_one() {
    let crashed = CrashedTape::new(&[mixed()]);
    let last = crashed.ends[crashed.entries.len() - 1];
    let mut bytes = crashed.bytes.clone();
    bytes[last + 1] ^= 1;
    crashed.check_prefix(&bytes, "256 bytes longer");
}

#[test]
fn several_entries_in_a_row_are_lost_together() {
    let crashed = CrashedTape::new(&[mixed()]);
    for first in 0..crashed.entries.len() - 2 {
        for last in first..crashed.entries.len() - 1 {
            let lost: Vec<usize> = (first..=last).collect();
            let named = Some(first as u64);
            let range = crashed.ends[first]..crashed.ends[last + 1];
            for with in [0, 0x20, 0xFF] {
                let mut bytes = crashed.bytes.clone();
                bytes[range.clone()].fill(with);
                crashed.check_without(&bytes, &lost, named, &format!("{lost:?} filled with {with:#04x}"));
            }
            let mut bytes = crashed.bytes.clone();
            bytes.drain(range.clone());
            crashed.check_without(&bytes, &lost, named, &format!("{lost:?} taken out"));
            let mut bytes = crashed.bytes.clone();
            bytes.drain(range.start + 5..range.end - 5);
            crashed.check_without(&bytes, &lost, named, &format!("the middle of {lost:?} taken out"));
        }
    }
}

#[test]
fn two_damaged_entries_lose_two_entries() {
    let crashed = CrashedTape::new(&[mixed()]);
    for (first, second) in [(0, 1), (0, 7), (3, 4), (3, 5), (11, 13)] {
        for (a, b) in [(0, 0), (3, 20), (20, 1), (9, 9), (6, 33)] {
            let mut bytes = crashed.bytes.clone();
            bytes[crashed.ends[first] + a] ^= 0x55;
            bytes[crashed.ends[second] + b] ^= 0x55;
            let what = format!("byte {a} of entry {first}, byte {b} of entry {second}");
            crashed.check_without(&bytes, &[first, second], Some(first as u64), &what);
        }
    }
}

#[test]
fn foreign_bytes_between_entries_lose_no_entry() {
    let crashed = CrashedTape::new(&[mixed()]);
    let mut random = Random::new(12);
    for end in &crashed.ends[..crashed.entries.len()] {
        let foreign = 1 + random.below(100);
        let mut bytes = crashed.bytes.clone();
        bytes.splice(*end..*end, random.bytes(foreign));
        crashed.check_without(&bytes, &[], None, &format!("{foreign} bytes at {end}"));
    }
}

#[test]
fn a_frame_in_the_wrong_place_is_not_taken_for_an_entry() {
    let crashed = CrashedTape::new(&[mixed()]);
    let frame = |n: usize| crashed.bytes[crashed.ends[n]..crashed.ends[n + 1]].to_vec();
    let mut bytes = crashed.bytes.clone();
    bytes.splice(crashed.ends[3]..crashed.ends[5], frame(4).into_iter().chain(frame(3)));
    // Entry 4 stands first and is found; entry 3 comes too late.
    crashed.check_without(&bytes, &[3], Some(3), "3 and 4 swapped");
    let mut bytes = crashed.bytes.clone();
    bytes.splice(crashed.ends[6]..crashed.ends[6], frame(2));
    crashed.check_without(&bytes, &[], None, "2 once more before 6");
}

#[test]
fn damage_far_into_a_large_live_tape_is_found() {
    let mut random = Random::new(13);
    let entries: Vec<Owned> = (0..60).map(|_| Owned::message(random.bytes(20_000))).collect();
    let crashed = CrashedTape::new(&[entries]);
    for (hit, byte) in [(20, 0), (20, 2), (20, 3), (40, 12_000), (58, 3)] {
        let mut bytes = crashed.bytes.clone();
        bytes[crashed.ends[hit] + byte] ^= 0x21;
        let what = format!("byte {byte} of entry {hit}");
        crashed.check_without(&bytes, &[hit], Some(hit as u64), &what);
    }
    let mut bytes = crashed.bytes.clone();
    bytes[crashed.ends[10]..crashed.ends[50] - 7].fill(0);
    crashed.check_without(&bytes, &(10..50).collect::<Vec<_>>(), Some(10), "800 KB of zeros");
}

#[test]
fn the_list_of_damage_is_limited() {
    let entries: Vec<Owned> = (0..3001).map(|n| Owned::message(format!("{n}"))).collect();
    let crashed = CrashedTape::new(&[entries]);
    let mut bytes = crashed.bytes.clone();
    for hit in (1..3001).step_by(2) {
        bytes[crashed.ends[hit] + 20] ^= 1;
    }
    let tape = crashed.replace(&bytes);
    assert_eq!(read(&tape).len(), 1501);
    let report = verify(&tape).unwrap();
    assert_eq!((report.entries, report.first_bad_entry()), (1501, Some(1)));
    assert_eq!(report.damage.len(), 1001);
    assert_eq!(report.damage[1000].what, "there is more damage than is listed");
    assert_eq!(read(&crashed.seal()).len(), 1501);
}

#[test]
fn a_damaged_header_loses_no_entry() {
    let crashed = CrashedTape::new(&[mixed()]);
    for at in 0..crashed.ends[0] {
        let mut bytes = crashed.bytes.clone();
        bytes[at] ^= 0x04;
        let tape = crashed.replace(&bytes);
        assert_eq!(tape.header(), None, "byte {at}");
        assert_eq!(read(&tape), numbered(&crashed.entries), "byte {at}");
        let report = verify(&tape).unwrap();
        assert!(!report.is_sound() && report.first_bad_entry().is_none(), "byte {at}: {report:?}");
        // Without its header a tape cannot be sealed, so the live file stays.
        assert!(crashed.home.seal_abandoned().unwrap().iter().all(Result::is_err));
        assert_eq!(std::fs::read(&crashed.live).unwrap(), bytes);
    }
}

/// Restores the live file beside the sealed one, as a crash of the sealer before its last step leaves them.
fn sealed_and_live(crashed: &CrashedTape, bytes: &[u8]) -> PathBuf {
    crashed.replace(bytes);
    let sealed = crashed.seal().path().to_owned();
    let _ = std::fs::remove_file(crashed.live.with_extension("damaged"));
    std::fs::write(&crashed.live, bytes).unwrap();
    sealed
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path().extension().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_sealer_that_crashed_before_removing_the_live_file_is_finished_later() {
    let crashed = CrashedTape::new(&[mixed()]);
    let directory = crashed.live.parent().unwrap();
    let sealed = sealed_and_live(&crashed, &crashed.bytes);
    let before = std::fs::read(&sealed).unwrap();
    crashed.home.seal_abandoned().unwrap();
    assert_eq!(names(directory), ["tape"]);
    assert_eq!(std::fs::read(&sealed).unwrap(), before);

    // A damaged live file is kept after a crash, too, because it is the only copy of the unreadable parts.
    let mut damaged = crashed.bytes.clone();
    damaged[crashed.ends[2] + 9] ^= 1;
    sealed_and_live(&crashed, &damaged);
    crashed.home.seal_abandoned().unwrap();
    assert_eq!(names(directory), ["damaged", "tape"]);
    assert_eq!(std::fs::read(crashed.live.with_extension("damaged")).unwrap(), damaged);
}

#[test]
fn a_live_file_beside_a_broken_sealed_one_is_sealed_again() {
    let crashed = CrashedTape::new(&[mixed()]);
    for keep in [0, 100, 400] {
        let sealed = sealed_and_live(&crashed, &crashed.bytes);
        let whole = std::fs::read(&sealed).unwrap();
        std::fs::write(&sealed, &whole[..keep]).unwrap();
        assert!(crashed.home.seal_abandoned().unwrap().iter().all(Result::is_ok));
        assert_eq!(names(crashed.live.parent().unwrap()), ["tape"]);
        assert_eq!(
            read(&Tape::open(&sealed).unwrap()),
            numbered(&crashed.entries),
            "only {keep} bytes were left"
        );
    }
}
