//! Finds the tools that a plain-language task may mean, and says why and how sure it is.
//!
//! Words against words, no model: BM25 over weighted fields, with stems, synonyms and near misses. What is
//! then called is the router's to decide; this only knows the catalog.

mod confidence;
mod hints;
mod index;
mod learned;
pub mod measure;
mod query;
mod score;
mod similar_terms;
mod synonyms;
#[cfg(test)]
mod tests;
mod tool;
mod words;

use serde::Serialize;

pub use index::ToolIndex;
pub use tool::ToolText;

/// Below this a shortlist is more likely wrong than right, and the router abstains.
pub const ACT_MIN: f32 = 0.5;

/// Where in a tool's definition a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum ToolField {
    /// Its name.
    Name,
    /// Its title.
    Title,
    /// The name of the server that has it.
    Backend,
    /// Its description.
    Description,
    /// The names of its parameters.
    Parameter,
    /// What its schema says about them.
    Schema,
    /// The values they can have.
    Enum,
    /// What it was asked as before.
    AskedAs,
}

impl ToolField {
    /// Every field, in order.
    pub const ALL: [Self; 8] = [
        Self::Name,
        Self::Title,
        Self::Backend,
        Self::Description,
        Self::Parameter,
        Self::Schema,
        Self::Enum,
        Self::AskedAs,
    ];

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// How tools are found. Two are worth having: the full one, and the plain one that it must beat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetrievalSettings {
    /// How much a word counts, field by field.
    pub weights: [f32; 8],
    /// Whether all fields that count are one.
    pub joined: bool,
    /// How much a field's length counts against it, 0 to 1.
    pub length: f32,
    /// How soon more of the same word stops counting.
    pub saturation: f32,
    /// Whether stop words fall away and the others are cut to their stems.
    pub stems: bool,
    /// How much a synonym counts, where 1 is the word itself.
    pub synonyms: f32,
    /// Whether commands, questions and the look of values suggest words.
    pub hints: bool,
    /// How much a near miss counts.
    pub near: f32,
    /// How much of the score depends on how many of the words are found.
    pub coverage: f32,
}

impl RetrievalSettings {
    /// Everything there is.
    #[must_use]
    pub const fn full() -> Self {
        Self {
            weights: [4.0, 2.0, 1.5, 1.0, 0.6, 0.3, 0.5, 3.0],
            joined: false,
            length: 0.5,
            saturation: 1.2,
            stems: true,
            synonyms: 0.7,
            hints: true,
            near: 0.8,
            coverage: 0.4,
        }
    }

    /// Plain BM25 over name and description.
    #[must_use]
    pub const fn bm25() -> Self {
        Self {
            weights: [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            joined: true,
            length: 0.75,
            saturation: 1.2,
            stems: false,
            synonyms: 0.0,
            hints: false,
            near: 0.0,
            coverage: 0.0,
        }
    }
}

/// The tools that a task may mean, best first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shortlist {
    /// The tools.
    pub hits: Vec<ToolHit>,
    /// How likely the first few hold the right one, 0 to 1.
    pub confidence: f32,
    /// What the confidence is made of.
    pub signs: ScoreShape,
}

impl Shortlist {
    /// Tells whether it is good enough to act on.
    #[must_use]
    pub fn acts(&self) -> bool {
        self.confidence >= ACT_MIN
    }
}

/// A tool that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolHit {
    /// Its place in the catalog.
    pub tool: usize,
    /// How well it fits; comparable within one shortlist.
    pub score: f32,
    /// Which words fit where.
    pub why: Vec<WordMatch>,
}

/// A word of the task that stands in a tool's definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WordMatch {
    /// The word, as asked.
    pub word: String,
    /// The stem that stands there: of the word itself, a synonym or something near.
    pub found: String,
    /// Where.
    pub fields: Vec<ToolField>,
}

/// The shape of a shortlist's scores, from which confidence follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ScoreShape {
    /// The best score as a part of what a perfect tool would have.
    pub fit: f32,
    /// How much of the task's informative words the best tool covers.
    pub covered: f32,
    /// How far the second is behind the first, 0 to 1.
    pub margin: f32,
    /// How many of the informative words any tool knows, 0 to 1.
    pub known: f32,
}
