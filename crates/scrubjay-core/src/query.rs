//! What can be asked of recordings: when, which methods, tools and sessions, what text, how slow, how it ended.
//!
//! The value alone: `query/syntax.rs` reads it from what a person types, with `query/words.rs`, `query/filter.rs`
//! and `query/time.rs`; `query/field.rs` tests one message.
//! What is searched are *exchanges* (`exchange.rs`): a request together with its answer, or a message that
//! stands alone. So a filter on parameters and one on the time to the answer can hold of the same thing.

mod field;
mod filter;
mod syntax;
mod time;
mod words;

use serde::{Deserialize, Serialize};

use crate::exchange::ExchangeKind;

pub use field::{FieldFilter, MessageMember, ValueTest, field_path};
pub use syntax::{QueryError, QueryProblem, parse};
pub use time::{DayEdge, TimeError, moment};

/// No answer lists more than this at once.
pub const LIMIT_MAX: usize = 1000;

/// A question: what is looked for, and which page of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchQuery {
    /// What is looked for.
    #[serde(flatten)]
    pub conditions: Conditions,
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
            conditions: Conditions::default(),
            offset: 0,
            limit: 20,
            sort: SortField::default(),
            order: SortOrder::default(),
        }
    }
}

/// What an exchange must be like: all of this; what is empty or absent does not narrow it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conditions {
    /// Not before, nanoseconds since the Unix epoch.
    pub from_ns: Option<u64>,
    /// Before, nanoseconds since the Unix epoch.
    pub to_ns: Option<u64>,
    /// One of these methods; a `*` stands for anything.
    pub methods: Vec<String>,
    /// A call of one of these tools; a `*` stands for anything.
    pub tools: Vec<String>,
    /// About one of these tools, prompts or resources; a `*` stands for anything.
    pub names: Vec<String>,
    /// Holding a message of one of these types.
    pub types: Vec<ExchangeKind>,
    /// Of a session whose id begins so, that its host calls so, or `latest`.
    pub sessions: Vec<String>,
    /// On a tape whose id begins so; `latest` is the newest conversation.
    pub tapes: Vec<String>,
    /// Of a connection with one of these names.
    pub servers: Vec<String>,
    /// With one of these backends, both legs of an operation counting; a `*` stands for anything.
    pub via: Vec<String>,
    /// One of these rules applied to it, on either leg; a `*` stands for anything.
    pub rules: Vec<String>,
    /// Rules gave it one of these tags, on either leg; a `*` stands for anything.
    pub tags: Vec<String>,
    /// Holding all of this text.
    pub text: Vec<SearchTerm>,
    /// What the parameters must be like.
    pub params: Vec<FieldFilter>,
    /// What the result must be like.
    pub results: Vec<FieldFilter>,
    /// What the error must be like.
    pub errors: Vec<FieldFilter>,
    /// Failed with one of these codes.
    pub error_codes: Vec<i64>,
    /// Whether it failed.
    pub has_errors: Option<bool>,
    /// Answered after at least this long.
    pub min_response_ns: Option<u64>,
    /// Answered after at most this long.
    pub max_response_ns: Option<u64>,
    /// Costing at least this many tokens, request and answer together: an estimate.
    pub min_tokens: Option<u64>,
    /// Costing at most this many.
    pub max_tokens: Option<u64>,
    /// Of each of these groups, at least one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<Vec<Self>>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub none_of: Vec<Self>,
}

impl Conditions {
    /// Lists the conditions and all within them, each before what is within it.
    #[must_use]
    pub fn parts(&self) -> Vec<&Self> {
        let mut parts = vec![self];
        let within = self.any_of.iter().flatten().chain(&self.none_of);
        parts.extend(within.flat_map(Self::parts));
        parts
    }

    /// Lists the tests of fields, in the order of the parts they are in.
    #[must_use]
    pub fn fields(&self) -> Vec<(MessageMember, &FieldFilter)> {
        self.parts().into_iter().flat_map(Self::own_fields).collect()
    }

    fn own_fields(&self) -> impl Iterator<Item = (MessageMember, &FieldFilter)> {
        let lists = [
            (MessageMember::Params, &self.params),
            (MessageMember::Result, &self.results),
            (MessageMember::Error, &self.errors),
        ];
        lists.into_iter().flat_map(|(member, filters)| filters.iter().map(move |filter| (member, filter)))
    }

    /// Tells whether all of it holds, where somebody else knows what each part says of itself, by its place among
    /// [`Conditions::parts`], and which field is as it must be, by its place among [`Conditions::fields`].
    pub fn hold(&self, part: impl Fn(usize) -> bool, field: impl Fn(usize) -> bool) -> bool {
        self.hold_from(&mut 0, &mut 0, &part, &field)
    }

    fn hold_from(
        &self,
        next_part: &mut usize,
        next_field: &mut usize,
        part: &dyn Fn(usize) -> bool,
        field: &dyn Fn(usize) -> bool,
    ) -> bool {
        let mut holds = part(*next_part);
        *next_part += 1;
        for _ in self.own_fields() {
            holds &= field(*next_field);
            *next_field += 1;
        }
        // All are gone through, whatever the first say: their places follow from those before.
        for group in &self.any_of {
            let mut any = false;
            for one in group {
                any |= one.hold_from(next_part, next_field, part, field);
            }
            holds &= any;
        }
        for one in &self.none_of {
            holds &= !one.hold_from(next_part, next_field, part, field);
        }
        holds
    }

    /// Lists the texts that may be found in what fits, to be shown.
    #[must_use]
    pub fn wanted_text(&self) -> Vec<SearchTerm> {
        let within = self.any_of.iter().flatten().flat_map(Self::wanted_text);
        self.text.iter().cloned().chain(within).collect()
    }

    /// Returns whether there is nothing in it but text.
    #[must_use]
    pub fn is_text_alone(&self) -> bool {
        !self.text.is_empty() && Self { text: Vec::new(), ..self.clone() } == Self::default()
    }
}

/// A piece of text to be found, whatever its case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchTerm {
    /// These words, one right after the other.
    Phrase(String),
    /// A word that begins so.
    Prefix(String),
}

impl SearchTerm {
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
    /// How many tokens they cost.
    Tokens,
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
