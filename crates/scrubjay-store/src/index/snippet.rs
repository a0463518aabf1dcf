//! The piece of a recorded text that shows why it was found.
//!
//! Records and progress cut their own snippets, because the contracts of their tools differ: here matches are positions,
//! which a terminal colours; there they are between `**`. The others also cut by other units: records 160 characters
//! around the first word, progress 24 words where most different words match.

use scrubjay_core::query::SearchTerm;
use serde::Serialize;

use super::dialect::FOLDING;
use crate::ledger::words::words;

/// The most characters of a snippet.
const CHARS_MAX: usize = 160;
/// How many of them come before the first match.
const BEFORE: usize = 40;

/// A piece of text, with the positions of matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// The text, on one line.
    pub text: String,
    /// Where matches begin and end, in characters.
    pub marks: Vec<(usize, usize)>,
}

/// Cuts a snippet around the first match; without a match, the beginning of the text.
pub(super) fn cut(text: &str, terms: &[SearchTerm]) -> Snippet {
    // Shown on one line, so line ends and indentation become single spaces.
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let characters: Vec<char> = line.chars().collect();
    // Found again here, because neither database reports where in a text a match is: the text itself is not stored.
    let words = words_of(&line);
    let mut matches: Vec<(usize, usize)> = terms.iter().flat_map(|term| find_all(&words, term)).collect();
    // If two matches begin at the same character, the longer one is marked.
    matches.sort_unstable_by_key(|(begin, end)| (*begin, std::cmp::Reverse(*end)));
    matches.dedup_by(|next, first| next.0 < first.1);
    let first = matches.first().map_or(0, |(begin, _)| *begin);
    let begin = first.saturating_sub(BEFORE);
    let end = (begin + CHARS_MAX).min(characters.len());
    let lead = usize::from(begin > 0);
    let mut cut: String = if begin > 0 { "…".to_owned() } else { String::new() };
    cut.extend(&characters[begin..end]);
    if end < characters.len() {
        cut.push('…');
    }
    let marks = matches
        .into_iter()
        .filter(|(_, stop)| *stop <= end)
        .map(|(start, stop)| (start - begin + lead, stop - begin + lead))
        .collect();
    Snippet { text: cut, marks }
}

/// A word as the index compares it, and where it is, in characters.
struct FoldedWord {
    folded: String,
    begin: usize,
    end: usize,
}

/// Cuts a text as the index does, so that what it finds can be marked.
fn words_of(text: &str) -> Vec<FoldedWord> {
    let (mut bytes, mut characters) = (0, 0);
    let mut count_to = |end: usize| {
        characters += text[bytes..end].chars().count();
        bytes = end;
        characters
    };
    words(text, FOLDING)
        .into_iter()
        .map(|word| FoldedWord {
            folded: word.folded,
            begin: count_to(word.at.start),
            end: count_to(word.at.end),
        })
        .collect()
}

/// Finds the words of a term one after the other.
fn find_all(found: &[FoldedWord], term: &SearchTerm) -> Vec<(usize, usize)> {
    let wanted = words(term.as_str(), FOLDING);
    let is_prefix = matches!(term, SearchTerm::Prefix(_));
    let equal = |at: usize, word: &FoldedWord| {
        let asked = wanted[at].folded.as_str();
        if is_prefix && at + 1 == wanted.len() {
            word.folded.starts_with(asked)
        } else {
            word.folded == asked
        }
    };
    found
        .windows(wanted.len().max(1))
        .filter(|window| !wanted.is_empty() && window.iter().enumerate().all(|(at, word)| equal(at, word)))
        .filter_map(|window| Some((window.first()?.begin, window.last()?.end)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, terms: &[SearchTerm], expected: &str) {
        let snippet = cut(text, terms);
        let mut shown = String::new();
        for (at, c) in snippet.text.chars().enumerate() {
            shown.extend(snippet.marks.iter().filter(|m| m.1 == at).map(|_| ']'));
            shown.extend(snippet.marks.iter().filter(|m| m.0 == at).map(|_| '['));
            shown.push(c);
        }
        shown.extend(snippet.marks.iter().filter(|m| m.1 == snippet.text.chars().count()).map(|_| ']'));
        assert_eq!(shown, expected);
    }

    #[test]
    fn matches_are_marked() {
        let phrase = |text: &str| SearchTerm::Phrase(text.to_owned());
        check(
            "A  Connection\nrefused, again",
            &[phrase("connection refused")],
            "A [Connection refused], again",
        );
        check(
            "read_file reader",
            &[phrase("read file"), SearchTerm::Prefix("read".to_owned())],
            "[read_file] [reader]",
        );
        check("reader", &[phrase("read")], "reader");
        check("Un Café noir, 認証", &[phrase("cafe"), phrase("証")], "Un [Café] noir, 認[証]");
        let long = format!("{}needle{}", "hay ".repeat(100), " hay".repeat(100));
        let snippet = cut(&long, &[phrase("NEEDLE")]);
        assert!(snippet.text.starts_with('…') && snippet.text.ends_with('…'), "{snippet:?}");
        let (begin, end) = snippet.marks[0];
        assert_eq!(snippet.text.chars().skip(begin).take(end - begin).collect::<String>(), "needle");
    }
}
