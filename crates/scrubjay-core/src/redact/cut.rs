//! Shortens a text without leaving half a secret: cut in two, it would be recognised in neither part.

/// A longer run of token characters is data, not a token, and is cut at the limit.
const TOKEN_CHARS_MAX: usize = 512;

/// Returns the beginning of a text, at most `chars_max` characters, cut between words.
#[must_use]
pub fn cut(text: &str, chars_max: usize) -> &str {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return text };
    let in_token = |c: char| c.is_ascii_alphanumeric() || "_-.+/=:~%$\\".contains(c);
    if !text[end..].starts_with(in_token) {
        return &text[..end];
    }
    let token = text[..end].chars().rev().take(TOKEN_CHARS_MAX).take_while(|c| in_token(*c)).count();
    // Characters of tokens are ASCII, so their number is the number of bytes.
    if token < TOKEN_CHARS_MAX { &text[..end - token] } else { &text[..end] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_kept_whole_or_not_at_all() {
        for (text, max, expected) in [
            ("short", 10, "short"),
            ("one two three", 5, "one "),
            ("one two three", 7, "one two"),
            ("{\"a\":\"secret\"}", 9, "{\"a\":\""),
            ("über uns", 6, "über "),
        ] {
            assert_eq!(cut(text, max), expected, "{text}");
        }
        let long = "x".repeat(2000);
        assert_eq!(cut(&long, 1000).len(), 1000);
    }
}
