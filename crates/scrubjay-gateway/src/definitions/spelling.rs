//! Writes a definition in a canonical form, so that keys in another order do not count as a change.
//!
//! Members with the same key are all kept: readers differ on which of them counts, so each is part of the definition.

use scrubjay_core::message::all_members;
use serde_json::value::RawValue;

/// Deeper values are copied as they are: the recursion must not exhaust the stack.
const DEPTH_MAX: usize = 100;

/// Writes JSON with the members of every object in the order of their keys, and no white space.
#[must_use]
pub fn spelled(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    match serde_json::from_str::<&RawValue>(json) {
        Ok(value) => write(value, 0, &mut out),
        Err(_) => out.push_str(json),
    }
    out
}

fn write(value: &RawValue, depth: usize, out: &mut String) {
    let text = value.get();
    if depth >= DEPTH_MAX {
        return out.push_str(text);
    }
    match text.as_bytes().first() {
        Some(b'{') => {
            let Some(mut members) = all_members(text) else { return out.push_str(text) };
            members.sort_by(|a, b| a.0.cmp(&b.0));
            out.push('{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                out.push_str(&serde_json::Value::from(key).to_string());
                out.push(':');
                write(value, depth + 1, out);
            }
            out.push('}');
        }
        Some(b'[') => {
            let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else { return out.push_str(text) };
            out.push('[');
            for (at, item) in items.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write(item, depth + 1, out);
            }
            out.push(']');
        }
        // Decoded and written again, since the same characters may be escaped or not.
        Some(b'"') => match serde_json::from_str::<String>(text) {
            Ok(string) => out.push_str(&serde_json::Value::from(string).to_string()),
            Err(_) => out.push_str(text),
        },
        _ => out.push_str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_white_space_say_nothing_and_everything_else_does() {
        let one = r#"{ "b": [1, {"y":null,"x":"\u00e9"}], "a": true }"#;
        let same = r#"{"a":true,"b":[1,{"x":"é","y":null}]}"#;
        assert_eq!((spelled(one).as_str(), spelled(same).as_str()), (same, same));
        for other in
            [r#"{"a":true,"b":[1,{"x":"é","y":0}]}"#, r#"{"a":true,"a":true,"b":[1,{"x":"é","y":null}]}"#]
        {
            assert_ne!(spelled(one), spelled(other));
        }
        assert_ne!(spelled(r#"{"a":"good","a":"evil"}"#), spelled(r#"{"a":"bad","a":"evil"}"#));
        assert_ne!(spelled("1.0"), spelled("1"));
        assert_eq!(spelled("no json"), "no json");
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(spelled(&deep).len() >= deep.len());
    }
}
