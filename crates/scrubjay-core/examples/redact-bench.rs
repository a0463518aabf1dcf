//! Measures how fast clean messages pass the redactor: `cargo run --profile dist -p scrubjay-core --example
//! redact-bench`.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use scrubjay_core::redact::Redactor;
use serde_json::json;

fn main() {
    let begun = Instant::now();
    let redactor = Redactor::standard();
    println!("made in {:?}", begun.elapsed());
    for (name, message) in messages() {
        let bytes = message.as_bytes();
        let rounds = (1 << 29) / bytes.len();
        let mut best = f64::MAX;
        for _ in 0..3 {
            let begun = Instant::now();
            for _ in 0..rounds {
                black_box(redactor.redact(black_box(bytes)));
            }
            best = best.min(begun.elapsed().as_secs_f64() / rounds as f64);
        }
        let changed = redactor.redact(bytes).is_changed();
        let (_, findings) = redactor.explain(bytes);
        println!(
            "{name:24} {:>9} B  {:>9.0} MB/s  {:>9.3} us  changed: {changed} {findings:?}",
            bytes.len(),
            bytes.len() as f64 / best / 1e6,
            best * 1e6,
        );
    }
}

fn messages() -> Vec<(&'static str, String)> {
    let source = include_str!("../src/redact/walk.rs");
    let prose = "The recorder keeps what was said, in order, and hands it on unchanged. See https://example.com/docs for how. ";
    let result = |text: &str| {
        json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [{ "type": "text", "text": text }] } })
            .to_string()
    };
    let tool = |i: usize| {
        json!({ "name": format!("read_file_{i}"), "description": "Read the complete contents of a file from the file system. Handles text encodings and gives errors that say what is wrong. Only works within allowed directories.",
            "inputSchema": { "type": "object", "properties": { "path": { "type": "string" }, "head": { "type": "number", "description": "Only the first lines" } }, "required": ["path"] } })
    };
    let tools =
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": (0..25).map(tool).collect::<Vec<_>>() } })
            .to_string();
    let rows: Vec<_> = (0..100)
        .map(|i| json!({ "id": i, "name": format!("item {i}"), "price": 1.25 * f64::from(i), "tags": ["new", "blue"], "created_at": "2026-01-01T12:00:00Z" }))
        .collect();
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": "write_file", "arguments": { "path": "/work/notes.md", "content": prose.repeat(4) }, "_meta": { "progressToken": 7 } } }).to_string();
    let image: String = (0..1_000_000u32)
        .map(|i| {
            let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            char::from(digits[(i.wrapping_mul(2_654_435_761).rotate_left(7) >> 26) as usize])
        })
        .collect();
    // Sensitive names without values, as in logs and paths.
    let log = |i: usize| {
        format!(
            "2026-01-02T03:04:{:02}.{:03}Z INFO auth::token conn={i:06x} msg=\"token user updated, api key under review\" took_us={i}\n",
            i / 1000 % 60,
            i % 1000
        )
    };
    vec![
        ("call of 600 B", call),
        ("tool list", tools),
        ("source of 10 KB", result(&source.replace("password", "pass"))),
        ("rows of JSON", result(&json!(rows).to_string())),
        ("prose of 1 MB", result(&prose.repeat(9500))),
        ("log of 1 MB", result(&(0..8500).map(log).collect::<String>())),
        ("source of 1 MB", result(&source.repeat(90))),
        ("image of 1 MB", result(&image)),
    ]
}
