//! Extracts a message's searchable text: the values of its JSON, without keys and punctuation.
//!
//! Strings are unescaped, numbers stay as they are. A payload that is not JSON is taken whole.

use std::borrow::Cow;
use std::fmt::{self, Write};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::entry::RuleMarks;

/// The most text of one message that is indexed.
pub const TEXT_BYTES_MAX: usize = 256 * 1024;
/// A longer run of letters and digits is data such as base64, and is left out.
const WORD_BYTES_MAX: usize = 256;

/// Appends the searchable text of a message; returns whether some of it was left out.
pub fn searchable(payload: &[u8], out: &mut String) -> bool {
    let begin = out.len();
    let mut collector = TextCollector { out, begin, clipped: false, depth: 0 };
    let read = {
        let mut json = serde_json::Deserializer::from_slice(payload);
        (&mut collector).deserialize(&mut json).and_then(|()| json.end())
    };
    if read.is_err() {
        // Broken JSON was read up to the error: what was collected is dropped, and the whole payload taken.
        collector.out.truncate(begin);
        collector.clipped = false;
        collector.push(&String::from_utf8_lossy(payload));
    }
    collector.clipped
}

/// Appends the names of the rules that applied to a message, and its tags, so that a search finds it by them, too.
pub fn searchable_marks(marks: RuleMarks<'_>, out: &mut String) {
    for name in marks.rules.lines().chain(marks.tags.lines()) {
        out.push_str(name);
        out.push('\n');
    }
}

struct TextCollector<'a> {
    out: &'a mut String,
    begin: usize,
    clipped: bool,
    depth: usize,
}

impl TextCollector<'_> {
    fn push(&mut self, text: &str) {
        // Before the text is cut, which could leave half of a sequence.
        let text = &*without_colours(text);
        let room = TEXT_BYTES_MAX.saturating_sub(self.out.len() - self.begin);
        if text.len() >= room {
            self.clipped = true;
            let end = (0..=room.min(text.len())).rfind(|at| text.is_char_boundary(*at)).unwrap_or(0);
            self.push_words(&text[..end]);
        } else {
            self.push_words(text);
        }
        self.out.push('\n');
    }

    fn push_words(&mut self, text: &str) {
        if text.len() <= WORD_BYTES_MAX {
            return self.out.push_str(text);
        }
        let mut rest = text;
        while !rest.is_empty() {
            let is_data = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-');
            let run = rest.bytes().take_while(is_data).count();
            if run > WORD_BYTES_MAX {
                self.clipped = true;
                self.out.push_str("… ");
            } else {
                self.out.push_str(&rest[..run]);
            }
            rest = &rest[run..];
            let between = rest.bytes().take_while(|b| !is_data(b)).count();
            self.out.push_str(&rest[..between]);
            rest = &rest[between..];
        }
    }

    fn number(&mut self, number: impl fmt::Display) {
        let room = TEXT_BYTES_MAX.saturating_sub(self.out.len() - self.begin);
        if room < 32 {
            self.clipped = true;
        } else {
            writeln!(self.out, "{number}").expect("writing to a string cannot fail");
        }
    }
}

/// Removes colour codes for terminals: their last letter would stick to the next word.
fn without_colours(text: &str) -> Cow<'_, str> {
    let Some((first, rest)) = text.split_once("\u{1b}[") else { return Cow::Borrowed(text) };
    let mut out = first.to_owned();
    for piece in rest.split("\u{1b}[") {
        // Numbers and separators, then one letter that ends the sequence.
        let end = piece.find(|c: char| !c.is_ascii_digit() && !matches!(c, ';' | ':' | '?'));
        let last = end.and_then(|at| piece[at..].chars().next()).map_or(0, char::len_utf8);
        out.push(' ');
        out.push_str(&piece[end.unwrap_or(piece.len()) + last..]);
    }
    Cow::Owned(out)
}

impl<'de> DeserializeSeed<'de> for &mut TextCollector<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut TextCollector<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.number(number);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.push(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.depth += 1;
        while seq.next_element_seed(&mut *self)?.is_some() {}
        self.depth -= 1;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.depth += 1;
        while let Some(is_outside) = map.next_key_seed(Key)? {
            // Every message has these, so a search for them would find everything.
            if is_outside && self.depth == 1 {
                map.next_value::<IgnoredAny>()?;
            } else {
                map.next_value_seed(&mut *self)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }
}

/// Reads a key, and tells whether it is one of the outside of every message.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == "jsonrpc" || key == "id")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(payload: &[u8], expected: &str, clipped: bool) {
        let mut out = "before".to_owned();
        assert_eq!(searchable(payload, &mut out), clipped, "{expected}");
        assert_eq!(out, format!("before{expected}"));
    }

    #[test]
    fn values_are_searchable_and_the_envelope_is_not() {
        check(
            br#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":["one\ntwo",3,true,null,{"id":"x"}],"n":-1.5}}"#,
            "m\none\ntwo\n3\nx\n-1.5\n",
            false,
        );
        check(b"no \xff JSON", "no \u{fffd} JSON\n", false);
        check("a\u{1b}[1;31mneedle\u{1b}[0m b\u{1b}[".as_bytes(), "a needle  b \n", false);
        check(br#"{"a":1} more"#, "{\"a\":1} more\n", false);
    }

    #[test]
    fn text_beyond_the_limit_is_left_out_and_reported() {
        let data = format!(r#"{{"blob":"{}","said":"hello"}}"#, "A".repeat(WORD_BYTES_MAX + 1));
        check(data.as_bytes(), "… \nhello\n", true);
        let mut out = String::new();
        let long = format!("\"{}\"", "word ".repeat(TEXT_BYTES_MAX));
        assert!(searchable(long.as_bytes(), &mut out));
        assert!(out.len() <= TEXT_BYTES_MAX + 1);
    }
}
