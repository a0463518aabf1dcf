//! Texts as searches see them: folded, and cut into words.
//!
//! Both databases are given the same words, so that both find the same. A run of letters and digits is a word;
//! scripts that are written without spaces, and symbols, give a word for each character. Pure.

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// A longer word is known by its beginning.
const WORD_CHARS_MAX: usize = 64;

/// Returns a text in which upper and lower case are the same.
#[must_use]
pub fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // By way of upper case, which makes one of letters with several lower cases: σ and ς, s and ſ.
    text.nfc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// A word, and where in the text it is, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// As searches see it.
    pub folded: String,
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// Cuts a text into words.
#[must_use]
pub fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    for (at, c) in text.char_indices() {
        let class = Class::of(c);
        if let Some(start) = open.filter(|_| class != Class::Letter && class != Class::Mark) {
            found.extend(word(text, start, at));
            open = None;
        }
        match class {
            Class::Letter => open = open.or(Some(at)),
            Class::Alone => found.extend(word(text, at, at + c.len_utf8())),
            Class::Mark | Class::Between => {}
        }
    }
    found.extend(open.and_then(|start| word(text, start, text.len())));
    found
}

fn word(text: &str, start: usize, end: usize) -> Option<Word> {
    let compatible: String = text[start..end].nfkc().collect();
    let folded: String = fold(&compatible)
        .chars()
        // What is left must not end a word for either database.
        .filter(|c| if c.is_ascii() { c.is_ascii_alphanumeric() } else { !c.is_whitespace() })
        .take(WORD_CHARS_MAX)
        .collect();
    (!folded.is_empty()).then_some(Word { folded, start, end })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Part of a word.
    Letter,
    /// Part of a word that was begun.
    Mark,
    /// A word of its own.
    Alone,
    /// Between words.
    Between,
}

impl Class {
    fn of(c: char) -> Self {
        if c.is_ascii() {
            return if c.is_ascii_alphanumeric() { Self::Letter } else { Self::Between };
        }
        match c {
            // Thai to Tibetan, Burmese, Khmer, kana, Chinese characters.
            '\u{e00}'..='\u{fff}'
            | '\u{1000}'..='\u{109f}'
            | '\u{1780}'..='\u{17ff}'
            | '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}' => Self::Alone,
            // Joiners and variation selectors are part of what they follow, which may be a symbol.
            '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => Self::Mark,
            _ if is_combining_mark(c) => Self::Mark,
            _ if c.is_alphanumeric() => Self::Letter,
            // Dashes, quotes, ideographic punctuation.
            '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ffef}' => Self::Between,
            _ if c.is_whitespace() || c.is_control() => Self::Between,
            _ if c < '\u{2100}' => Self::Between,
            _ => Self::Alone,
        }
    }
}

/// What an entry must have: these words, one after another; the last may be the beginning of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The words.
    pub words: Vec<String>,
    /// Whether the last may go on.
    pub prefix: bool,
}

/// Reads what someone searches for: words, of which all must be there, "words in quotes" one after another,
/// and the beginnings of words with a star: `auth*`.
#[must_use]
pub fn terms(query: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for (n, piece) in query.split('"').enumerate() {
        let quoted = n % 2 == 1;
        let parts: Vec<&str> = if quoted { vec![piece] } else { piece.split_whitespace().collect() };
        for part in parts {
            let words: Vec<String> = words(part).into_iter().map(|word| word.folded).collect();
            if !words.is_empty() {
                terms.push(Term { words, prefix: !quoted && part.ends_with('*') });
            }
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found = words(text);
        assert_eq!(found.iter().map(|w| w.folded.as_str()).collect::<Vec<_>>(), expected, "{text}");
        for word in found {
            assert!(!text[word.start..word.end].is_empty());
        }
    }

    #[test]
    fn words_of_many_scripts() {
        check("Fixed src/auth/jwt.ts, don't ask", &["fixed", "src", "auth", "jwt", "ts", "don", "t", "ask"]);
        check("ΟΔΟΣ Straße ÇA", &["οδοσ", "strasse", "ça"]);
        check("認証を直す", &["認", "証", "を", "直", "す"]);
        check("تم إصلاح", &["تم", "إصلاح"]);
        check("हिन्दी", &["हिन्दी"]);
        check("ship it 🚀🐦!", &["ship", "it", "🚀", "🐦"]);
        check("e\u{301}te\u{301} ﬁne ⑴", &["été", "fine", "1"]);
        check("%_'\";--", &[]);
        check("\u{301}a", &["a"]);
    }

    #[test]
    fn long_words_are_known_by_their_beginning() {
        assert_eq!(words(&"x".repeat(10_000))[0].folded.len(), WORD_CHARS_MAX);
    }

    #[test]
    fn what_is_searched_for() {
        let term =
            |words: &[&str], prefix| Term { words: words.iter().map(|w| (*w).to_owned()).collect(), prefix };
        assert_eq!(
            terms("Auth* \"log in\" jwt.ts"),
            [term(&["auth"], true), term(&["log", "in"], false), term(&["jwt", "ts"], false)]
        );
        assert_eq!(terms("\"unfinished phrase"), [term(&["unfinished", "phrase"], false)]);
        assert_eq!(terms(" % * \"\" "), []);
    }

    #[test]
    fn case_makes_no_difference() {
        for (one, other) in [("ΟΔΟΣ", "οδος"), ("ÄÖ", "äö"), ("E\u{301}", "é"), ("STRASSE", "straße")]
        {
            assert_eq!(fold(one), fold(other));
        }
    }
}
