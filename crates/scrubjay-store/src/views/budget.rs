//! Limits views to a number of tokens, and cuts texts that are too long.

use std::borrow::Cow;

use scrubjay_core::shorten::shortened;
use scrubjay_core::tokens::{self, estimate_tokens};
use serde::Serialize;
use serde_json::Value;

/// The default token limit of a view.
pub const TOKENS: usize = 8000;
/// The largest token limit of a view.
pub const TOKENS_MAX: usize = 200_000;

/// The part of a view to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The event or revision after which to begin.
    pub after: i64,
    /// The most items to return.
    pub limit: i64,
    /// The most tokens; `None` for no limit.
    pub tokens_max: Option<usize>,
}

impl Window {
    /// Makes a window without a token limit.
    #[must_use]
    pub fn items(after: i64, limit: i64) -> Self {
        Self { after, limit, tokens_max: None }
    }

    /// Returns how many items to read: one more than are shown, to know whether more follow.
    pub(super) fn items_read(&self) -> i64 {
        self.items_shown() + 1
    }

    pub(super) fn items_shown(&self) -> i64 {
        self.limit.clamp(1, super::PAGE_MAX)
    }
}

/// Estimates how many tokens a value has as JSON.
#[must_use]
pub fn tokens_of(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |json| estimate_tokens(&json))
}

/// Returns the beginning of a text with at most `tokens_max` tokens. It ends with a whole line, unless that would drop
/// more than half of it.
#[must_use]
pub(super) fn beginning(text: &str, tokens_max: usize) -> &str {
    let fitting = tokens::beginning(text, tokens_max);
    let whole = fitting.rfind('\n').map_or(0, |at| at + 1);
    if fitting.len() < text.len() && whole * 2 > fitting.len() { &text[..whole] } else { fitting }
}

/// Cuts all texts in a value; returns whether any was too long.
pub(super) fn cut_texts(value: &mut Value, chars_max: usize) -> bool {
    match value {
        Value::String(text) => match shortened(text, chars_max) {
            Cow::Owned(short) => {
                *text = short;
                true
            }
            Cow::Borrowed(_) => false,
        },
        // `|` and not `||`: every member must be cut.
        Value::Array(all) => all.iter_mut().fold(false, |any, one| cut_texts(one, chars_max) | any),
        Value::Object(all) => all.values_mut().fold(false, |any, one| cut_texts(one, chars_max) | any),
        _ => false,
    }
}

/// Takes items up to a number of tokens; always takes the first, so that a page makes progress. Returns whether all
/// were taken.
pub(super) fn take_within<T>(
    items: Vec<T>,
    tokens_max: Option<usize>,
    mut used: usize,
    cost: impl Fn(&T) -> usize,
) -> (Vec<T>, bool) {
    let Some(tokens_max) = tokens_max else { return (items, true) };
    let (count, mut taken) = (items.len(), Vec::new());
    for item in items {
        used += cost(&item);
        if used > tokens_max && !taken.is_empty() {
            break;
        }
        taken.push(item);
    }
    let all = taken.len() == count;
    (taken, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_texts_of_a_value_are_cut() {
        let mut value = serde_json::json!({ "a": "long text", "b": ["x", "another"], "n": 1 });
        assert!(cut_texts(&mut value, 5));
        assert_eq!(value, serde_json::json!({ "a": "long…", "b": ["x", "anot…"], "n": 1 }));
        assert!(!cut_texts(&mut value, 5));
    }

    #[test]
    fn a_beginning_fits_its_limit_and_ends_with_a_whole_line() {
        let text = "one two three\nfour five six\nseven eight nine\n";
        assert_eq!(beginning(text, 1000), text);
        let two_lines = estimate_tokens("one two three\nfour five six\nseven");
        assert_eq!(beginning(text, two_lines), "one two three\nfour five six\n");
        let cut = beginning("a\nsome words that are all on one long line", 6);
        assert!(
            cut.starts_with("a\nsome") && estimate_tokens(cut) <= 6,
            "most of a line is more than a line end: {cut}"
        );
    }

    #[test]
    fn at_least_one_item_is_always_taken() {
        let check = |max, expected: &[usize], all| {
            assert_eq!(take_within(vec![5, 3, 4], max, 2, |n| *n), (expected.to_vec(), all), "{max:?}");
        };
        check(None, &[5, 3, 4], true);
        check(Some(100), &[5, 3, 4], true);
        check(Some(10), &[5, 3], false);
        check(Some(1), &[5], false);
    }
}
