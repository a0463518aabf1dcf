//! What can be asked of recordings: when, which methods, tools and sessions, what text, how slow, how it ended.
//!
//! The value alone: `query/syntax.rs` reads it from what a person types, `query/field.rs` tests one message.
//! What is searched are *exchanges* (`exchange.rs`): a request together with its answer, or a message that
//! stands alone. So a filter on parameters and one on the time to the answer can hold of the same thing.

mod field;
mod syntax;

use serde::{Deserialize, Serialize};

use crate::exchange::What;

pub use field::{FieldFilter, Test};
pub use syntax::{QueryError, QueryProblem, moment, parse};

/// No answer lists more than this at once.
pub const LIMIT_MAX: usize = 1000;

/// A question; what is empty or absent does not narrow it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchQuery {
    /// Not before, nanoseconds since the Unix epoch.
    pub from_ns: Option<u64>,
    /// Before, nanoseconds since the Unix epoch.
    pub to_ns: Option<u64>,
    /// One of these methods; a `*` stands for anything.
    pub methods: Vec<String>,
    /// A call of one of these tools; a `*` stands for anything.
    pub tools: Vec<String>,
    /// Not a call of one of these tools; a `*` stands for anything.
    pub except_tools: Vec<String>,
    /// About one of these tools, prompts or resources; a `*` stands for anything.
    pub names: Vec<String>,
    /// Holding a message of one of these types.
    pub types: Vec<What>,
    /// Of a session whose id begins so.
    pub sessions: Vec<String>,
    /// On a tape whose id begins so.
    pub tapes: Vec<String>,
    /// Of a connection with one of these names.
    pub servers: Vec<String>,
    /// With one of these backends, both legs of an operation counting; a `*` stands for anything.
    pub via: Vec<String>,
    /// Holding all of this text.
    pub text: Vec<Term>,
    /// What the parameters must be like.
    pub params: Vec<FieldFilter>,
    /// What the result must be like.
    pub results: Vec<FieldFilter>,
    /// Failed with one of these codes.
    pub error_codes: Vec<i64>,
    /// Whether it failed.
    pub has_errors: Option<bool>,
    /// Answered after at least this long.
    pub min_response_ns: Option<u64>,
    /// Answered after at most this long.
    pub max_response_ns: Option<u64>,
    /// How many to pass over.
    pub offset: usize,
    /// How many to list.
    pub limit: usize,
    /// By what they are ordered.
    pub sort: SortField,
    /// Which way.
    pub order: SortOrder,
}

impl Default for SearchQuery {
    fn default() -> Self {
        Self {
            from_ns: None,
            to_ns: None,
            methods: Vec::new(),
            tools: Vec::new(),
            except_tools: Vec::new(),
            names: Vec::new(),
            types: Vec::new(),
            sessions: Vec::new(),
            tapes: Vec::new(),
            servers: Vec::new(),
            via: Vec::new(),
            text: Vec::new(),
            params: Vec::new(),
            results: Vec::new(),
            error_codes: Vec::new(),
            has_errors: None,
            min_response_ns: None,
            max_response_ns: None,
            offset: 0,
            limit: 20,
            sort: SortField::default(),
            order: SortOrder::default(),
        }
    }
}

/// A piece of text to be found, whatever its case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// These words, one right after the other.
    Phrase(String),
    /// A word that begins so.
    Prefix(String),
}

impl Term {
    /// Reads a text: these words, one right after the other; with a `*` at the end the beginning of a word.
    ///
    /// # Errors
    /// There is nothing in it that could be found.
    pub fn of(text: String) -> Result<Self, QueryProblem> {
        match text.strip_suffix('*') {
            Some(beginning) if beginning.contains(char::is_alphanumeric) => {
                Ok(Self::Prefix(beginning.to_owned()))
            }
            _ => Self::phrase(text),
        }
    }

    /// Takes a text as it stands: these words, one right after the other.
    ///
    /// # Errors
    /// There is nothing in it that could be found.
    pub fn phrase(text: String) -> Result<Self, QueryProblem> {
        if text.contains(char::is_alphanumeric) {
            Ok(Self::Phrase(text))
        } else {
            Err(QueryProblem::NoWord(text))
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Phrase(text) | Self::Prefix(text) => text,
        }
    }
}

/// What answers are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortField {
    /// When it began.
    #[default]
    Time,
    /// How long the answer took.
    Took,
    /// How large request and answer are.
    Size,
}

/// Which end comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    /// The newest, slowest, largest.
    #[default]
    Descending,
    /// The oldest, fastest, smallest.
    Ascending,
}
