//! Forged tapes with valid checksums but wrong lengths, numbers and offsets.
//!
//! Reading one must not panic, loop forever, allocate as much as a forged length claims, or return an entry that was
//! never written. The tests run in a process with at most 250 MB of address space.

use std::path::PathBuf;

use scrubjay_tape::format::header::{self, Layout};
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::sealed::{BlockRef, Footer};
use scrubjay_tape::format::verify::verify;
use tempfile::TempDir;

use crate::fixture::{Owned, header, home, numbered, read, read_from, record_live, record_sealed};
use crate::fixture::{run_in_a_process_of_its_own, scratch};
use crate::random::Random;

pub(crate) const ENTRIES: u8 = 1;
const FOOTER: u8 = 2;

#[test]
fn claimed_lengths_are_not_trusted() {
    // Threads and the allocator's arenas need some of it too. Not every system can limit it.
    let prepare = if cfg!(target_os = "linux") { "ulimit -v 250000" } else { "true" };
    run_in_a_process_of_its_own(prepare, "hostile::all_claims_in_child_process", &[]);
}

#[test]
#[ignore = "run by claimed_lengths_are_not_trusted, in a process of its own"]
fn all_claims_in_child_process() {
    forged_blocks();
    forged_block_tables();
    forged_trailers();
    forged_compressed_data();
    forged_frames();
    forged_headers();
}

