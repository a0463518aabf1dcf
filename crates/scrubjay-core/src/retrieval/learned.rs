//! Words that earlier tasks used for a tool and that its definition does not have, with the number of conversations
//! that used each.
//!
//! Kept apart from the catalog's own words, which they never change. A conversation counts once for a word, so that
//! repeating a word does not promote a tool.

use std::collections::HashMap;

/// The most words that a tool remembers.
pub(super) const WORDS_MAX: usize = 64;
/// The most conversations that count for a word: more would not make it surer.
pub(super) const TIMES_MAX: usize = 5;
/// From this many conversations on, a word also counts for the confidence; before that it only moves the ranking.
pub(super) const SURE_TIMES: usize = 3;

/// The learned words of all tools.
#[derive(Default)]
pub(super) struct LearnedWords {
    words: HashMap<String, Vec<LearnedUse>>,
    /// How many words each tool has.
    known: HashMap<u32, usize>,
}

struct LearnedUse {
    tool: u32,
    /// The conversations, by their hashes.
    conversations: Vec<u64>,
}

impl LearnedWords {
    /// Remembers that a conversation used a word for a tool; a tool with [`WORDS_MAX`] words learns no new ones.
    pub(super) fn learn(&mut self, word: &str, tool: u32, by: u64) {
        let known = self.known.entry(tool).or_default();
        let has_room = *known < WORDS_MAX;
        if let Some(used) = self.words.get_mut(word).and_then(|all| all.iter_mut().find(|s| s.tool == tool)) {
            if used.conversations.len() < TIMES_MAX && !used.conversations.contains(&by) {
                used.conversations.push(by);
            }
        } else if has_room {
            *known += 1;
            self.words.entry(word.to_owned()).or_default().push(LearnedUse { tool, conversations: vec![by] });
        }
    }

    /// Returns the tools for which at least this many conversations used a word, and how many did.
    pub(super) fn of(&self, word: &str, least: usize) -> impl Iterator<Item = (usize, usize)> {
        let uses = self.words.get(word).into_iter().flatten();
        uses.map(|used| (used.tool as usize, used.conversations.len()))
            .filter(move |(_, times)| *times >= least)
    }

    /// Returns how many words a tool has.
    #[cfg(test)]
    pub(super) fn words_of(&self, tool: u32) -> usize {
        self.known.get(&tool).copied().unwrap_or_default()
    }
}
