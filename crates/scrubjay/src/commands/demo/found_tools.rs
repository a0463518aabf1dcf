//! Prints the tools that the demo finds for a task.

use scrubjay_core::entry::Direction;
use scrubjay_tape::format::reader::Tape;
use serde_json::Value;

use crate::render::{Align, Table};

/// Prints the tools of the last answer on a tape that found any.
pub(super) fn print(tape: &Tape) -> anyhow::Result<()> {
    let mut entries = tape.entries()?;
    let mut found = Value::Null;
    while let Some((_, entry)) = entries.next()? {
        if entry.via.is_none() && entry.direction == Direction::ServerToClient {
            let answer: Value = serde_json::from_slice(entry.payload).unwrap_or_default();
            if answer["result"]["structuredContent"]["tools"].is_array() {
                found = answer["result"]["structuredContent"].clone();
            }
        }
    }
    let mut table = Table::new(&[("FOUND", Align::Left), ("SCORE", Align::Right), ("WHY", Align::Left)]);
    for tool in found["tools"].as_array().into_iter().flatten() {
        let words: Vec<&str> =
            tool["why"].as_array().into_iter().flatten().filter_map(|why| why["word"].as_str()).collect();
        let score = format!("{:.1}", tool["score"].as_f64().unwrap_or_default());
        table.row(false, &[tool["name"].as_str().unwrap_or_default(), &score, &words.join(", ")]);
    }
    Table::note().line("")?;
    table.print()
}