/// A description of a forgery, and the change that makes it.
type ForgedFact<T> = (&'static str, fn(&mut T));

/// The parts of a valid tape, from which forged ones are built.
struct Forge {
    directory: TempDir,
    entries: Vec<Owned>,
    header: Vec<u8>,
    /// The compressed frames of each block.
    stored: Vec<Vec<u8>>,
    footer: Footer,
}

/// A tape file under construction, with valid chain and checksums.
pub(crate) struct Forgery {
    pub(crate) bytes: Vec<u8>,
    chain: [u8; 32],
}

impl Forge {
    fn new() -> Self {
        let directory = scratch();
        let mut random = Random::new(41);
        let entries: Vec<Owned> = (0..30).map(|_| Owned::message(random.bytes(20_000))).collect();
        let path = record_sealed(&home(&directory), &entries);
        let bytes = std::fs::read(&path).unwrap();
        let footer = Tape::open(&path).unwrap().footer().unwrap().clone();
        assert!(footer.blocks.len() >= 3);
        let start = |block: &BlockRef| usize::try_from(block.offset).unwrap();
        let stored = footer.blocks.iter().map(|b| bytes[start(b) + 64..][..b.stored_bytes as usize].to_vec());
        let stored = stored.collect();
        Self { directory, entries, header: bytes[..start(&footer.blocks[0])].to_vec(), stored, footer }
    }

    fn begin(&self) -> Forgery {
        Forgery::begin(&self.header)
    }

    /// Builds a tape with the given blocks and footer.
    fn forge(&self, blocks: &[BlockRef], footer: &Footer) -> Vec<u8> {
        let mut forgery = self.begin();
        for (block, stored) in blocks.iter().zip(&self.stored) {
            forgery.block(ENTRIES, block, stored);
        }
        forgery.end(footer, None)
    }

    fn lay(&self, bytes: &[u8]) -> PathBuf {
        let path = self.directory.path().join("forged.tape");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Checks that a forged tape gives only entries that were written, and is not sound; returns how many entries can
    /// be read.
    fn check(&self, bytes: &[u8], what: &str) -> usize {
        let path = self.lay(bytes);
        let tape = Tape::open(&path).unwrap();
        let found = read(&tape);
        assert!(found.is_sorted_by(|(a, _), (b, _)| a < b), "{what}");
        for (number, entry) in &found {
            assert_eq!(Some(entry), self.entries.get(usize::try_from(*number).unwrap()), "{what}: {number}");
        }
        let report = verify(&tape).unwrap();
        assert!(!report.is_sound(), "{what}");
        assert_eq!(report.entries, found.len() as u64, "{what}");
        for from in [1, u64::from(u32::MAX), u64::MAX] {
            assert!(read_from(&tape, from).iter().all(|(number, _)| *number >= from), "{what}");
        }
        found.len()
    }
}

impl Forgery {
    pub(crate) fn begin(header: &[u8]) -> Self {
        Self { bytes: header.to_vec(), chain: *blake3::hash(header).as_bytes() }
    }

    pub(crate) fn block(&mut self, kind: u8, block: &BlockRef, stored: &[u8]) {
        let mut head = vec![0; 64];
        head[..4].copy_from_slice(b"SJBK");
        head[4] = kind;
        head[8..16].copy_from_slice(&block.first_entry.to_le_bytes());
        head[16..20].copy_from_slice(&block.entries.to_le_bytes());
        head[20..24].copy_from_slice(&block.stored_bytes.to_le_bytes());
        head[24..28].copy_from_slice(&block.plain_bytes.to_le_bytes());
        self.chain = *blake3::Hasher::new()
            .update(&self.chain)
            .update(&head[..28])
            .update(stored)
            .finalize()
            .as_bytes();
        head[28..60].copy_from_slice(&self.chain);
        let crc = crc32fast::hash(&head[..60]).to_le_bytes();
        head[60..].copy_from_slice(&crc);
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(stored);
    }

    /// Adds footer and trailer; the trailer may give a wrong offset for the footer.
    pub(crate) fn end(mut self, footer: &Footer, offset: Option<u64>) -> Vec<u8> {
        let plain = serde_json::to_vec(footer).unwrap();
        let stored = zstd::bulk::compress(&plain, 3).unwrap();
        let here = self.bytes.len() as u64;
        let block = BlockRef {
            offset: here,
            first_entry: footer.metadata.total_entries,
            entries: 0,
            stored_bytes: u32::try_from(stored.len()).unwrap(),
            plain_bytes: u32::try_from(plain.len()).unwrap(),
        };
        self.block(FOOTER, &block, &stored);
        self.trailer(offset.unwrap_or(here));
        self.bytes
    }

    fn trailer(&mut self, offset: u64) {
        let mut trailer = Vec::new();
        trailer.extend_from_slice(&offset.to_le_bytes());
        trailer.extend_from_slice(&self.chain);
        trailer.extend_from_slice(&[0; 4]);
        trailer.extend_from_slice(&crc32fast::hash(&trailer).to_le_bytes());
        trailer.extend_from_slice(b"SJTAPEND");
        self.bytes.extend_from_slice(&trailer);
    }
}

#[test]
fn a_rewritten_tape_with_equal_content_is_sound() {
    let forge = Forge::new();
    let path = forge.lay(&forge.forge(&forge.footer.blocks, &forge.footer));
    let tape = Tape::open(&path).unwrap();
    assert!(verify(&tape).unwrap().is_sound(), "the test writes the format correctly");
    assert!(read(&tape) == numbered(&forge.entries));
}

fn forged_blocks() {
    let forge = Forge::new();
    let blocks = &forge.footer.blocks;
    let forged_facts: [ForgedFact<BlockRef>; 9] = [
        ("1 GiB stored", |b| b.stored_bytes = 1 << 30),
        ("4 GiB stored", |b| b.stored_bytes = u32::MAX),
        ("1 GiB plain", |b| b.plain_bytes = 1 << 30),
        ("4 GiB plain", |b| b.plain_bytes = u32::MAX),
        ("nothing plain", |b| b.plain_bytes = 0),
        ("no entries", |b| b.entries = 0),
        ("4 billion entries", |b| b.entries = u32::MAX),
        ("the last entry there can be", |b| b.first_entry = u64::MAX),
        ("numbers beyond the last", |b| {
            b.first_entry = u64::MAX - 3;
            b.entries = u32::MAX;
        }),
    ];
    for (what, change) in forged_facts {
        for n in 0..blocks.len() {
            let mut forged = blocks.clone();
            change(&mut forged[n]);
            let what = format!("block {n}: {what}");
            // With the right footer, with one forged in the same way, and without one.
            let honest = forge.forge(&forged, &forge.footer);
            let left = forge.check(&honest, &what);
            assert!(left >= 10, "{what}: {left} left");
            forge.check(
                &forge.forge(&forged, &Footer { blocks: forged.clone(), ..forge.footer.clone() }),
                &what,
            );
            forge.check(&honest[..honest.len() - 1], &what);
        }
    }
}

fn forged_block_tables() {
    let forge = Forge::new();
    let forged_facts: [ForgedFact<Vec<BlockRef>>; 12] = [
        ("no blocks", Vec::clear),
        ("one less", |t| t.truncate(t.len() - 1)),
        ("the first one last", |t| t.rotate_left(1)),
        ("all twice", |t| t.extend_from_within(..)),
        ("backwards", |t| t.reverse()),
        ("offsets beyond any file", |t| t.iter_mut().for_each(|b| b.offset = u64::MAX)),
        ("offsets beyond this file", |t| t.iter_mut().for_each(|b| b.offset += 1 << 40)),
        ("offsets shifted", |t| t.iter_mut().for_each(|b| b.offset += 1)),
        ("numbers shifted", |t| t.iter_mut().for_each(|b| b.first_entry += 1)),
        ("numbers beyond the last", |t| t.iter_mut().for_each(|b| b.first_entry = u64::MAX)),
        ("all of them 1 GiB", |t| {
            t.iter_mut().for_each(|b| (b.stored_bytes, b.plain_bytes) = (1 << 30, 1 << 30))
        }),
        ("counts", |t| t.iter_mut().for_each(|b| b.entries = u32::MAX)),
    ];
    for (what, change) in forged_facts {
        let mut footer = forge.footer.clone();
        change(&mut footer.blocks);
        let left = forge.check(&forge.forge(&forge.footer.blocks, &footer), what);
        assert_eq!(left, forge.entries.len(), "{what}: the blocks, not the footer, decide");
    }
}

fn forged_trailers() {
    let forge = Forge::new();
    let honest = forge.forge(&forge.footer.blocks, &forge.footer);
    let beyond = honest.len() as u64;
    let block = forge.footer.blocks[1].offset;
    for offset in
        [0, 1, block, beyond - 56, beyond - 1, beyond, 1 << 62, i64::MAX.cast_unsigned(), 1 << 63, u64::MAX]
    {
        let mut forgery = forge.begin();
        for (block, stored) in forge.footer.blocks.iter().zip(&forge.stored) {
            forgery.block(ENTRIES, block, stored);
        }
        let left = forge.check(&forgery.end(&forge.footer, Some(offset)), &format!("footer at {offset}"));
        assert_eq!(left, forge.entries.len(), "footer at {offset}");
    }
    // A footer that is huge, or whose length says so.
    for (stored_bytes, plain_bytes) in
        [(1 << 30, 1 << 30), (10, 1 << 30), (1 << 30, 10), (u32::MAX, u32::MAX)]
    {
        let mut forgery = forge.begin();
        for (block, stored) in forge.footer.blocks.iter().zip(&forge.stored) {
            forgery.block(ENTRIES, block, stored);
        }
        let here = forgery.bytes.len() as u64;
        let footer = BlockRef { offset: here, first_entry: 30, entries: 0, stored_bytes, plain_bytes };
        forgery.block(FOOTER, &footer, &zstd::bulk::compress(b"{}", 3).unwrap());
        forgery.trailer(here);
        let left = forge.check(&forgery.bytes, &format!("footer of {stored_bytes}, {plain_bytes}"));
        assert_eq!(left, forge.entries.len());
    }
}

/// Builds a zstd frame: a head, then blocks of 128 KiB of one byte.
fn zstd_frame(head: &[u8], repeats: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD];
    frame.extend_from_slice(head);
    for n in 0..repeats {
        // Bit 0 last, bits 1 and 2 the type (1: one byte repeated), then the size.
        let block: u32 = u32::from(n + 1 == repeats) | 1 << 1 | (128 << 10) << 3;
        frame.extend_from_slice(&block.to_le_bytes()[..3]);
        frame.push(0x20);
    }
    frame
}

fn forged_compressed_data() {
    let forge = Forge::new();
    let window_of_128_mib: &[u8] = &[0x00, 17 << 3];
    let window_of_2_tib: &[u8] = &[0x00, 31 << 3];
    // A single segment of eight bytes of size: it must be held in memory whole.
    let content_of_1_tib: &[u8] = &[0xE0, 0, 0, 0, 0, 0, 1, 0, 0];
    let content_of_100_mib: &[u8] = &[0xE0, 0, 0, 0x40, 6, 0, 0, 0, 0];
    for (what, head, repeats) in [
        ("1 GiB out of 32 KiB", &[0x00, 0x58][..], 8192),
        ("a window of 128 MiB", window_of_128_mib, 4),
        ("a window of 2 TiB", window_of_2_tib, 4),
        ("content of 1 TiB", content_of_1_tib, 4),
        ("content of 100 MiB", content_of_100_mib, 4),
    ] {
        for plain_bytes in [1000, 1 << 20] {
            let mut forge = Forge { stored: forge.stored.clone(), ..Forge::new() };
            forge.stored[1] = zstd_frame(head, repeats);
            let mut blocks = forge.footer.blocks.clone();
            blocks[1].stored_bytes = u32::try_from(forge.stored[1].len()).unwrap();
            blocks[1].plain_bytes = plain_bytes;
            blocks[2].offset = blocks[1].offset + 64 + u64::from(blocks[1].stored_bytes);
            let lost = blocks[1].entries as usize;
            let bytes = forge.forge(&blocks, &Footer { blocks: blocks.clone(), ..forge.footer.clone() });
            assert_eq!(forge.check(&bytes, what), forge.entries.len() - lost, "{what}");
        }
    }
}

fn forged_frames() {
    let scratch = scratch();
    let home = home(&scratch);
    let entries: Vec<Owned> = (0..10).map(|n| Owned::message(format!("{{\"n\":{n}}}"))).collect();
    let path = record_live(&home, &entries);
    let honest = std::fs::read(&path).unwrap();
    let body = header::encode(&header(1), Layout::Live).len();
    for claim in [0, 1, 23, 1 << 20, (1 << 30) - 8, 1 << 30, (1 << 30) + 1, u32::MAX] {
        let mut bytes = honest.clone();
        bytes[body..body + 4].copy_from_slice(&claim.to_le_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let tape = Tape::open(&path).unwrap();
        assert_eq!(read(&tape), numbered(&entries)[1..], "a length of {claim}");
        assert_eq!(verify(&tape).unwrap().first_bad_entry(), Some(0), "a length of {claim}");
    }
    // At every offset there is what looks like a frame that reaches to the end of the file.
    let mut bytes = honest[..body].to_vec();
    let size = 128 * 1024;
    for place in 0..size / 32 {
        let mut head = [0; 32];
        let rest = u32::try_from(size - place * 32 - 8).unwrap();
        head[..4].copy_from_slice(&rest.to_le_bytes());
        (head[8], head[31]) = (1, 1);
        bytes.extend_from_slice(&head);
    }
    std::fs::write(&path, &bytes).unwrap();
    let tape = Tape::open(&path).unwrap();
    assert_eq!(read(&tape), []);
    assert!(!verify(&tape).unwrap().is_sound());
}

fn forged_headers() {
    let scratch = scratch();
    let path = scratch.path().join("forged.live");
    for length in [0, 1, 64 * 1024, 1 << 30, u32::MAX] {
        let mut bytes = b"SCRUBJAY\x01\0\0\0".to_vec();
        bytes.extend_from_slice(&length.to_le_bytes());
        let crc = crc32fast::hash(&bytes).to_le_bytes();
        bytes.extend_from_slice(&crc);
        bytes.extend_from_slice(&[b' '; 500]);
        std::fs::write(&path, &bytes).unwrap();
        let message = Tape::open(&path).unwrap_err().to_string();
        assert!(message.ends_with("the tape's header is damaged"), "{length}: {message}");
    }
}

#[test]
fn a_message_that_looks_like_a_footer_is_not_taken_for_one() {
    let forge = Forge::new();
    let sealed = forge.forge(&forge.footer.blocks, &forge.footer);
    let footer = usize::try_from(forge.footer.blocks.last().unwrap().offset).unwrap();
    let home = home(&forge.directory);
    // The whole end of a sealed tape, as a message; its trailer points into the live file.
    let mut message = sealed[footer..].to_vec();
    let at = header::encode(&header(1), Layout::Live).len() + 32;
    let footer_at = message.windows(5).rposition(|w| w == b"SJBK\x02").unwrap() + at;
    let trailer = message.len() - 56;
    message[trailer..trailer + 8].copy_from_slice(&(footer_at as u64).to_le_bytes());
    let crc = crc32fast::hash(&message[trailer..trailer + 44]).to_le_bytes();
    message[trailer + 44..trailer + 48].copy_from_slice(&crc);
    let entries = [Owned::message(message)];
    let tape = Tape::open(&record_live(&home, &entries)).unwrap();
    assert_eq!(tape.footer(), None);
    assert_eq!(read(&tape), numbered(&entries));
    assert!(verify(&tape).unwrap().is_sound());
}
