//! Shortens texts for people: the one place that decides where a text is cut, and how a reader sees that it was.
//!
//! `redact::cut` is another thing: it shortens a text that is redacted afterwards, and never leaves half a secret.

use std::borrow::Cow;

use crate::inert::inert;

/// Shortens a text to at most `chars_max` characters, the last of which is then an ellipsis.
///
/// It is for texts that stay data: what displays them makes them inert.
#[must_use]
pub fn shortened(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max.saturating_sub(1)) {
        Some((end, c)) if end + c.len_utf8() < text.len() => Cow::Owned(format!("{}…", &text[..end])),
        _ => Cow::Borrowed(text),
    }
}

/// Makes a text inert, and shortens it to at most `chars_max` characters, the last of which is then an ellipsis.
///
/// The limit is on what is shown, because escapes make a text longer. No escape is cut in two.
#[must_use]
pub fn shortened_inert(text: &str, chars_max: usize) -> String {
    // No inert text has fewer characters than the text itself, so the rest of a longer one need not be looked at.
    let beginning = text.char_indices().nth(chars_max).map_or(text, |(end, _)| &text[..end]);
    let shown = inert(beginning);
    if beginning.len() == text.len() && shown.chars().count() <= chars_max {
        return shown.into_owned();
    }
    let (mut out, mut chars_left) = (String::new(), chars_max.saturating_sub(1));
    for c in beginning.chars() {
        let mut buffer = [0; 4];
        let piece = inert(c.encode_utf8(&mut buffer));
        let Some(left) = chars_left.checked_sub(piece.chars().count()) else { break };
        chars_left = left;
        out.push_str(&piece);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, max, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("", 3, ""), ("äöü", 2, "ä…"), ("äöü", 3, "äöü")]
        {
            assert_eq!(shortened(text, max), expected);
            assert_eq!(shortened_inert(text, max), expected);
        }
    }

    #[test]
    fn the_limit_is_on_the_inert_text_and_escapes_stay_whole() {
        for (text, max, expected) in [
            ("\n\n", 4, "\\n\\n"),
            ("\n\n", 3, "\\n…"),
            ("a\u{1b}b", 8, "a\\u{1b}b"),
            ("a\u{1b}b", 7, "a…"),
            ("a\u{1b}bc", 8, "a\\u{1b}…"),
        ] {
            assert_eq!(shortened_inert(text, max), expected, "{text:?} to {max}");
        }
    }
}
