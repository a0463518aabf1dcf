//! Just enough JSON to write the results file.

use std::fmt::{self, Display, Formatter};

/// A JSON value to be written.
#[derive(Clone, Debug)]
pub enum Json {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A number; one that is not finite is written as `null`.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object, in the order given.
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Builds an object.
    pub fn object<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Object(members.map(|(key, value)| (key.to_owned(), value)).into())
    }

    /// Builds a string.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    fn write(&self, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(value) if value.is_finite() => write!(f, "{}", (value * 1000.0).round() / 1000.0),
            Self::Number(_) => f.write_str("null"),
            Self::Text(text) => write_text(f, text),
            Self::List(items) => {
                f.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { ", " })?;
                    item.write(f, depth)?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (at, (key, value)) in members.iter().enumerate() {
                    write!(
                        f,
                        "{}\n{:indent$}",
                        if at == 0 { "" } else { "," },
                        "",
                        indent = 2 * (depth + 1)
                    )?;
                    write_text(f, key)?;
                    f.write_str(": ")?;
                    value.write(f, depth + 1)?;
                }
                write!(f, "\n{:indent$}}}", "", indent = 2 * depth)
            }
        }
    }
}

impl Display for Json {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

fn write_text(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            control if control < ' ' => write!(f, "\\u{:04x}", control as u32)?,
            other => write!(f, "{other}")?,
        }
    }
    f.write_str("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_values_are_written_as_json() {
        let value = Json::object([
            ("name", Json::text("a \"b\"\n")),
            ("rounds", Json::List(vec![Json::Number(1.23456), Json::Number(f64::NAN), Json::Bool(true)])),
        ]);
        let expected = "{\n  \"name\": \"a \\\"b\\\"\\u000a\",\n  \"rounds\": [1.235, null, true]\n}";
        assert_eq!(value.to_string(), expected);
    }
}
