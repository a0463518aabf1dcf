//! Tapes: any file can be read to its end, and every entry read from a damaged tape is one that was written.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use scrubjay_core::entry::Entry;
use scrubjay_core::export::ImportedEntry;
use scrubjay_tape::format::frame;
use scrubjay_tape::format::header::{self, Header, Layout};
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::format::seal::write_sealed;
use scrubjay_tape::format::verify::verify;
use tempfile::TempDir;

use crate::settings;

/// The directory of the files: in memory if the system has a file system there, because each run writes several.
static PLACE: LazyLock<TempDir> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("there is room for a file")
});

static HEADER: LazyLock<Header> = LazyLock::new(|| {
    let facts = r#"{"id":"0123456789abcdef","name":"fuzz","transport":"stdio","started_wall_ns":1,"part":1,"recorder":"0"}"#;
    serde_json::from_str(facts).expect("these are the facts of a tape")
});

static ENTRY: LazyLock<ImportedEntry> = LazyLock::new(|| {
    let facts = r#"{"wall_ns":1,"since_start_ns":0,"direction":"client_to_server","transport":"stdio","kind":"message",
        "via":"files","connection":3,"operation":1,"terminator":"lf","applied_rules":["cap"],"interception":["changed"],"raw":""}"#;
    serde_json::from_str(facts).expect("these are the facts of an entry")
});

/// From this mode on a tape is sealed before it is damaged: that takes much longer.
const SEALED: u8 = 224;

/// Checks a file: the raw bytes, or a tape with them as payloads that is then damaged.
pub fn check(data: &[u8]) {
    let Some(([mode, seed], rest)) = settings(data) else { return };
    if mode == 0 {
        let path = write_file("raw.live", rest);
        if let Ok(tape) = Tape::open(&path) {
            let read = read(&tape, 0);
            consistent(&tape, &read, seed);
        }
        return;
    }
    let payloads: Vec<&[u8]> = rest.split(|byte| *byte == 0xff).take(12).collect();
    let (edits, payloads) =
        payloads.split_first().map_or((&[][..], &[][..]), |(edits, payloads)| (*edits, payloads));
    let mut bytes = header::encode(&HEADER, Layout::Live);
    for (number, payload) in payloads.iter().enumerate() {
        frame::encode_head(number as u64, &entry(number, payload), &mut bytes);
        bytes.extend_from_slice(payload);
    }
    if mode >= SEALED {
        bytes = sealed(&write_file("whole.live", &bytes));
    }
    let whole = bytes.clone();
    damage(&mut bytes, edits, (mode & 1 == 1).then_some(seed));
    let path = write_file("damaged.live", &bytes);
    let Ok(tape) = Tape::open(&path) else {
        assert_ne!(bytes, whole, "a tape that is whole opens");
        return;
    };
    let found = read(&tape, 0);
    for (number, payload) in &found {
        let written = payloads.get(usize::try_from(*number).unwrap_or(usize::MAX));
        assert_eq!(Some(payload.as_slice()), written.copied(), "entry {number} is what was written");
    }
    consistent(&tape, &found, seed);
    if bytes == whole {
        assert_eq!(found.len(), payloads.len(), "nothing is missing of a tape that is whole");
        assert!(verify(&tape).expect("the file can be read").is_sound());
    }
}

fn entry<'a>(number: usize, payload: &'a [u8]) -> Entry<'a> {
    Entry { since_start_ns: number as u64, ..ENTRY.entry(payload) }
}

/// Alters bytes and cuts off the end. Each edit is three bytes: two for the position, one to xor.
fn damage(bytes: &mut Vec<u8>, edits: &[u8], cut: Option<u8>) {
    for edit in edits.chunks_exact(3).take(4) {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len().max(1);
        bytes[place] ^= edit[2];
    }
    if let Some(cut) = cut {
        bytes.truncate(bytes.len().saturating_sub(usize::from(cut)));
    }
}

fn write_file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PLACE.path().join(name);
    std::fs::write(&path, bytes).expect("there is room for a file");
    path
}

fn sealed(live: &Path) -> Vec<u8> {
    let target = PLACE.path().join("sealed.tape");
    let tape = Tape::open(live).expect("it is whole");
    let damaged = write_sealed(&tape, &target).expect("there is room for a file");
    assert!(!damaged, "it is whole");
    std::fs::read(target).expect("it was just written")
}

fn read(tape: &Tape, from: u64) -> Vec<(u64, Vec<u8>)> {
    let mut entries = tape.entries_from(from).expect("the file can be read");
    let mut found = Vec::new();
    while let Some((number, entry)) = entries.next().expect("the file can be read") {
        found.push((number, entry.payload.to_vec()));
    }
    found
}

/// Checks that another way of reading a tape finds the same entries; the seed chooses the way.
fn consistent(tape: &Tape, found: &[(u64, Vec<u8>)], seed: u8) {
    assert!(found.is_sorted_by(|(a, _), (b, _)| a < b), "entries come in their order, each once");
    if seed % 2 == 0 {
        let report = verify(tape).expect("the file can be read");
        assert_eq!(report.entries, found.len() as u64);
        if report.is_sound() {
            assert!(
                found.iter().map(|(number, _)| *number).eq(0..found.len() as u64),
                "a sound tape has no gap"
            );
        }
    } else if let Some((middle, _)) = found.get(found.len() / 2) {
        let behind = read(tape, *middle);
        assert_eq!(behind, found[found.len() / 2..], "read from entry {middle} on");
    }
}
