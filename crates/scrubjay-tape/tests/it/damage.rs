//! Damage of sealed tapes: after a flipped byte or a cut, intact entries are read and lost ones are named.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use proptest::prelude::*;
use scrubjay_tape::format::reader::{OpenError, Tape, TapeState};
use scrubjay_tape::format::seal::write_sealed;
use scrubjay_tape::format::sealed::{BlockRef, Footer};
use scrubjay_tape::format::verify::{VerifyReport, verify};
use tempfile::TempDir;

use crate::fixture::{Owned, any_entry, home, numbered, read, record_sealed, scratch};
use crate::random::Random;

/// A sealed tape to be damaged, with its entries.
struct DamagedTape {
    directory: TempDir,
    bytes: Vec<u8>,
    entries: Vec<Owned>,
    header_bytes: usize,
    blocks: Vec<BlockRef>,
    /// The position of the footer, and its content.
    footer: usize,
    footer_content: Footer,
}

impl DamagedTape {
    fn new(entries: Vec<Owned>) -> Self {
        let directory = scratch();
        let path = record_sealed(&home(&directory), &entries);
        let tape = Tape::open(&path).unwrap();
        let report = verify(&tape).unwrap();
        assert!(report.is_sound() && report.head.is_some(), "{report:?}");
        assert_eq!(report.entries, entries.len() as u64);
        assert_eq!(read(&tape), numbered(&entries));
        let bytes = std::fs::read(&path).unwrap();
        let footer_content = tape.footer().unwrap().clone();
        let blocks = footer_content.blocks.clone();
        let header_bytes = 20 + u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
        let footer = blocks.last().map_or(header_bytes, |block| extent(block).end);
        Self { directory, bytes, entries, header_bytes, blocks, footer, footer_content }
    }

    fn copy(&self) -> PathBuf {
        self.directory.path().join("copy.tape")
    }

    /// Checks the properties of every altered copy; returns the entries that can be read.
    fn check(&self, damaged: &[u8], what: &str) -> Option<(BTreeMap<u64, Owned>, VerifyReport)> {
        std::fs::write(self.copy(), damaged).unwrap();
        let tape = match Tape::open(&self.copy()) {
            Ok(tape) => tape,
            Err(OpenError::Header { .. }) => return None,
            Err(e) => panic!("{what}: {e:?}"),
        };
        assert!(tape.footer().is_none_or(|footer| *footer == self.footer_content), "{what}: another footer");
        let read = read(&tape);
        assert!(read.is_sorted_by(|(a, _), (b, _)| a < b), "{what}: out of order");
        for (number, entry) in &read {
            let original = usize::try_from(*number).ok().and_then(|n| self.entries.get(n));
            assert_eq!(Some(entry), original, "{what}: entry {number} differs");
        }
        let left: BTreeMap<u64, Owned> = read.into_iter().collect();
        let report = verify(&tape).unwrap();
        assert!(!report.is_sound(), "{what}: not noticed");
        assert_eq!(report.head, None, "{what}: the chain is reported as intact");
        assert_eq!(report.entries, left.len() as u64, "{what}: how many entries can be read");
        if let Some(named) = report.first_bad_entry() {
            assert!((0..named).all(|n| left.contains_key(&n)), "{what}: not all before {named} can be read");
        }
        // Without header and blocks it is unknown how many entries a tape had.
        let lost = (0..self.entries.len() as u64).find(|n| !left.contains_key(n));
        if let Some(lost) = lost.filter(|_| tape.state() == TapeState::Sealed) {
            let named = report.first_bad_entry();
            assert!(named.is_some_and(|named| named <= lost), "{what}: {lost} is lost, {named:?} is named");
        }
        Some((left, report))
    }

