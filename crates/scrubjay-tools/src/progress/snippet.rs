//! Cuts the passage of an entry that contains most of the searched words. Pure.
//!
//! The store's `index/snippet.rs` says why it is not the snippet of recordings or of records.

use std::collections::HashSet;

use scrubjay_store::ledger::progress::FOLDING;
use scrubjay_store::ledger::words::{Term, Word, words};

/// How many words a snippet shows: about two lines.
const WORDS: usize = 24;
/// How many of them come before the first match.
const BEFORE: usize = 6;
/// The most characters of a snippet, without marks: a word may be of any length.
const CHARS_MAX: usize = 300;

/// Returns the passage with matches between `**`; of the content, or of the title if only that matches.
pub(super) fn of(title: &str, content: &str, terms: &[Term]) -> String {
    let (place, found) = best(content, terms);
    if found > 0 { place } else { best(title, terms).0 }
}

/// Returns the passage of a text in which the most different words match, and how many.
fn best(text: &str, terms: &[Term]) -> (String, usize) {
    let words = words(text, FOLDING);
    let hits: Vec<(usize, usize)> =
        words.iter().enumerate().filter_map(|(n, word)| Some((n, term_of(word, terms)?))).collect();
    let mut start = 0;
    let mut most = 0;
    for (n, &(first, _)) in hits.iter().enumerate() {
        // A passage begins `BEFORE` words before its first match, so this is where it ends.
        let reach = first + WORDS - BEFORE;
        let here = hits[n..].iter().take_while(|(n, _)| *n < reach);
        let different = here.map(|(_, term)| term).collect::<HashSet<_>>().len();
        if different > most {
            (start, most) = (first.saturating_sub(BEFORE), different);
        }
        if most == terms.len() {
            // No passage can have more.
            break;
        }
    }
    let end = (start + WORDS).min(words.len());
    (shown(text, &words[start..end], start > 0, end < words.len(), terms), most)
}

fn term_of(word: &Word, terms: &[Term]) -> Option<usize> {
    terms.iter().position(|term| {
        let last = term.words.last();
        term.words.contains(&word.folded)
            || (term.prefix && last.is_some_and(|last| word.folded.starts_with(last.as_str())))
    })
}

fn shown(text: &str, window: &[Word], cut_before: bool, cut_after: bool, terms: &[Term]) -> String {
    let (Some(first), Some(last)) = (window.first(), window.last()) else { return String::new() };
    let start = if cut_before { first.at.start } else { 0 };
    let end = if cut_after { last.at.end } else { text.trim_end().len() };
    let mut snippet = if cut_before { "…".to_owned() } else { String::new() };
    let mut at = start;
    let mut left = CHARS_MAX;
    let mut put = |piece: &str, snippet: &mut String| {
        let kept: String =
            piece.chars().take(left).map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
        left -= kept.chars().count();
        snippet.push_str(&kept);
        left > 0
    };
    for word in window.iter().filter(|word| term_of(word, terms).is_some()) {
        if !put(&text[at..word.at.start], &mut snippet) {
            break;
        }
        snippet.push_str("**");
        put(&text[word.at.start..word.at.end], &mut snippet);
        snippet.push_str("**");
        at = word.at.end;
    }
    let whole = put(&text[at..end], &mut snippet);
    if cut_after || !whole {
        snippet.push('…');
    }
    snippet
}

#[cfg(test)]
mod tests {
    use super::*;
    use scrubjay_store::ledger::words::terms;

    fn check(query: &str, title: &str, content: &str, expected: &str) {
        assert_eq!(of(title, content, &terms(query, FOLDING)), expected);
    }

    #[test]
    fn the_snippet_is_taken_where_most_matches_are() {
        check("jwt", "t", "Added JWT tokens.", "Added **JWT** tokens.");
        check("auth*", "t", "src/authentication.ts", "src/**authentication**.ts");
        check("証", "t", "認証。", "認**証**。");
        check("login", "Login repaired", "nothing", "**Login** repaired");
        let long = format!("login {} the login page\nopened {}", "and then ".repeat(40), "so on ".repeat(40));
        let snippet = of("t", &long, &terms("login page", FOLDING));
        assert!(snippet.starts_with("…") && snippet.ends_with('…'), "{snippet}");
        assert!(snippet.contains("the **login** **page** opened"), "{snippet}");
    }

    #[test]
    fn a_snippet_is_short() {
        for text in ["x".repeat(10_000), format!("{} y", "x".repeat(10_000)), "🚀".repeat(5_000)] {
            assert!(
                of("t", &text, &terms("y xxxx 🚀", FOLDING)).chars().filter(|c| *c != '*').count()
                    <= CHARS_MAX + 2
            );
        }
        assert_eq!(of("", "", &terms("x", FOLDING)), "");
    }
}
