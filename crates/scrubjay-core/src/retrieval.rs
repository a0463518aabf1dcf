//! Ranks the tools of a catalog for a task in plain language, with reasons and a confidence.
//!
//! No model, only words: BM25 over weighted fields, with stems, synonyms and near misses. The router decides what is
//! called; this only knows the catalog.

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

/// The lowest confidence to act on: below it a shortlist is more likely wrong than right, and the router abstains.
const ACT_MIN: f32 = 0.5;

/// A field of a tool's definition.
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
    /// The titles and descriptions in its schema.
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

/// How tools are ranked. Two settings are used: the full one, and plain BM25, which it must beat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetrievalSettings {
    /// The weight of a word in each field.
    pub weights: [f32; 8],
    /// Whether all fields are treated as one when their length is compared.
    pub joined: bool,
    /// How much a long field is discounted, 0 to 1: `b` of BM25.
    pub length: f32,
    /// How soon repetitions of a word stop counting: `k1` of BM25.
    pub saturation: f32,
    /// Whether stop words are dropped and the others reduced to their stems.
    pub stems: bool,
    /// The weight of a synonym, where 1 is the word itself.
    pub synonyms: f32,
    /// Whether commands, questions and the form of values suggest words.
    pub hints: bool,
    /// The weight of a near miss.
    pub near: f32,
    /// How much of the score depends on the share of words that are found.
    pub coverage: f32,
}

impl RetrievalSettings {
    /// The settings of the router.
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
    /// How likely the right tool is among the first few, 0 to 1.
    pub confidence: f32,
    /// The values from which the confidence is computed.
    pub signs: ScoreShape,
}

impl Shortlist {
    /// Returns whether it is good enough to act on.
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
    /// How well it matches; comparable only within one shortlist.
    pub score: f32,
    /// Which words were found in which fields.
    pub why: Vec<WordMatch>,
}

/// A word of the task that was found in a tool's definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WordMatch {
    /// The word of the task.
    pub word: String,
    /// The stem that was found: of the word itself, a synonym or a near miss.
    pub found: String,
    /// The fields in which it was found.
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
    /// How many of the informative words are in any tool's definition, 0 to 1.
    pub known: f32,
}
