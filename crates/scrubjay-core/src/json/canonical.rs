//! JSON in one spelling: keys in order, no white space. Equal values have equal texts, however they were written.

use serde_json::Value;

/// Writes a value with the keys of every object in order.
#[must_use]
pub(crate) fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (at, key) in keys.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(&members[key], out);
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_equal_texts() {
        let one: Value = serde_json::from_str(r#"{ "b": [1, {"y":null,"x":"\u00e9"}], "a": true }"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":true,"b":[1,{"x":"é","y":null}]}"#).unwrap();
        assert_eq!(canonical(&one), r#"{"a":true,"b":[1,{"x":"é","y":null}]}"#);
        assert_eq!(canonical(&one), canonical(&other));
    }
}
