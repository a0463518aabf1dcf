//! Cuts texts and queries into words: the one tokenizer of full-text search, for SQLite and PostgreSQL alike.
//!
//! Both databases are given words that were cut here, so both find the same. A run of letters and digits is one word.
//! In scripts that are written without spaces each character is a word. Pure: no SQL.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The most characters of a word that are stored; a longer one is found by its beginning. No word of a language is
/// longer, and ids and base64 would otherwise fill the search tables.
const WORD_CHARS_MAX: usize = 64;

/// How words are made comparable.
///
/// There are two, and neither can change: databases store the folded words, and what is stored must stay findable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folding {
    /// Progress entries: case is folded, accents count, symbols such as emoji are words.
    KeepAccents,
    /// Records and the index of tapes: case and accents are folded, symbols are no words.
    DropAccents,
}

/// A word, and where it is in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The folded form, as search compares it.
    pub folded: String,
    /// Its position in the text, in bytes.
    pub at: Range<usize>,
}

/// Cuts a text into words.
#[must_use]
pub fn words(text: &str, folding: Folding) -> Vec<Word> {
    let word = |at: Range<usize>| {
        let folded: String = folding.fold_word(&text[at.clone()]);
        (!folded.is_empty()).then_some(Word { folded, at })
    };
    let mut words = Vec::new();
    let mut open: Option<usize> = None;
    for (at, c) in text.char_indices() {
        let class = folding.class(c);
        if let Some(start) = open.filter(|_| class != CharClass::Letter && class != CharClass::Mark) {
            words.extend(word(start..at));
            open = None;
        }
        match class {
            CharClass::Letter => open = open.or(Some(at)),
            CharClass::Alone => words.extend(word(at..at + c.len_utf8())),
            CharClass::Mark | CharClass::Between => {}
        }
    }
    words.extend(open.and_then(|start| word(start..text.len())));
    words
}

/// Returns a text in which upper and lower case are the same; accents stay.
#[must_use]
pub(crate) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    // By way of upper case, which unites letters with several lower cases: σ and ς, s and ſ.
    text.nfc().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Words that must follow one another in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The folded words.
    pub words: Vec<String>,
    /// Whether the last word may be the beginning of a longer one: the query has a star behind it, as in `auth*`.
    pub prefix: bool,
}

/// Reads a query: words, "words in quotes" that follow one another, and beginnings of words with a star: `auth*`.
#[must_use]
pub fn terms(query: &str, folding: Folding) -> Vec<Term> {
    let mut terms = Vec::new();
    for (n, piece) in query.split('"').enumerate() {
        let quoted = n % 2 == 1;
        let parts: Vec<&str> = if quoted { vec![piece] } else { piece.split_whitespace().collect() };
        for part in parts {
            let words: Vec<String> = words(part, folding).into_iter().map(|word| word.folded).collect();
            if !words.is_empty() {
                terms.push(Term { words, prefix: !quoted && part.ends_with('*') });
            }
        }
    }
    terms
}

/// What a character means to the tokenizer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    /// Begins or continues a word.
    Letter,
    /// Continues a word that was begun.
    Mark,
    /// A word of its own.
    Alone,
    /// Ends a word.
    Between,
}

impl Folding {
    fn class(self, c: char) -> CharClass {
        if c.is_ascii() {
            return if c.is_ascii_alphanumeric() { CharClass::Letter } else { CharClass::Between };
        }
        match self {
            Self::KeepAccents => class_keeping_accents(c),
            Self::DropAccents => class_dropping_accents(c),
        }
    }

    fn fold_word(self, word: &str) -> String {
        match self {
            // NFKC unites ligatures, full-width letters and the like with plain ones, and keeps accents.
            Self::KeepAccents => fold_case(&word.nfkc().collect::<String>())
                .chars()
                // What remains must not be a separator for the database's own tokenizer.
                .filter(|c| if c.is_ascii() { c.is_ascii_alphanumeric() } else { !c.is_whitespace() })
                .take(WORD_CHARS_MAX)
                .collect(),
            // NFKD parts letters from their accents, so that the filter can drop those.
            Self::DropAccents => word
                .nfkd()
                .flat_map(char::to_lowercase)
                .filter(|c| c.is_alphanumeric() && !is_combining_mark(*c))
                .take(WORD_CHARS_MAX)
                .collect(),
        }
    }
}

