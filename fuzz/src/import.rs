//! Exports and imports: an imported entry survives the round trip through a frame, and through an export.

use scrubjay_core::entry::Entry;
use scrubjay_core::export::{ImportedEntry, entry_json};
use scrubjay_core::reading::EntryReader;
use scrubjay_tape::format::frame::{self, DecodedFrame};
use scrubjay_tape::format::header::{self, Header, Layout};
use serde::Deserialize;

#[derive(Deserialize)]
struct FirstLine {
    tape: Header,
}

/// Checks a JSON Lines export.
pub fn check(data: &[u8]) {
    let mut reader = EntryReader::default();
    let mut number = 0;
    for line in data.split(|byte| *byte == b'\n').take(16) {
        if let Ok(FirstLine { tape }) = serde_json::from_slice(line) {
            same_header(&tape.fitted());
        }
        let Ok(imported) = serde_json::from_slice::<ImportedEntry>(line) else { continue };
        let Ok(payload) = imported.payload() else { continue };
        let entry = imported.entry(&payload);
        same_frame(number, &entry);
        let reading = reader.read(&entry);
        let json = serde_json::to_string(&entry_json(number, &entry, &reading)).expect("it is plain data");
        let again: ImportedEntry = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
        let again_payload = again.payload().expect("an export has its bytes");
        let read = again.entry(&again_payload);
        // If an entry of a leg has no operation, its export has the one that the reader computed.
        let expected = Entry {
            operation: read.operation.filter(|_| entry.operation.is_none()).or(entry.operation),
            ..entry
        };
        let expected =
            Entry { operation: if read.operation.is_none() { None } else { expected.operation }, ..expected };
        assert_eq!(read, expected, "{json}");
        number += 1;
    }
    // As the footer of its tape stores them.
    let totals = reader.finish();
    let json = serde_json::to_vec(&totals).expect("totals are plain data");
    serde_json::from_slice::<serde_json::Value>(&json).expect("and JSON");
}

fn same_header(written: &Header) {
    for layout in [Layout::Live, Layout::Sealed] {
        let mut bytes = header::encode(written, layout);
        let length = bytes.len();
        bytes.extend_from_slice(b"more");
        let (read, its_layout, version, body) = header::decode(&bytes).expect("what is written can be read");
        assert_eq!((&read, its_layout, version, body), (written, layout, header::VERSION, length));
    }
}

fn same_frame(number: u64, entry: &Entry<'_>) {
    let mut bytes = Vec::new();
    frame::encode_head(number, entry, &mut bytes);
    bytes.extend_from_slice(entry.payload);
    let DecodedFrame::Frame(read, length) = frame::decode(number, &bytes) else {
        panic!("no frame: {entry:?}")
    };
    assert_eq!(length, bytes.len());
    let cut = entry.via.is_some_and(|via| via.len() > 256);
    let expected = if cut { Entry { via: read.via, ..*entry } } else { *entry };
    assert_eq!(read, expected);
    assert!(entry.via.unwrap_or_default().starts_with(read.via.unwrap_or_default()));
    assert_eq!(
        frame::decode(number + 1, &bytes),
        DecodedFrame::Damaged,
        "a frame is sound only in its place"
    );
}
