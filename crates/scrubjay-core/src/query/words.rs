//! The tokens of a query: words, parentheses and `OR`, each with its position.
//!
//! Knows quotation marks, but no filters.

use std::ops::Range;

use super::syntax::{QueryError, QueryProblem};

/// A piece of a query.
#[derive(Debug)]
pub(super) enum QueryToken {
    /// A word or a quoted text.
    Word(QueryWord),
    /// `(`, or `-(`.
    Open { is_negated: bool, at: Range<usize> },
    /// `)`.
    Close { at: Range<usize> },
    /// `OR`.
    Or { at: Range<usize> },
}

/// One word of a query, without a `-` in front and without quotation marks.
#[derive(Debug)]
pub(super) struct QueryWord {
    pub(super) text: String,
    /// Whether a `-` stood before it.
    pub(super) is_negated: bool,
    /// Whether it began with a quotation mark.
    pub(super) is_quoted: bool,
    /// Where in the text the first quoted part begins.
    pub(super) quoted_from: usize,
    /// Its position in the query.
    pub(super) at: Range<usize>,
}

impl QueryWord {
    /// Splits `name:value`. A name consists of letters; `https://x` is an address, not a filter.
    pub(super) fn filter(&self) -> Option<(&str, &str)> {
        let (name, value) = self.text.split_once(':')?;
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
        (is_name && name.len() < self.quoted_from && !value.starts_with("//")).then_some((name, value))
    }

    /// Returns the name before `=`, `~`, `>` or `<`, if it could be that of a field.
    pub(super) fn comparison(&self) -> Option<&str> {
        let end = self.text.find(['=', '~', '<', '>']).filter(|end| *end < self.quoted_from)?;
        let name = &self.text[..end];
        let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.[]*".contains(&b);
        (name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(is_name)).then_some(name)
    }
}

/// Cuts a query into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<QueryToken>, QueryError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if c == '(' {
            tokens.push(QueryToken::Open { is_negated: false, at: at..at + 1 });
            at += 1;
        } else if text[at..].starts_with("-(") {
            tokens.push(QueryToken::Open { is_negated: true, at: at..at + 2 });
            at += 2;
        } else if c == ')' {
            tokens.push(QueryToken::Close { at: at..at + 1 });
            at += 1;
        } else {
            let word = word(text, at)?;
            at = word.at.end;
            // Compared with what was typed, because a quoted "OR" is text.
            if text[word.at.clone()] == *"OR" {
                tokens.push(QueryToken::Or { at: word.at });
            } else {
                tokens.push(QueryToken::Word(word));
            }
        }
    }
    Ok(tokens)
}

/// Reads the word that begins here, up to a space, or to a `)` without a `(` within the word: that one closes a group.
fn word(text: &str, begin: usize) -> Result<QueryWord, QueryError> {
    let rest = &text[begin..];
    let is_negated = rest.starts_with('-') && rest.len() > 1 && !rest[1..].starts_with(char::is_whitespace);
    let behind_minus = usize::from(is_negated);
    let mut word = QueryWord {
        text: String::new(),
        is_negated,
        is_quoted: rest[behind_minus..].starts_with('"'),
        quoted_from: usize::MAX,
        at: begin..text.len(),
    };
    let (mut opened, mut is_open, mut depth) = (begin, false, 0u32);
    let mut characters = rest[behind_minus..].char_indices();
    while let Some((at, c)) = characters.next() {
        let at = begin + behind_minus + at;
        match c {
            '"' => {
                is_open = !is_open;
                opened = at;
                word.quoted_from = word.quoted_from.min(word.text.len());
                continue;
            }
            '\\' if is_open => {
                word.text.extend(characters.next().map(|(_, next)| next));
                continue;
            }
            c if is_open => {
                word.text.push(c);
                continue;
            }
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ')' => {
                word.at.end = at;
                return Ok(word);
            }
            c if c.is_whitespace() => {
                word.at.end = at;
                return Ok(word);
            }
            _ => {}
        }
        word.text.push(c);
    }
    if is_open {
        return Err(QueryError { problem: QueryProblem::Quote, at: opened..text.len() });
    }
    Ok(word)
}