fn class_keeping_accents(c: char) -> CharClass {
    match c {
        // Thai to Tibetan, Burmese, Khmer, kana, Chinese characters.
        '\u{e00}'..='\u{fff}'
        | '\u{1000}'..='\u{109f}'
        | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}' => CharClass::Alone,
        // Joiners and variation selectors are part of what they follow, which may be a symbol.
        '\u{200b}'..='\u{200f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' => CharClass::Mark,
        _ if is_combining_mark(c) => CharClass::Mark,
        _ if c.is_alphanumeric() => CharClass::Letter,
        // Dashes, quotes, ideographic punctuation.
        '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ffef}' => CharClass::Between,
        _ if c.is_whitespace() || c.is_control() => CharClass::Between,
        _ if c < '\u{2100}' => CharClass::Between,
        _ => CharClass::Alone,
    }
}

fn class_dropping_accents(c: char) -> CharClass {
    match c {
        // Kana and Chinese characters.
        '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}' => CharClass::Alone,
        // Some marks count as letters of their script; those begin a word.
        _ if c.is_alphanumeric() => CharClass::Letter,
        _ if is_combining_mark(c) => CharClass::Mark,
        _ => CharClass::Between,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folding: Folding, text: &str, expected: &[&str]) {
        let found = words(text, folding);
        assert_eq!(found.iter().map(|w| w.folded.as_str()).collect::<Vec<_>>(), expected, "{text}");
        assert!(found.iter().all(|word| text.get(word.at.clone()).is_some_and(|part| !part.is_empty())));
    }

    #[test]
    fn words_of_many_scripts_keep_their_accents() {
        let check = |text, expected: &[&str]| check(Folding::KeepAccents, text, expected);
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
    fn words_drop_case_and_accents_and_have_their_position() {
        let check = |text, expected: &[&str]| check(Folding::DropAccents, text, expected);
        check("The Blue-Jay's nest, 2nd!", &["the", "blue", "jay", "s", "nest", "2nd"]);
        check("Élan über cafe\u{301}", &["elan", "uber", "cafe"]);
        check("東京 Tower", &["東", "京", "tower"]);
        check("ﬁne ΣΑΣ", &["fine", "σασ"]);
        check(" \n'' \u{301}", &[]);
        assert_eq!(words("a b", Folding::DropAccents)[1].at, 2..3);
    }

    #[test]
    fn long_words_are_cut_to_their_beginning() {
        for folding in [Folding::KeepAccents, Folding::DropAccents] {
            assert_eq!(words(&"x".repeat(10_000), folding)[0].folded.len(), WORD_CHARS_MAX);
        }
    }

    #[test]
    fn queries_are_words_phrases_and_beginnings() {
        let term =
            |words: &[&str], prefix| Term { words: words.iter().map(|w| (*w).to_owned()).collect(), prefix };
        let terms = |query| terms(query, Folding::KeepAccents);
        assert_eq!(
            terms("Auth* \"log in\" jwt.ts"),
            [term(&["auth"], true), term(&["log", "in"], false), term(&["jwt", "ts"], false)]
        );
        assert_eq!(terms("\"unfinished phrase"), [term(&["unfinished", "phrase"], false)]);
        assert_eq!(terms(" % * \"\" "), []);
    }

    #[test]
    fn upper_and_lower_case_fold_to_one_form() {
        for (one, other) in [("ΟΔΟΣ", "οδος"), ("ÄÖ", "äö"), ("E\u{301}", "é"), ("STRASSE", "straße")]
        {
            assert_eq!(fold_case(one), fold_case(other));
        }
    }
}
