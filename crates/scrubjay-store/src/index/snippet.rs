//! Snippets: the piece of a recorded text that shows why it was found.

use scrubjay_core::query::SearchTerm;
use serde::Serialize;

/// The most characters of a snippet.
const CHARS_MAX: usize = 160;
/// How many of them come before the first match.
const BEFORE: usize = 40;

/// A piece of text, with the positions of matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snippet {
    /// The text, on one line.
    pub text: String,
    /// The beginning and end of each match, in characters.
    pub marks: Vec<(usize, usize)>,
}

/// Cuts a snippet around the first match; without a match, the beginning of the text.
pub(super) fn cut(text: &str, terms: &[SearchTerm]) -> Snippet {
    // Shown on one line, so line ends and indentation become single spaces.
    let characters: Vec<char> = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    // One lower-case character for each, so that positions are the same in both.
    let lower: Vec<char> = characters.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
    let mut matches: Vec<(usize, usize)> = terms.iter().flat_map(|term| find_all(&lower, term)).collect();
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

/// Finds the words of a term one after the other, with anything but letters and digits between them.
fn find_all(text: &[char], term: &SearchTerm) -> Vec<(usize, usize)> {
    let wanted = words(&term.as_str().to_lowercase().chars().collect::<Vec<_>>());
    let lower: Vec<char> = term.as_str().to_lowercase().chars().collect();
    let is_prefix = matches!(term, SearchTerm::Prefix(_));
    let found = words(text);
    let equal = |(begin, end): &(usize, usize), (from, to): &(usize, usize), is_last: bool| {
        let (word, asked) = (&text[*begin..*end], &lower[*from..*to]);
        if is_prefix && is_last { word.starts_with(asked) } else { word == asked }
    };
    found
        .windows(wanted.len().max(1))
        .filter(|window| {
            !wanted.is_empty()
                && window
                    .iter()
                    .zip(&wanted)
                    .enumerate()
                    .all(|(at, (w, a))| equal(w, a, at + 1 == wanted.len()))
        })
        .filter_map(|window| Some((window.first()?.0, window.last()?.1)))
        .collect()
}

/// Returns where words begin and end.
fn words(text: &[char]) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut begin = None;
    for (at, c) in text.iter().chain([&' ']).enumerate() {
        match (c.is_alphanumeric(), begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                words.push((from, at));
                begin = None;
            }
            _ => {}
        }
    }
    words
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
    fn what_was_looked_for_is_marked() {
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
        let long = format!("{}needle{}", "hay ".repeat(100), " hay".repeat(100));
        let snippet = cut(&long, &[phrase("NEEDLE")]);
        assert!(snippet.text.starts_with('…') && snippet.text.ends_with('…'), "{snippet:?}");
        let (begin, end) = snippet.marks[0];
        assert_eq!(snippet.text.chars().skip(begin).take(end - begin).collect::<String>(), "needle");
    }
}
