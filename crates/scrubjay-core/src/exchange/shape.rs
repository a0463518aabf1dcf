//! Groups failures by their text without the numbers, names and paths that differ each time.

use serde_json::Value;

use crate::envelope::Envelope;

/// The longest shape, in characters.
const SHAPE_CHARS_MAX: usize = 160;

/// Returns the first line of a text with everything that differs from case to case replaced by a mark.
///
/// Quoted text, paths, addresses, numbers and long hexadecimal words become `…`, `<path>`, `<url>`, `<n>` and
/// `<id>`. Two failures of one shape are one problem.
#[must_use]
pub fn shape(text: &str) -> String {
    let mut out = String::new();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let mut rest = line.trim();
    while !rest.is_empty() && out.chars().count() < SHAPE_CHARS_MAX {
        let first = rest.chars().next().unwrap_or_default();
        if let Some(end) = quoted(rest) {
            out.push_str(if first == '`' {
                "`…`"
            } else if first == '"' {
                "\"…\""
            } else {
                "'…'"
            });
            rest = &rest[end..];
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '`' | '(' | ')' | ',' | ';'));
        match end.unwrap_or(rest.len()) {
            0 => {
                out.push(if first.is_whitespace() { ' ' } else { first });
                rest = rest[first.len_utf8()..].trim_start_matches(char::is_whitespace);
                if !first.is_whitespace() && line.len() > rest.len() && ends_in_space(line, rest) {
                    out.push(' ');
                }
            }
            end => {
                out.push_str(&word(&rest[..end]));
                rest = &rest[end..];
            }
        }
    }
    out.chars().take(SHAPE_CHARS_MAX).collect::<String>().trim_end().to_owned()
}

fn ends_in_space(line: &str, rest: &str) -> bool {
    line.trim_end().strip_suffix(rest).is_some_and(|before| before.ends_with(char::is_whitespace))
}

/// Returns where a quotation at the beginning ends.
fn quoted(text: &str) -> Option<usize> {
    let mark = text.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'))?;
    text[1..].find(mark).map(|at| at + 2)
}

fn word(word: &str) -> String {
    let bare = word.trim_end_matches([':', '.', '!', '?', '\'']);
    let tail = &word[bare.len()..];
    let mark = if bare.contains("://") {
        "<url>"
    } else if bare.starts_with('/') && bare.len() > 1
        || bare.starts_with("./")
        // A single slash also joins words, as in `read/write`.
        || bare.matches('/').count() > 1
    {
        "<path>"
    } else if bare.len() >= 8
        && bare.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
        // Words such as `deadbeef` are hexadecimal too.
        && bare.bytes().any(|b| b.is_ascii_digit())
    {
        "<id>"
    } else {
        return digits(word);
    };
    format!("{mark}{tail}")
}

fn digits(word: &str) -> String {
    let mut out = String::with_capacity(word.len());
    let mut within = false;
    for c in word.chars() {
        match (c.is_ascii_digit(), within) {
            (true, false) => out.push_str("<n>"),
            (true, true) => {}
            (false, _) => out.push(c),
        }
        within = c.is_ascii_digit();
    }
    out
}

/// Returns the shape of a failure: of the error's message, or of the failed result's first text.
pub(super) fn of_failure(message: &Envelope, payload: &[u8]) -> String {
    if let Some(text) = &message.error_message {
        return shape(text);
    }
    let result: Value = serde_json::from_slice(payload).unwrap_or_default();
    let text = result["result"]["content"]
        .as_array()
        .and_then(|content| content.iter().find_map(|c| c["text"].as_str()));
    text.map(shape)
        .filter(|shape| !shape.is_empty())
        .unwrap_or_else(|| "failed without saying why".to_owned())
}

#[cfg(test)]
mod tests {
    use super::shape;

    #[test]
    fn one_problem_has_one_shape() {
        assert_eq!(shape("connect ECONNREFUSED 127.0.0.1:5432"), "connect ECONNREFUSED <n>.<n>.<n>.<n>:<n>");
        assert_eq!(shape("ENOENT: no such file, open '/a/b.txt'"), "ENOENT: no such file, open '…'");
        assert_eq!(shape("cannot read /etc/x/y: denied"), "cannot read <path>: denied");
        assert_eq!(shape("job 3f2a9c01-77 took 12ms (limit 5)"), "job <id> took <n>ms (limit <n>)");
        assert_eq!(shape("get https://a.b/c?d=1 failed\nat line 1"), "get <url> failed");
        assert_eq!(shape("it doesn't work"), "it doesn't work");
        assert_eq!(shape(""), "");
        assert!(shape(&"ab ".repeat(500)).chars().count() <= 160);
    }
}
