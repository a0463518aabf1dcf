//! The forwarded bytes and those on the tape are the received bytes, in both directions, for all kinds of input.
//!
//! The server is `tee`: all that it receives is in a file, and is also its answer.

use proptest::prelude::*;

use crate::harness::{DOWN, ExportedTape, Lab, UP};

const MIB: usize = 1 << 20;

/// A line that other programs would reject or change, and the defects that the recorder reports for it.
struct OddLine {
    line: Vec<u8>,
    ending: &'static str,
    defects: &'static [&'static str],
}

fn odd(line: impl Into<Vec<u8>>, defects: &'static [&'static str]) -> OddLine {
    OddLine { line: line.into(), ending: "\n", defects }
}

fn odd_lines() -> Vec<OddLine> {
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "é".repeat(5 * MIB));
    let deep = 100_000;
    let params = format!("{}1{}", r#"{"a":"#.repeat(deep), "}".repeat(deep));
    let every_byte: Vec<u8> = (0..=255).filter(|byte| *byte != b'\n').collect();
    vec![
        odd(
            r#"{"zzz":[],"jsonrpc":"2.0","method":"x/unknown","aaa":0,"id":123456789012345678901234567890}"#,
            &[],
        ),
        odd(r#"{"jsonrpc":"2.0","id":1.0,"method":"m","params":{"f":[1.0,1e400,-0.0,1E+2,0.1e-999]}}"#, &[]),
        odd(r#" { "jsonrpc" : "2.0" , "id":"\u0061\/", "method":"m\u00e9" , "params":{"b":1,"a":2} } "#, &[]),
        odd(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}"#, &["repeated_key"]),
        odd(r#"{"jsonrpc":"2.0","id":3,"method":"m","params":{"k":1,"k":2}}"#, &[]),
        odd(r#"[{"jsonrpc":"2.0","id":4,"method":"m"},{"jsonrpc":"2.0","method":"n"}]"#, &[]),
        odd("[]", &["empty_batch"]),
        odd(r#"{"jsonrpc":"1.0","id":null,"method":"m"}"#, &["wrong_version", "null_id"]),
        odd(&b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"\xff\xfe\"}"[..], &["invalid_utf8"]),
        odd("Listening on port 3000...", &["invalid_json"]),
        odd(r#"{"jsonrpc":"2.0","id":6,"method":"#, &["invalid_json"]),
        odd("17", &["not_a_message"]),
        odd("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"m\"}", &["byte_order_mark"]),
        odd("", &["empty"]),
        OddLine { ending: "\r\n", ..odd("", &["empty"]) },
        OddLine { ending: "\r\n", ..odd(r#"{"jsonrpc":"2.0","id":8,"method":"m"}"#, &[]) },
        OddLine { ending: "\r\n", ..odd("\r", &["empty"]) },
        odd("{\r\"jsonrpc\":\"2.0\",\"id\":9,\r\r\"method\":\"m\"}", &[]),
        odd(every_byte, &["invalid_utf8", "invalid_json"]),
        odd(format!(r#"{{"jsonrpc":"2.0","id":10,"method":"m","params":{params}}}"#), &["too_deep"]),
        odd("[".repeat(deep), &["too_deep", "invalid_json"]),
        odd(long, &[]),
        OddLine { ending: "", ..odd(r#"{"jsonrpc":"2.0","id":11,"method":"the last"}"#, &[]) },
    ]
}

/// Sends pieces through `tee`, and proves that all of it arrived everywhere.
fn relay(pieces: &[&[u8]]) -> ExportedTape {
    let lab = Lab::new();
    let mut wrapped = lab.wrap(&["tee", &lab.file("log")]).start();
    for piece in pieces {
        wrapped.send(piece);
    }
    wrapped.close_stdin();
    let received = wrapped.rest();
    assert_eq!(wrapped.leave(), 0);
    let sent = pieces.concat();
    assert_same("the server received", &sent, &lab.read("log"));
    assert_same("the client received", &sent, &received);
    let tapes = lab.tapes();
    if sent.is_empty() {
        assert!(tapes.is_empty(), "nothing was sent: {tapes:?}");
        return ExportedTape { header: serde_json::Value::Null, entries: Vec::new() };
    }
    let recorded = lab.only_tape();
    assert_same("the tape has from the client", &sent, &recorded.wire(UP));
    assert_same("the tape has from the server", &sent, &recorded.wire(DOWN));
    lab.verify();
    recorded
}

/// Compares without printing megabytes.
fn assert_same(what: &str, wanted: &[u8], got: &[u8]) {
    if wanted != got {
        let at = wanted.iter().zip(got).take_while(|(a, b)| a == b).count();
        let near = |bytes: &[u8]| bytes[at.min(bytes.len())..].iter().take(40).copied().collect::<Vec<_>>();
        panic!(
            "{what} {} bytes instead of {}, other from byte {at} on: {:?} instead of {:?}",
            got.len(),
            wanted.len(),
            near(got).escape_ascii().to_string(),
            near(wanted).escape_ascii().to_string(),
        );
    }
}

#[test]
fn odd_lines_pass_and_are_flagged() {
    let odd_lines = odd_lines();
    let sent: Vec<u8> =
        odd_lines.iter().flat_map(|odd| [&odd.line, odd.ending.as_bytes()].concat()).collect();
    // Pieces do not end where lines end: the first, small ones split every kind of line, the later ones save time.
    let mut sizes = [1, 2, 3, 5, 7, 11, 13].into_iter().cycle();
    let (mut pieces, mut rest) = (Vec::new(), sent.as_slice());
    while !rest.is_empty() {
        let size = if pieces.len() < 400 { sizes.next().unwrap() } else { 100_003 };
        let (piece, behind) = rest.split_at(size.min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    let recorded = relay(&pieces);
    for direction in [UP, DOWN] {
        let entries: Vec<_> = recorded.messages(direction).collect();
        assert_eq!(entries.len(), odd_lines.len());
        for (entry, odd) in entries.iter().zip(&odd_lines) {
            let start = odd.line[..odd.line.len().min(60)].escape_ascii().to_string();
            assert!(entry.payload == odd.line, "{start}");
            let found: Vec<&str> =
                entry.json["defects"].as_array().into_iter().flatten().filter_map(|d| d.as_str()).collect();
            assert_eq!(found, odd.defects, "{start}");
        }
    }
}

#[test]
fn a_long_numeric_id_keeps_its_digits() {
    let line = r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}"#;
    let recorded = relay(&[line.as_bytes(), b"\n"]);
    assert_eq!(recorded.entries[0].json["jsonrpc_id"], "123456789012345678901234567890");
}

/// Random bytes with many line ends, quotes, brackets and backslashes.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let telling = prop::sample::select(b"\n\n\n\r\r{}[]\",:\\ \xef\xbb\xbf\x00\x1b1e".to_vec());
    prop::collection::vec(prop_oneof![3 => telling, 1 => any::<u8>()], 0..3000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_forwarded_and_recorded_unchanged(bytes in stream(), cuts in prop::collection::vec(1usize..200, 1..20)) {
        let (mut pieces, mut rest) = (Vec::new(), bytes.as_slice());
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
        relay(&pieces);
    }
}