    /// Checks a copy that differs from the original only in the range `altered`.
    fn check_at(&self, damaged: &[u8], altered: Range<usize>, what: &str) {
        let Some((left, report)) = self.check(damaged, what) else {
            assert!(altered.start < self.header_bytes, "{what}: does not open");
            let whole_block = self.blocks.iter().any(|b| is_apart(&extent(b), &altered));
            assert!(!whole_block, "{what}: does not open, and has a whole block");
            return;
        };
        for block in self.blocks.iter().filter(|b| is_apart(&extent(b), &altered)) {
            assert!(numbers(block).all(|n| left.contains_key(&n)), "{what}: {block:?} is whole");
        }
        let in_place = damaged.len() == self.bytes.len();
        if in_place && (altered.end <= self.header_bytes || altered.start >= self.footer) {
            assert_eq!(report.first_bad_entry(), None, "{what}: no entry is damaged");
            assert_eq!(left.len(), self.entries.len(), "{what}: all can be read");
        }
    }

    fn flip(&self, at: usize, with: u8) {
        let mut damaged = self.bytes.clone();
        damaged[at] ^= with;
        self.check_at(&damaged, at..at + 1, &format!("byte {at} xor {with:#04x}"));
    }

    fn cut(&self, length: usize) {
        let what = format!("cut at {length}");
        let Some((left, report)) = self.check(&self.bytes[..length], &what) else {
            assert!(length < self.header_bytes, "{what}: does not open");
            return;
        };
        for block in self.blocks.iter().filter(|b| extent(b).end <= length) {
            assert!(numbers(block).all(|n| left.contains_key(&n)), "{what}: {block:?} is whole");
        }
        if length < self.footer {
            let end = self.blocks.iter().rfind(|b| extent(b).end <= length).map_or(0, BlockRef::end);
            assert!(report.first_bad_entry() >= Some(end), "{what}: {report:?}");
        }
    }
}

fn extent(block: &BlockRef) -> Range<usize> {
    let start = usize::try_from(block.offset).unwrap();
    start..start + 64 + block.stored_bytes as usize
}

fn numbers(block: &BlockRef) -> Range<u64> {
    block.first_entry..block.end()
}

fn is_apart(block: &Range<usize>, altered: &Range<usize>) -> bool {
    block.end <= altered.start || block.start >= altered.end
}

