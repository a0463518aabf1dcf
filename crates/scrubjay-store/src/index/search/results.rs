//! The answer to a query.

use std::collections::BTreeSet;

use scrubjay_core::exchange::ExchangeKind;
use serde::Serialize;

use super::Facets;
use crate::index::Snippet;

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SearchResults {
    /// How many match: exactly, or at least this number if not everything was checked.
    pub total: u64,
    /// Whether `total` is exact.
    pub total_is_exact: bool,
    /// How many were checked, if not everything was; hits and facets are of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_at_only: Option<u64>,
    /// Why not everything was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_bounded: Option<WhyBounded>,
    /// The requested page.
    pub hits: Vec<TapeHit>,
    /// The facets of all matches.
    pub facets: Facets,
}

/// Why not everything that might match was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyBounded {
    /// Fields are checked in the messages themselves, and only in the first ones, in the query's order.
    Fields,
    /// The words are in very many messages; only those that were indexed last were checked.
    FrequentWords,
}

impl WhyBounded {
    /// Completes the sentence "Only N …", with what to do about it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Fields => {
                "that might match were checked, because fields are read from the messages: narrow the query \
                 by words, tools or time"
            }
            Self::FrequentWords => {
                "that contain these words were checked, those that were indexed last, because the words are in \
                 very many: add rarer words, a tape: or an earlier until:"
            }
        }
    }
}

/// A match: a request with its answer, or a single message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TapeHit {
    /// The tape it is on.
    pub tape: String,
    /// The connection's name.
    pub server: String,
    /// The session.
    pub session: String,
    /// The entry that began it.
    pub entry: u64,
    /// The entry that answered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<u64>,
    /// When, in ISO 8601.
    pub time: String,
    /// When, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// What it is.
    #[serde(rename = "type")]
    pub what: ExchangeKind,
    /// What kind of message answered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_with: Option<ExchangeKind>,
    /// The method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The tool, prompt or resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The backend, if it passed between the gateway and one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// How long the answer took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<u64>,
    /// Whether it failed.
    pub failed: bool,
    /// The code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<i64>,
    /// The size of request and answer.
    pub size_bytes: u64,
    /// About how many tokens both cost a model: an estimate, like `o200k`.
    pub tokens: u64,
    /// Why request or answer did not reach its receiver, if one did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undelivered: Option<String>,
    /// Whether rules changed, delayed, blocked or answered it.
    pub intercepted: bool,
    /// Whether rules changed request or answer; the original is the entry before it, on either leg.
    pub has_original: bool,
    /// The rules that applied to either, on either leg.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub applied_rules: BTreeSet<String>,
    /// The tags they gave.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub tags: BTreeSet<String>,
    /// The text around the first match, or the beginning of the text if no word was searched.
    pub snippet: Snippet,
}
