//! A test of one field of a message's parameters or result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The member of a message that contains a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageMember {
    /// The parameters of the request or notification.
    Params,
    /// The result of the answer.
    Result,
    /// The error of the answer.
    Error,
}

impl MessageMember {
    /// Returns its name in a message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Params => "params",
            Self::Result => "result",
            Self::Error => "error",
        }
    }
}

/// Parses the path to a field: `content.*.text`, `files[0].path`; none if it is malformed.
#[must_use]
pub fn field_path(typed: &str) -> Option<Vec<String>> {
    let mut path = Vec::new();
    for step in typed.split('.') {
        let (key, mut places) = step.split_at(step.find('[').unwrap_or(step.len()));
        if key.is_empty() || key.contains(']') {
            return None;
        }
        path.push(key.to_owned());
        while !places.is_empty() {
            let (place, rest) = places.strip_prefix('[')?.split_once(']')?;
            if place != "*" && !place.bytes().all(|b| b.is_ascii_digit()) || place.is_empty() {
                return None;
            }
            path.push(place.to_owned());
            places = rest;
        }
    }
    Some(path)
}

/// A test of one field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldFilter {
    /// The path to the field: keys, list indexes, or `*` for any of either.
    pub path: Vec<String>,
    /// The test of its value.
    #[serde(flatten)]
    pub test: ValueTest,
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "test", content = "value")]
pub enum ValueTest {
    /// The value exists.
    Exists,
    /// Equal to this; a text that is written like a number equals the number.
    Equals(Value),
    /// A text that contains this, ignoring case; of another value, its JSON does.
    Contains(String),
    /// A number above this.
    Greater(f64),
    /// A number below this.
    Less(f64),
}

impl FieldFilter {
    /// Returns whether a message has such a field in this member.
    #[must_use]
    pub fn holds(&self, message: &Value, member: MessageMember) -> bool {
        message.get(member.as_str()).is_some_and(|body| self.test.reaches(body, &self.path))
    }
}

impl ValueTest {
    fn reaches(&self, value: &Value, path: &[String]) -> bool {
        let Some((step, rest)) = path.split_first() else { return self.holds(value) };
        match value {
            Value::Object(members) if step == "*" => members.values().any(|v| self.reaches(v, rest)),
            Value::Array(items) if step == "*" => items.iter().any(|v| self.reaches(v, rest)),
            Value::Object(members) => members.get(step).is_some_and(|v| self.reaches(v, rest)),
            Value::Array(items) => {
                step.parse().ok().and_then(|at: usize| items.get(at)).is_some_and(|v| self.reaches(v, rest))
            }
            _ => false,
        }
    }

    /// Returns whether a value passes the test.
    pub(crate) fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Exists => true,
            Self::Equals(wanted) => {
                value == wanted
                    // `1` and `1.0` are different values to `serde_json` and the same to people.
                    || value.as_f64().is_some_and(|number| Some(number) == wanted.as_f64())
                    || value.as_str().is_some_and(|text| spells(text, wanted))
            }
            Self::Contains(part) => {
                let part = part.to_lowercase();
                match value {
                    Value::String(text) => text.to_lowercase().contains(&part),
                    other => other.to_string().to_lowercase().contains(&part),
                }
            }
            Self::Greater(bound) => value.as_f64().is_some_and(|number| number > *bound),
            Self::Less(bound) => value.as_f64().is_some_and(|number| number < *bound),
        }
    }
}

/// Returns whether a text is written like this number or other value that is not a text.
fn spells(text: &str, value: &Value) -> bool {
    let written = value.to_string();
    !value.is_string() && written == text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(path: &str, test: ValueTest, expected: bool) {
        let message = json!({"params": {"name": "read", "arguments": {
            "path": "/Tmp/a", "depth": 3, "size": "12", "list": [{"n": 1}, {"n": 7}]}}});
        let filter = FieldFilter { path: field_path(path).unwrap(), test: test.clone() };
        assert_eq!(filter.holds(&message, MessageMember::Params), expected, "{path} {test:?}");
        assert!(!filter.holds(&message, MessageMember::Result));
    }

    #[test]
    fn fields_are_tested() {
        check("arguments.path", ValueTest::Exists, true);
        check("arguments.nothing", ValueTest::Exists, false);
        check("arguments.path", ValueTest::Equals(json!("/Tmp/a")), true);
        check("arguments.path", ValueTest::Equals(json!("/tmp/a")), false);
        check("arguments.depth", ValueTest::Equals(json!(3.0)), true);
        check("arguments.size", ValueTest::Equals(json!(12)), true);
        check("arguments.path", ValueTest::Contains("TMP".to_owned()), true);
        check("arguments", ValueTest::Contains("tmp/a".to_owned()), true);
        check("arguments.depth", ValueTest::Greater(2.5), true);
        check("arguments.depth", ValueTest::Greater(3.0), false);
        check("arguments.depth", ValueTest::Less(3.5), true);
        check("arguments.path", ValueTest::Less(3.5), false);
        check("arguments.list.1.n", ValueTest::Equals(json!(7)), true);
        check("arguments.list[1].n", ValueTest::Equals(json!(7)), true);
        check("arguments.list[0].n", ValueTest::Equals(json!(7)), false);
        check("arguments.list[*].n", ValueTest::Equals(json!(7)), true);
        check("arguments.list.*.n", ValueTest::Greater(6.0), true);
        check("arguments.list.*.n", ValueTest::Greater(7.0), false);
        check("*.path", ValueTest::Exists, true);
    }

    #[test]
    fn malformed_field_paths_are_refused() {
        assert_eq!(field_path("a[0][12].b"), Some(["a", "0", "12", "b"].map(str::to_owned).to_vec()));
        for wrong in
            ["", ".", "a.", ".a", "a..b", "a[", "a[]", "a[x]", "a[0", "a]0[", "a[0]b", "[0]", "a[-1]"]
        {
            assert_eq!(field_path(wrong), None, "{wrong}");
        }
    }
}
