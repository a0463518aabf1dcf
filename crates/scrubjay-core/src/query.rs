//! Queries over recordings: by time, method, tool, session, text, response time, outcome.
//!
//! This file has the values; `query/syntax.rs` parses them from what a person types, with `query/words.rs`,
//! `query/filter.rs` and `query/time.rs`; `query/field.rs` tests one message. A search finds *exchanges*
//! (`exchange.rs`): a request together with its answer, or a message that stands alone. So a filter on parameters and
//! one on the response time apply to the same exchange.

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

/// The most hits of one page.
pub const LIMIT_MAX: usize = 1000;

/// A query: the conditions, and which page of the hits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchQuery {
    /// The conditions that hits must meet.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// How many hits to skip.
    pub offset: usize,
    /// How many hits to list.
    pub limit: usize,
    /// The field by which hits are sorted.
    pub sort: SortField,
    /// The direction of sorting.
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

/// Conditions on an exchange. All must hold; an empty or absent one matches anything.
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
    /// With a message of one of these types.
    pub types: Vec<ExchangeKind>,
    /// Of a session with this prefix of its id, this id of its host, or `latest`.
    pub sessions: Vec<String>,
    /// On a tape with this prefix of its id; `latest` is the newest conversation.
    pub tapes: Vec<String>,
    /// Of a connection with one of these names.
    pub servers: Vec<String>,
    /// On the leg of one of these backends, even if the client's leg has it, too; a `*` stands for anything.
    pub via: Vec<String>,
    /// One of these rules applied to it, on either leg; a `*` stands for anything.
    pub rules: Vec<String>,
    /// Rules gave it one of these tags, on either leg; a `*` stands for anything.
    pub tags: Vec<String>,
    /// Containing all of this text.
    pub text: Vec<SearchTerm>,
    /// Tests of the parameters.
    pub params: Vec<FieldFilter>,
    /// Tests of the result.
    pub results: Vec<FieldFilter>,
    /// Tests of the error.
    pub errors: Vec<FieldFilter>,
    /// Failed with one of these codes.
    pub error_codes: Vec<i64>,
    /// Whether it failed.
    pub has_errors: Option<bool>,
    /// Answered after at least this long.
    pub min_response_ns: Option<u64>,
    /// Answered after at most this long.
    pub max_response_ns: Option<u64>,
    /// At least this many tokens, estimated, request and answer together.
    pub min_tokens: Option<u64>,
    /// At most this many tokens.
    pub max_tokens: Option<u64>,
    /// Groups of alternatives: one of each group must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<Vec<Self>>,
    /// Conditions that must not hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub none_of: Vec<Self>,
}

impl Conditions {
    /// Lists these conditions and all that they contain, each before its contents.
    #[must_use]
    pub fn parts(&self) -> Vec<&Self> {
        let mut parts = vec![self];
        let within = self.any_of.iter().flatten().chain(&self.none_of);
        parts.extend(within.flat_map(Self::parts));
        parts
    }

    /// Lists the tests of fields, in the order of [`Conditions::parts`].
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

    /// Returns whether the conditions hold. The caller says which parts hold by themselves, by their index in
    /// [`Conditions::parts`], and which tests of fields, by their index in [`Conditions::fields`].
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
        // No short circuit: the index of each part follows from the number of parts before it.
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

    /// Lists the texts that a hit may contain, to be marked in it; negated ones are left out.
    #[must_use]
    pub fn wanted_text(&self) -> Vec<SearchTerm> {
        let within = self.any_of.iter().flatten().flat_map(Self::wanted_text);
        self.text.iter().cloned().chain(within).collect()
    }

    /// Returns whether text is the only condition.
    #[must_use]
    pub fn is_text_alone(&self) -> bool {
        !self.text.is_empty() && Self { text: Vec::new(), ..self.clone() } == Self::default()
    }
}

/// A text to find, ignoring case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchTerm {
    /// These words, one right after the other.
    Phrase(String),
    /// A word that begins like this.
    Prefix(String),
}

impl SearchTerm {
    /// Reads a text: words that follow each other or, with a `*` at the end, the beginning of a word.
    ///
    /// # Errors
    /// The text has no letter or digit.
    pub fn of(text: String) -> Result<Self, QueryProblem> {
        match text.strip_suffix('*') {
            Some(beginning) if beginning.contains(char::is_alphanumeric) => {
                Ok(Self::Prefix(beginning.to_owned()))
            }
            _ => Self::phrase(text),
        }
    }

    /// Takes a text literally: words that follow each other.
    ///
    /// # Errors
    /// The text has no letter or digit.
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

/// The field by which hits are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortField {
    /// The time at which it began.
    #[default]
    Time,
    /// The time to the answer.
    Took,
    /// The bytes of request and answer.
    Size,
    /// The tokens of request and answer.
    Tokens,
}

/// The direction of sorting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortOrder {
    /// The newest, slowest, largest.
    #[default]
    Descending,
    /// The oldest, fastest, smallest.
    Ascending,
}
