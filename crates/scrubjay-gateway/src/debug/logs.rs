//! A log line as the endpoints show it: time, level, message, and all other fields as details.

use serde_json::{Map, Value, json};

/// A longer line is shown without its details.
const LINE_BYTES_MAX: usize = 32 * 1024;
/// How many characters of its message are shown then.
const MESSAGE_CHARS_MAX: usize = 4000;

/// Turns a line, a flat JSON object, into an entry. The text of any other line becomes the message.
pub(super) fn entry(line: &str, wall_ns: u64) -> String {
    let mut fields = match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::from_iter([("message".to_owned(), line.into())]),
    };
    let mut text = |key: &str| match fields.remove(key) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let (level, message) = (text("level"), text("message"));
    fields.remove("timestamp");
    let level = if level.is_empty() { "INFO".to_owned() } else { level };
    let mut entry = json!({ "timestamp": wall_ns / 1_000_000, "level": level, "message": message });
    if line.len() > LINE_BYTES_MAX {
        entry["message"] = message.chars().take(MESSAGE_CHARS_MAX).collect::<String>().into();
        entry["details"] = json!({ "omitted": true, "bytes": line.len() });
    } else if !fields.is_empty() {
        entry["details"] = fields.into();
    }
    // Parsing removed the escapes of characters that act on a terminal.
    scrubjay_core::inert::inert_json(&entry.to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Value {
        serde_json::from_str(&entry(line, 7_000_000)).unwrap()
    }

    #[test]
    fn a_line_is_taken_apart() {
        let line = r#"{"timestamp":"x","level":"WARN","message":"it broke","backend":"a","target":"t"}"#;
        let expected = json!({ "timestamp": 7, "level": "WARN", "message": "it broke",
            "details": { "backend": "a", "target": "t" } });
        assert_eq!(parsed(line), expected);
        assert_eq!(parsed("odd"), json!({ "timestamp": 7, "level": "INFO", "message": "odd" }));
        assert_eq!(parsed("[]")["message"], "[]");
    }

    #[test]
    fn what_is_too_long_is_cut_and_nothing_acts() {
        let long = json!({ "level": "INFO", "message": "é".repeat(40_000), "more": "x".repeat(40_000) });
        let shown = parsed(&long.to_string());
        assert_eq!(shown["message"].as_str().unwrap().chars().count(), MESSAGE_CHARS_MAX);
        assert_eq!(shown["details"]["omitted"], true);
        assert!(entry(&long.to_string(), 0).len() < LINE_BYTES_MAX);
        assert!(
            !entry(r#"{"message":"\u001b[2J\u009b\u202e"}"#, 0).contains(['\u{1b}', '\u{9b}', '\u{202e}'])
        );
    }
}
