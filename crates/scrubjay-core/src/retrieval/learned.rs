//! What tools were asked as before: words that their definitions do not have, and how many conversations
//! used each.
//!
//! Kept apart from the catalog's own words, which it never changes. A conversation counts once for a word, so
//! that nobody gets a tool found by saying something often.

use std::collections::HashMap;

/// A tool remembers so many words.
pub(super) const WORDS_MAX: usize = 64;
/// And of each so many conversations.
pub(super) const TIMES_MAX: usize = 5;
/// A word that so many conversations used counts like one of its definition; before that it only suggests.
pub(super) const SURE_TIMES: usize = 3;

/// The words of all tools.
#[derive(Default)]
pub(super) struct LearnedWords {
    words: HashMap<String, Vec<Said>>,
    /// How many words each tool has.
    known: HashMap<u32, usize>,
}

struct Said {
    tool: u32,
    /// The conversations, by their hashes.
    by: Vec<u64>,
}

impl LearnedWords {
    /// Remembers that a conversation used a word for a tool; a tool that remembers enough learns no new ones.
    pub(super) fn learn(&mut self, word: &str, tool: u32, by: u64) {
        let known = self.known.entry(tool).or_default();
        let has_room = *known < WORDS_MAX;
        if let Some(said) = self.words.get_mut(word).and_then(|all| all.iter_mut().find(|s| s.tool == tool)) {
            if said.by.len() < TIMES_MAX && !said.by.contains(&by) {
                said.by.push(by);
            }
        } else if has_room {
            *known += 1;
            self.words.entry(word.to_owned()).or_default().push(Said { tool, by: vec![by] });
        }
    }

    /// Returns the tools that a word was used for at least so often, and how often.
    pub(super) fn of(&self, word: &str, least: usize) -> impl Iterator<Item = (usize, usize)> {
        let said = self.words.get(word).into_iter().flatten();
        said.map(|said| (said.tool as usize, said.by.len())).filter(move |(_, times)| *times >= least)
    }

    /// Returns how many words a tool has.
    #[cfg(test)]
    pub(super) fn words_of(&self, tool: u32) -> usize {
        self.known.get(&tool).copied().unwrap_or_default()
    }
}