/// Messages that come in a burst have the same times: frames of equal messages are nearly equal.
fn burst() -> Vec<Owned> {
    (0..40).map(|n| Owned::message([r#"{"a":1}"#, r#"{"a":2}"#, r#"{"b":1}"#][n * n % 7 % 3])).collect()
}

/// Five blocks of long messages that compress well: a small file.
fn compressible() -> Vec<Owned> {
    let mut random = Random::new(5);
    (0..20).map(|_| Owned::message(random.bytes(7).repeat(8_000 + random.below(2_000)))).collect()
}

/// Five blocks of messages of all sizes that do not compress, some of them larger than a block.
fn incompressible() -> Vec<Owned> {
    let mut random = Random::new(6);
    let sizes =
        [0, 10, 900, 40_000, 300_000, 100_000, 60_000, 31, 70_000, 200_000, 2_000, 90_000, 260_000, 5];
    let mut entries: Vec<Owned> = sizes.iter().map(|size| Owned::message(random.bytes(*size))).collect();
    entries.extend((0..200).map(|n| Owned { since_start_ns: n, ..Owned::message(random.bytes(100)) }));
    entries
}

#[test]
fn a_flipped_byte_anywhere_is_detected() {
    for entries in [Vec::new(), vec![Owned::message(r#"{"jsonrpc":"2.0"}"#)]] {
        let sealed = DamagedTape::new(entries);
        for at in 0..sealed.bytes.len() {
            for with in [0x01, 0x10, 0x80, 0xFF] {
                sealed.flip(at, with);
            }
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_in_a_burst_is_detected() {
    let sealed = DamagedTape::new(burst());
    let mut random = Random::new(7);
    for at in 0..sealed.bytes.len() {
        // Equal frames compress to references, so a flipped bit can make the decompressor repeat or move whole frames.
        let tries = if at >= sealed.header_bytes + 64 && at < sealed.footer { 25 } else { 4 };
        for _ in 0..tries {
            sealed.flip(at, u8::try_from(1 + random.below(255)).unwrap());
        }
    }
}

#[test]
fn a_flipped_byte_anywhere_in_several_blocks_is_detected() {
    let sealed = DamagedTape::new(compressible());
    assert!(sealed.blocks.len() >= 4, "{}", sealed.blocks.len());
    let mut random = Random::new(8);
    for at in (0..sealed.bytes.len()).step_by(3) {
        sealed.flip(at, u8::try_from(1 + random.below(255)).unwrap());
    }
}

#[test]
fn a_damaged_block_head_loses_no_entry() {
    let sealed = DamagedTape::new(compressible());
    for block in &sealed.blocks {
        let mut damaged = sealed.bytes.clone();
        let head = extent(block).start..extent(block).start + 64;
        damaged[head].fill(0xAA);
        let (left, report) = sealed.check(&damaged, "head").unwrap();
        assert_eq!(left.len(), sealed.entries.len());
        assert_eq!(report.first_bad_entry(), Some(block.first_entry));
    }
}

#[test]
fn a_tape_cut_off_anywhere_is_read_up_to_the_cut() {
    for entries in [Vec::new(), vec![Owned::message("x")], burst()] {
        let sealed = DamagedTape::new(entries);
        (0..sealed.bytes.len()).for_each(|length| sealed.cut(length));
    }
    let sealed = DamagedTape::new(compressible());
    (0..sealed.bytes.len()).step_by(5).for_each(|length| sealed.cut(length));
    for block in &sealed.blocks {
        for length in [extent(block).start, extent(block).start + 64, extent(block).end] {
            sealed.cut(length);
        }
    }
}

#[test]
fn random_damage_to_a_large_tape_is_detected() {
    let sealed = DamagedTape::new(incompressible());
    assert!(sealed.blocks.len() >= 4, "{}", sealed.blocks.len());
    let mut random = Random::new(9);
    let length = sealed.bytes.len();
    for _ in 0..12 {
        sealed.flip(random.below(length), 0x40);
        sealed.cut(random.below(length));
        // Noise, zeros, an insertion and a removal, each at a random position.
        let (at, size) = (random.below(length), 1 + random.below(100_000));
        let altered = at..(at + size).min(length);
        let mut noisy = sealed.bytes.clone();
        noisy[altered.clone()].copy_from_slice(&random.bytes(altered.len()));
        sealed.check_at(&noisy, altered.clone(), &format!("noise at {altered:?}"));
        let mut blank = sealed.bytes.clone();
        blank[altered.clone()].fill(0);
        sealed.check_at(&blank, altered.clone(), &format!("zeros at {altered:?}"));
        let mut longer = sealed.bytes.clone();
        longer.splice(at..at, random.bytes(size));
        sealed.check_at(&longer, at..at, &format!("{size} bytes more at {at}"));
        let mut shorter = sealed.bytes.clone();
        shorter.drain(altered.clone());
        sealed.check_at(&shorter, altered.clone(), &format!("{altered:?} taken out"));
    }
}

#[test]
fn bytes_inserted_or_removed_between_blocks_are_detected() {
    let sealed = DamagedTape::new(compressible());
    let mut seams: Vec<usize> = sealed.blocks.iter().map(|b| extent(b).start).collect();
    seams.extend([sealed.footer, sealed.bytes.len() - 56, sealed.bytes.len()]);
    for seam in seams {
        for more in [&b"\0"[..], b"SJBK", &[0; 100]] {
            let mut damaged = sealed.bytes.clone();
            damaged.splice(seam..seam, more.iter().copied());
            sealed.check_at(&damaged, seam..seam, &format!("{more:?} put in at {seam}"));
        }
        let mut damaged = sealed.bytes.clone();
        damaged.remove(seam - 1);
        sealed.check_at(&damaged, seam - 1..seam, &format!("byte taken out before {seam}"));
    }
}

#[test]
fn removed_duplicated_and_swapped_blocks_are_detected() {
    let sealed = DamagedTape::new(compressible());
    let bytes = |block: &BlockRef| sealed.bytes[extent(block)].to_vec();
    for (n, block) in sealed.blocks.iter().enumerate() {
        let mut without = sealed.bytes.clone();
        without.drain(extent(block));
        let what = format!("block {n} taken out");
        sealed.check_at(&without, extent(block), &what);
        let (_, report) = sealed.check(&without, &what).unwrap();
        assert_eq!(report.first_bad_entry(), Some(block.first_entry), "{what}");
        let mut entries = Tape::open(&sealed.copy()).unwrap().entries().unwrap();
        while entries.next().unwrap().is_some() {}
        let named: Vec<_> = entries.damage().iter().map(|d| d.entry).collect();
        assert_eq!(named, [Some(block.first_entry)], "{what}: reading the entries must report it too");

        let mut doubled = sealed.bytes.clone();
        doubled.splice(extent(block).end..extent(block).end, bytes(block));
        let (left, _) = sealed.check(&doubled, &format!("block {n} doubled")).unwrap();
        assert_eq!(left.len(), sealed.entries.len());
    }
    for (n, pair) in sealed.blocks.windows(2).enumerate() {
        let both = extent(&pair[0]).start..extent(&pair[1]).end;
        let mut swapped = sealed.bytes.clone();
        swapped.splice(both, bytes(&pair[1]).into_iter().chain(bytes(&pair[0])));
        let (left, _) = sealed.check(&swapped, &format!("blocks {n} and the next swapped")).unwrap();
        assert_eq!(left.len(), sealed.entries.len());
    }
}

#[test]
fn the_report_says_which_part_is_damaged() {
    let sealed = DamagedTape::new(burst());
    let reported = |at: usize| {
        let mut damaged = sealed.bytes.clone();
        damaged[at] ^= 1;
        let (_, report) = sealed.check(&damaged, "one part").unwrap();
        report.damage.iter().map(|d| d.what.as_str()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(reported(30), "the tape's header is damaged");
    assert_eq!(reported(sealed.footer + 10), "the footer is damaged; the entries are not");
    assert_eq!(reported(sealed.footer + 70), "the footer is damaged, or does not belong here");
    assert_eq!(reported(sealed.bytes.len() - 1), "the tape's last bytes are damaged; the entries are not");
    let block = reported(sealed.header_bytes + 64 + 40);
    assert!(block.contains("cannot be trusted: its block was altered"), "{block}");
}

#[test]
fn intact_entries_are_exported_with_their_numbers() {
    let sealed = DamagedTape::new(compressible());
    for (n, lost) in sealed.blocks.iter().enumerate() {
        let mut damaged = sealed.bytes.clone();
        damaged[extent(lost)].fill(0);
        let (left, _) = sealed.check(&damaged, &format!("block {n}")).unwrap();
        assert_eq!(left.len(), sealed.entries.len() - lost.entries as usize);
        let once = sealed.directory.path().join("once.tape");
        assert!(write_sealed(&Tape::open(&sealed.copy()).unwrap(), &once).unwrap());
        // An export of the export reports the same damage.
        let twice = sealed.directory.path().join("twice.tape");
        assert!(write_sealed(&Tape::open(&once).unwrap(), &twice).unwrap());
        for path in [once, twice] {
            let tape = Tape::open(&path).unwrap();
            assert_eq!(read(&tape).into_iter().collect::<BTreeMap<_, _>>(), left);
            let report = verify(&tape).unwrap();
            assert_eq!(report.first_bad_entry(), Some(lost.first_entry), "block {n}: {report:?}");
            assert_eq!(report.entries, left.len() as u64);
            assert!(report.head.is_some(), "the chain is as it was sealed");
            assert_eq!(report.damage.len(), 1, "reported once: {:?}", report.damage);
        }
    }
}

#[test]
fn an_export_of_a_damaged_tape_is_marked_incomplete() {
    let sealed = DamagedTape::new(compressible());
    let target = sealed.directory.path().join("export.tape");
    let export = |bytes: &[u8]| {
        std::fs::write(sealed.copy(), bytes).unwrap();
        write_sealed(&Tape::open(&sealed.copy()).unwrap(), &target).unwrap()
    };
    assert!(!export(&sealed.bytes), "an intact tape must not be exported as cut");
    for block in &sealed.blocks {
        for length in [extent(block).start, extent(block).start + 64, extent(block).end - 1] {
            assert!(export(&sealed.bytes[..length]), "cut at {length}");
        }
        let mut without = sealed.bytes.clone();
        without.drain(extent(block));
        assert!(export(&without), "without {block:?}");
    }
    // If only the end is damaged, every entry is there.
    for at in [sealed.footer + 10, sealed.footer + 70, sealed.bytes.len() - 1] {
        let mut damaged = sealed.bytes.clone();
        damaged[at] ^= 1;
        assert!(!export(&damaged), "byte {at}");
        assert_eq!(read(&Tape::open(&target).unwrap()), numbered(&sealed.entries));
    }
}

#[test]
fn a_block_is_read_as_far_as_it_decompresses() {
    let mut random = Random::new(10);
    // Hexadecimal compresses, but not to nothing: the damage hits the second half.
    let text = |random: &mut Random| random.bytes(500).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let sealed = DamagedTape::new((0..240).map(|_| Owned::message(text(&mut random))).collect());
    assert_eq!(sealed.blocks.len(), 1);
    let stored = extent(&sealed.blocks[0]);
    let half = stored.start + stored.len() / 2;
    let mut damaged = sealed.bytes.clone();
    damaged[half + 5_000..stored.end].fill(0xFF);
    let (left, report) = sealed.check(&damaged, "the second half").unwrap();
    assert!(left.len() >= 100, "{} are left", left.len());
    assert!(report.first_bad_entry() >= Some(100), "{report:?}");
}

/// One kind of damage to a file; positions are fractions of its length.
#[derive(Clone, Debug)]
enum Harm {
    Flip(f64, u8),
    Fill(f64, usize, u8),
    PutIn(f64, Vec<u8>),
    TakeOut(f64, usize),
    Cut(f64),
    Copy(f64, f64, usize),
}

impl Harm {
    fn apply(&self, bytes: &mut Vec<u8>) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a position in a small file"
        )]
        let offset = |part: f64| ((bytes.len() as f64 * part) as usize).min(bytes.len().saturating_sub(1));
        let range = |part: f64, size: usize| offset(part)..(offset(part) + size).min(bytes.len());
        match self {
            _ if bytes.is_empty() => {}
            Self::Flip(at, with) => {
                let at = offset(*at);
                bytes[at] ^= with;
            }
            Self::Fill(at, size, with) => {
                let range = range(*at, *size);
                bytes[range].fill(*with);
            }
            Self::PutIn(at, more) => {
                let at = offset(*at);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::TakeOut(at, size) => {
                let range = range(*at, *size);
                bytes.drain(range);
            }
            Self::Cut(at) => {
                let at = offset(*at);
                bytes.truncate(at);
            }
            Self::Copy(from, to, size) => {
                let (from, to) = (range(*from, *size), offset(*to));
                let copied = bytes[from].to_vec();
                let end = (to + copied.len()).min(bytes.len());
                bytes[to..end].copy_from_slice(&copied[..end - to]);
            }
        }
    }
}

fn any_harm() -> impl Strategy<Value = Harm> {
    let part = || 0.0..1.0;
    prop_oneof![
        4 => (part(), 1u8..).prop_map(|(at, with)| Harm::Flip(at, with)),
        1 => (part(), 1usize..200, any::<u8>()).prop_map(|(at, size, with)| Harm::Fill(at, size, with)),
        1 => (part(), prop::collection::vec(any::<u8>(), 1..100)).prop_map(|(at, more)| Harm::PutIn(at, more)),
        1 => (part(), 1usize..200).prop_map(|(at, size)| Harm::TakeOut(at, size)),
        1 => part().prop_map(Harm::Cut),
        1 => (part(), part(), 1usize..200).prop_map(|(from, to, size)| Harm::Copy(from, to, size)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn random_damage_to_random_tapes_is_detected(
        entries in prop::collection::vec(any_entry(prop::collection::vec(any::<u8>(), 0..100)), 0..20),
        harm in prop::collection::vec(any_harm(), 1..5),
    ) {
        let sealed = DamagedTape::new(entries);
        let mut damaged = sealed.bytes.clone();
        harm.iter().for_each(|one| one.apply(&mut damaged));
        if damaged != sealed.bytes {
            sealed.check(&damaged, &format!("{harm:?}"));
        }
    }
}
