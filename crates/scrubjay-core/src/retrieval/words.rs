//! Cuts text into terms: names such as `readFile` are split, stop words dropped, the others reduced to their stems.

use std::borrow::Cow;
use std::collections::HashSet;

use frostem::{Algorithm, Stemmer};

/// The most words that are read of one text.
const WORDS_MAX: usize = 2000;
/// The most words of a task that are searched, because each costs a pass over the catalog.
const TASK_WORDS_MAX: usize = 64;
/// The longest word in bytes: longer ones are data.
const WORD_BYTES_MAX: usize = 64;

/// Words that say nothing about which tool is wanted.
const STOP_WORDS: &str = "\
    a about all also am an and any are as at be been but by can could d did do does each every for from give \
    go got had has have hello help here hey hi how i if in into is it its just kindly let lets like ll many \
    may me might mine much must my need now of off okay on onto or our ours out over please pls re s shall \
    she should so some something t thank thanks that the their them then there these they thing things this \
    those to too up us use using ve want wants was we were what when where which while who whose why will \
    with within would you your yours exists exist comes come know";

/// Words about times, which are values of arguments: they do not help to find a tool.
const TIME_WORDS: &str = "\
    ago day days hour hours later monday tuesday wednesday thursday friday saturday sunday minute minutes month months \
    morning afternoon evening night noon now second seconds soon today tomorrow tonight week weekend weeks year years \
    yesterday january february march april june july august september october november december am pm next";

/// A word of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskWord<'t> {
    /// The word as it was typed.
    pub(super) typed: &'t str,
    /// Its kind, as far as its form tells.
    pub(super) kind: WordKind,
    /// The text between spaces of which it is a part: `/etc/hosts`.
    pub(super) chunk: &'t str,
}

/// The kind of a word of a task, as far as its form tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordKind {
    /// A word.
    Word,
    /// The name of a person or a thing.
    Name,
    /// A value: a path, a number, quoted text.
    Value,
}

/// Turns words into terms, with or without stemming.
pub(super) struct WordReader {
    stemmer: Option<Stemmer>,
    stop_words: HashSet<&'static str>,
}

impl WordReader {
    pub(super) fn new(stems: bool) -> Self {
        Self {
            stemmer: stems.then(|| Stemmer::new(Algorithm::English)),
            stop_words: STOP_WORDS.split(' ').collect(),
        }
    }

    /// Returns the term of a lower-case word; stop words have none.
    pub(super) fn term<'w>(&self, word: &'w str) -> Option<Cow<'w, str>> {
        let Some(stemmer) = &self.stemmer else { return Some(Cow::Borrowed(word)) };
        if self.stop_words.contains(word) {
            return None;
        }
        Some(stemmer.stem(word))
    }

    /// Calls back with every term of a text; a name in camel case gives its parts and the whole.
    pub(super) fn terms(&self, text: &str, mut found: impl FnMut(&str)) {
        for typed in typed_words(text) {
            let parts = parts(typed);
            let whole = typed.to_lowercase();
            // Plain BM25, which stems nothing, also splits nothing: it is the baseline.
            if parts.len() > 1 && self.stemmer.is_some() {
                for part in parts {
                    self.term(&part.to_lowercase()).iter().for_each(|term| found(term));
                }
            }
            self.term(&whole).iter().for_each(|term| found(term));
        }
    }
}

fn typed_words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.filter(|word| word.len() <= WORD_BYTES_MAX).take(WORDS_MAX)
}

/// Cuts a word at its capitals: `readFile`, `HTTPServer`.
pub(super) fn parts(word: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = word.char_indices().collect();
    let mut parts = Vec::new();
    let mut start = 0;
    for i in 1..chars.len() {
        let (before, (at, here)) = (chars[i - 1].1, chars[i]);
        let begins_word = here.is_uppercase()
            && (before.is_lowercase()
                || before.is_uppercase() && chars.get(i + 1).is_some_and(|(_, next)| next.is_lowercase()));
        if begins_word {
            parts.push(&word[start..at]);
            start = at;
        }
    }
    parts.push(&word[start..]);
    parts
}

/// Cuts a task into words, and tells words from names and values.
pub(super) fn task_words(task: &str) -> Vec<TaskWord<'_>> {
    let mut words = Vec::new();
    let mut quoted = false;
    for (i, chunk) in task.split_whitespace().enumerate() {
        quoted |= chunk.starts_with(['"', '\'', '`', '“', '«']);
        let bare = chunk.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '/' | '~' | '#' | '.'));
        let bare = bare.trim_end_matches('.');
        // A path, an address, a number, a flag; a name is capital and does not begin the task.
        let odd = bare.contains(['/', '\\', '@', '#', '=', ':', '~', '*', '<', '>'])
            || bare.contains('.')
            || bare.chars().any(|c| c.is_ascii_digit()) && !bare.chars().all(char::is_alphabetic);
        let mut letters = bare.chars();
        let is_name = i > 0
            && letters.next().is_some_and(char::is_uppercase)
            && letters.next().is_some_and(char::is_lowercase)
            && parts(bare).len() == 1;
        let is_time = TIME_WORDS.split(' ').any(|time| time.eq_ignore_ascii_case(bare));
        let kind = match (quoted || odd || is_time, is_name) {
            (true, _) => WordKind::Value,
            (_, true) => WordKind::Name,
            _ => WordKind::Word,
        };
        words.extend(typed_words(chunk).map(|typed| TaskWord { typed, kind, chunk: bare }));
        if chunk.trim_end_matches(['.', ',', ';', '!', '?', ':']).ends_with(['"', '\'', '`', '”', '»']) {
            quoted = false;
        }
    }
    words.truncate(TASK_WORDS_MAX);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        WordReader::new(true).terms(text, |term| terms.push(term.to_owned()));
        terms
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(parts("readFile"), ["read", "File"]);
        assert_eq!(parts("HTTPServer"), ["HTTP", "Server"]);
        assert_eq!(parts("überGröße"), ["über", "Größe"]);
        assert_eq!(parts("URL"), ["URL"]);
        assert_eq!(terms("read_text-file"), ["read", "text", "file"]);
        assert_eq!(terms("readFile"), ["read", "file", "readfil"]);
        assert_eq!(terms("GitHub"), ["git", "hub", "github"]);
    }

    #[test]
    fn words_are_stemmed_and_stop_words_dropped() {
        assert_eq!(terms("Please list all the directories of it"), ["list", "directori"]);
        let mut plain = Vec::new();
        WordReader::new(false).terms("Lists the fooBar", |term| plain.push(term.to_owned()));
        assert_eq!(plain, ["lists", "the", "foobar"]);
    }

    #[test]
    fn values_are_distinguished_from_words() {
        let values = |task: &str| {
            let words = task_words(task);
            words.iter().filter(|w| w.kind != WordKind::Word).map(|w| w.typed.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values("Read /etc/hosts for me."), ["etc", "hosts"]);
        assert_eq!(values("Mail \"see you\" to Anna Smith"), ["see", "you", "Anna", "Smith"]);
        assert_eq!(values("close issue #42 in GitHub"), ["42"]);
        assert_eq!(values("delete a.txt, then stop."), ["a", "txt"]);
    }

    #[test]
    fn long_texts_are_read_up_to_a_limit() {
        assert_eq!(task_words(&"word ".repeat(10_000)).len(), 64);
        assert_eq!(terms(&"word ".repeat(10_000)).len(), WORDS_MAX);
        assert!(terms(&"w".repeat(100)).is_empty());
    }
}
