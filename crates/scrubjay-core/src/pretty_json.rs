//! Formats JSON over several lines, for people.

/// Formats JSON over several lines with two spaces a level. Keys, numbers and strings stay as they were written, which
/// parsing into values would not ensure.
///
/// None if the text is not JSON.
#[must_use]
pub fn pretty(json: &str) -> Option<String> {
    // Checked first, because the loop below only copies tokens and would format anything.
    serde_json::from_str::<serde::de::IgnoredAny>(json).ok()?;
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut rest) = (0_usize, json.trim());
    let new_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '"' => {
                taken = string_bytes(rest);
                out.push_str(&rest[..taken]);
            }
            '{' | '[' => {
                out.push(c);
                let inside = rest[taken..].trim_start();
                if inside.starts_with(['}', ']']) {
                    out.push_str(&inside[..1]);
                    taken = rest.len() - inside.len() + 1;
                } else {
                    depth += 1;
                    new_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
        rest = &rest[taken..];
    }
    Some(out)
}

/// Returns the length of the string that the text begins with, quotes included.
fn string_bytes(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_json_keeps_its_tokens() {
        let check = |json: &str, expected: Option<&str>| {
            assert_eq!(pretty(json).as_deref(), expected, "{json}");
        };
        check(
            r#" {"z":1.0e+2,"a":{ },"s":"a\"{,}","l":[ 1 ,-0],"e":[]} "#,
            Some(
                "{\n  \"z\": 1.0e+2,\n  \"a\": {},\n  \"s\": \"a\\\"{,}\",\n  \"l\": [\n    1,\n    -0\n  ],\n  \"e\": []\n}",
            ),
        );
        check("12345678901234567890123", Some("12345678901234567890123"));
        check("{", None);
        check("", None);
    }
}
