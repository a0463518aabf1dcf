//! The values that lenient readers take a value for: pydantic and JavaScript convert strings to numbers and booleans,
//! and booleans to numbers.
//!
//! This decides what a value may be. An `allow` needs a value that is the same to every reader. docs/RULES.md lists all
//! conversions.

use serde_json::Value;

/// Strings that pydantic, which parses arguments in the official Python SDK, takes for `true`.
const TRUE: [&str; 6] = ["true", "t", "yes", "y", "on", "1"];
/// Strings that it takes for `false`; the empty string is false in JavaScript.
const FALSE: [&str; 7] = ["false", "f", "no", "n", "off", "0", ""];

/// The zeros of all decimal digits (Unicode's Nd) beyond ASCII: Python's `int` reads each of them.
const ZEROS: [u32; 76] = [
    0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50,
    0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x10d40, 0x11066,
    0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x116d0, 0x116da, 0x11730,
    0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50, 0x11da0, 0x11de0, 0x11f50, 0x16130, 0x16a60, 0x16ac0,
    0x16b50, 0x16d70, 0x1ccf0, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e4f0,
    0x1e5f1, 0x1e950, 0x1fbf0,
];

/// Tells whether some reader takes a value for the wanted one.
pub(super) fn may_equal(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Array(items), Value::Array(wanted)) => {
            items.len() == wanted.len()
                && items.iter().zip(wanted).all(|(item, wanted)| may_equal(item, wanted))
        }
        (Value::Object(members), Value::Object(wanted)) => {
            let has = |(key, wanted): (&String, &Value)| {
                members.get(key).is_some_and(|member| may_equal(member, wanted))
            };
            members.len() == wanted.len() && wanted.iter().all(has)
        }
        (_, Value::Bool(wanted)) => truth(value) == Some(*wanted),
        (_, Value::Number(wanted)) => number(value).is_some_and(|number| Some(number) == wanted.as_f64()),
        (Value::String(text), Value::Null) => trimmed(text) == "null",
        (Value::String(text), Value::String(wanted)) => text == wanted,
        // JavaScript converts it to a string.
        (Value::Number(_) | Value::Bool(_), Value::String(wanted)) => {
            let written = value.to_string();
            written == *wanted
        }
        _ => value == wanted,
    }
}

fn truth(value: &Value) -> Option<bool> {
    if let Value::String(text) = value {
        let text = trimmed(text);
        if TRUE.iter().any(|word| word.eq_ignore_ascii_case(text)) {
            return Some(true);
        }
        if FALSE.iter().any(|word| word.eq_ignore_ascii_case(text)) {
            return Some(false);
        }
    }
    match number(value)? {
        1.0 => Some(true),
        0.0 => Some(false),
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        Value::String(text) => spelled_number(text.as_bytes()),
        _ => None,
    }
}

/// Returns the number that a string spells for readers that convert strings to numbers.
pub(super) fn spelled_number(text: &[u8]) -> Option<f64> {
    let text = trimmed(std::str::from_utf8(text).ok()?);
    // Most strings are no numbers, and long ones are rejected here without a copy.
    let first = text.trim_start_matches(['+', '-']).chars().next()?;
    // The letters begin `inf` and `nan`, which Python takes for numbers.
    if !matches!(first, '0'..='9' | '.' | '_' | 'i' | 'I' | 'n' | 'N') && digit(first).is_none() {
        return None;
    }
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let plain = |c: char| digit(c).and_then(|value| char::from_digit(value, 10)).unwrap_or(c);
    // Python's `int` and `float` skip underscores between digits.
    let plain: String = text.chars().filter(|c| *c != '_').map(plain).collect();
    plain.parse().ok().or_else(|| prefixed(&plain))
}

/// Removes what some reader takes for white space: for Python also the separators of ASCII, for JavaScript the byte
/// order mark.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '\u{feff}' | '\u{1c}'..='\u{1f}'))
}

/// Returns the value of a decimal digit of any script.
fn digit(c: char) -> Option<u32> {
    if c.is_ascii() {
        return c.to_digit(10);
    }
    let place = u32::from(c);
    ZEROS.iter().find(|zero| (**zero..**zero + 10).contains(&place)).map(|zero| place - zero)
}

/// Reads a number of another base, as JavaScript's `Number` does.
fn prefixed(text: &str) -> Option<f64> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let base = match rest.get(..2)? {
        "0x" | "0X" => 16,
        "0o" | "0O" => 8,
        "0b" | "0B" => 2,
        _ => return None,
    };
    let digits = rest.get(2..).filter(|digits| !digits.is_empty())?;
    let add = |number: f64, c: char| Some(number * f64::from(base) + f64::from(c.to_digit(base)?));
    digits.chars().try_fold(0.0, add).map(|number| sign * number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_decimal_digit_is_known() {
        let digits = regex::Regex::new(r"^\d$").unwrap();
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            // The table may have more: scripts newer than the Unicode tables of `regex`.
            let is_known = digit(c).is_some() || !digits.is_match(c.encode_utf8(&mut [0; 4]));
            assert!(is_known, "U+{:04X}", u32::from(c));
        }
        assert_eq!((digit('٣'), digit('𝟗'), digit('９'), digit('²')), (Some(3), Some(9), Some(9), None));
    }

    #[test]
    fn strings_are_read_as_numbers_like_lenient_servers_do() {
        for text in [
            "500",
            " 500 ",
            "+500",
            "5_00",
            "500.0",
            "5e2",
            "0x1F4",
            "0X1f4",
            "0o764",
            "0b111110100",
            "\u{feff}500",
            "500\u{1c}",
            "５００",
            "٥٠٠",
            "\u{a0}500\u{2003}",
            "0500",
            "0x0_1F4",
        ] {
            assert_eq!(spelled_number(text.as_bytes()), Some(500.0), "{text:?}");
        }
        assert_eq!(spelled_number(b"-0x10"), Some(-16.0));
        for text in ["", " ", "x", "500px", "0x", "0xg", "five", "1,000", "--5", "0x-1"] {
            assert_eq!(spelled_number(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn lenient_equality_follows_pydantic_and_javascript() {
        for (value, wanted, expected) in [
            (json!("Yes"), json!(true), true),
            (json!(" ON\u{1f}"), json!(true), true),
            (json!(1.0), json!(true), true),
            (json!("01"), json!(true), true),
            (json!(2), json!(true), false),
            (json!("no"), json!(true), false),
            (json!("yes!"), json!(true), false),
            (json!("OFF"), json!(false), true),
            (json!(""), json!(false), true),
            (json!(0), json!(false), true),
            (json!(null), json!(false), false),
            (json!(true), json!(1), true),
            (json!("0x1"), json!(1), true),
            (json!(" null "), json!(null), true),
            (json!(5), json!("5"), true),
            (json!(true), json!("true"), true),
            (json!("a"), json!("A"), false),
            (json!([{ "force": "yes" }]), json!([{ "force": true }]), true),
            (json!([{ "force": "yes", "x": 1 }]), json!([{ "force": true }]), false),
        ] {
            assert_eq!(may_equal(&value, &wanted), expected, "{value} {wanted}");
        }
    }
}
