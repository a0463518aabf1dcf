//! Determines the kind and the id of a message that is not strict JSON, so that its sender can get an error. The id is
//! used only if all readers agree on it.
//!
//! It follows brackets and strings like any reader, and reads only the keys of the outermost object.

use std::ops::Range;

use super::portable::is_plain_id;
use crate::json::escape::Unescaped;
use crate::json::fold::fold;
use crate::json::strict::scan;
use crate::json::tree::{NodeKind, Tree};

/// The apparent kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartialKind {
    Request,
    Answer,
    Notification,
    Unknown,
}

/// What is known about a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PartialMessage<'a> {
    pub(super) kind: PartialKind,
    /// The id as raw JSON, if no reader can take another value for the id.
    pub(super) id: Option<&'a str>,
}

const UNKNOWN: PartialMessage<'static> = PartialMessage { kind: PartialKind::Unknown, id: None };

/// Examines a line; if `whole` is set, each message of a batch.
pub(super) fn salvage(line: &[u8], whole: bool) -> Vec<PartialMessage<'_>> {
    // A byte order mark may be the reason for the refusal; the message behind it still has an id.
    let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if text.first() != Some(&b'[') {
        return vec![one(text)];
    }
    let Some(tree) = whole.then(|| Tree::parse(text)).flatten() else { return vec![UNKNOWN] };
    let members = tree.children(0).map(|child| &tree.nodes[child]);
    let all: Vec<PartialMessage<'_>> = members
        .map(|node| if node.kind == NodeKind::Object { one(&text[node.range.clone()]) } else { UNKNOWN })
        .collect();
    if all.is_empty() { vec![UNKNOWN] } else { all }
}

enum Token {
    Text(Range<usize>),
    Open,
    Close,
    Comma,
    Colon,
}

fn one(text: &[u8]) -> PartialMessage<'_> {
    let mut members = Members::default();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some((token, next)) = token(text, at) {
        match token {
            // A second value on the line: it is unknown which of them a reader takes.
            Token::Open if depth == 0 && at > 0 => return UNKNOWN,
            Token::Open => {
                depth += 1;
                members.last = None;
            }
            Token::Close => {
                if depth == 1 {
                    members.end(text);
                }
                let Some(less) = depth.checked_sub(1) else { return UNKNOWN };
                depth = less;
            }
            _ if depth == 0 => return UNKNOWN,
            _ if depth > 1 => {}
            Token::Text(range) => members.last = Some(range),
            Token::Colon => members.key = members.last.take(),
            Token::Comma => members.end(text),
        }
        at = next;
    }
    if depth > 0 || text.first() != Some(&b'{') { UNKNOWN } else { members.classify(text) }
}

/// The members of the outermost object.
#[derive(Default)]
struct Members {
    key: Option<Range<usize>>,
    last: Option<Range<usize>>,
    ids: Vec<Option<Range<usize>>>,
    is_ambiguous: bool,
    has_method: bool,
    has_answer: bool,
}

impl Members {
    fn end(&mut self, text: &[u8]) {
        let value = self.last.take();
        let Some(key) = self.key.take() else { return };
        let raw = &text[key];
        let inside = raw.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(raw);
        let key = Unescaped::new(inside).text;
        match &*fold(&key) {
            b"id" => {
                self.is_ambiguous |= *key != *b"id";
                self.ids.push(value);
            }
            b"method" => self.has_method = true,
            b"result" | b"error" => self.has_answer = true,
            _ => {}
        }
    }

    fn classify<'t>(&self, text: &'t [u8]) -> PartialMessage<'t> {
        let id = match self.ids.as_slice() {
            [Some(id)] if !self.is_ambiguous => Some(&text[id.clone()]),
            _ => None,
        };
        let id = id.filter(|id| scan(id).is_ok_and(|separators| separators.is_empty()) && is_plain_id(id));
        let kind = match (self.has_method, self.has_answer) {
            (true, false) if self.ids.is_empty() => PartialKind::Notification,
            (true, false) => PartialKind::Request,
            (false, true) => PartialKind::Answer,
            _ => return UNKNOWN,
        };
        PartialMessage { kind, id: id.and_then(|id| std::str::from_utf8(id).ok()) }
    }
}

/// Reads the token at a position; also returns the position after it.
fn token(text: &[u8], from: usize) -> Option<(Token, usize)> {
    // Other control characters too, since one may be the reason for the refusal.
    let is_space = |b: u8| b <= b' ' || b == 0x7f;
    let at = from + text[from..].iter().position(|b| !is_space(*b))?;
    let one = |token| Some((token, at + 1));
    match text[at] {
        b'{' | b'[' => one(Token::Open),
        b'}' | b']' => one(Token::Close),
        b',' => one(Token::Comma),
        b':' => one(Token::Colon),
        b'"' => {
            let mut end = at + 1;
            while let Some(byte) = text.get(end) {
                match byte {
                    b'\\' => end += 2,
                    b'"' => return Some((Token::Text(at..end + 1), end + 1)),
                    _ => end += 1,
                }
            }
            Some((Token::Text(at..text.len()), text.len()))
        }
        _ => {
            let is_end = |b: &u8| is_space(*b) || b"{}[],:\"".contains(b);
            let end = text[at..].iter().position(is_end).map_or(text.len(), |length| at + length);
            Some((Token::Text(at..end), end))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[(PartialKind, Option<&str>)]) {
        let found: Vec<_> = salvage(line.as_bytes(), true).into_iter().map(|s| (s.kind, s.id)).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn an_unambiguous_id_is_found() {
        use PartialKind::{Answer, Notification, Request, Unknown};
        check(r#"{"id":7,"method":"x","params":{"id":8,"n":NaN}}"#, &[(Request, Some("7"))]);
        check("{\"params\":[\r{\"id\":9}\r],\"id\":\"a\",\"method\":\"x\"}", &[(Request, Some("\"a\""))]);
        check(r#"{"id":7,"result":{"x":Infinity}}"#, &[(Answer, Some("7"))]);
        check(r#"{"method":"x","params":[1,]}"#, &[(Notification, None)]);
        check("\u{feff}{\"id\":1,\"method\":\"x\"}", &[(Request, Some("1"))]);
        check(
            r#"[{"id":1,"method":"x"},{"id":2,"method":"y"},3]"#,
            &[(Request, Some("1")), (Request, Some("2")), (Unknown, None)],
        );
        for doubtful in [
            r#"{"id":1,"id":2,"method":"x"}"#,
            r#"{"id":1,"ID":2,"method":"x"}"#,
            r#"{"Id":1,"method":"x"}"#,
            r#"{"id":{"a":1},"method":"x"}"#,
            r#"{"id":1e400,"method":"x"}"#,
        ] {
            check(doubtful, &[(Request, None)]);
        }
        for unknown in [
            "",
            "log: x",
            r#"{"id":1,"method":"x"}{"id":2}"#,
            r#"{"id":1,"method":"x""#,
            "}",
            "[",
            "[]",
            r#"{"id":1}"#,
        ] {
            check(unknown, &[(Unknown, None)]);
        }
    }
}
