//! Search results as an agent sees them, within a token limit.

use schemars::JsonSchema;
use scrubjay_core::tokens::estimate_tokens;
use scrubjay_store::index::{Facet, Facets, SearchResults, Snippet, TapeHit};
use scrubjay_store::views::budget::tokens_of;
use serde::Serialize;

use super::{ms, quoted};

/// How many values of each facet are shown.
const FACETS_MAX: usize = 10;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SearchResultsView {
    /// How many match; at least as many if total_is_exact is false.
    total: u64,
    /// Whether total is exact. If not, hits and facets cover only a part of the messages; notes say which.
    total_is_exact: bool,
    /// Notes about this answer.
    notes: Vec<String>,
    /// The matches of the requested page that fit.
    hits: Vec<HitView>,
    /// The offset of the next page; none at the end.
    next_offset: Option<u64>,
    /// Counts of the matches, the most frequent first.
    facets: FacetsView,
    /// About how many tokens this answer has.
    tokens: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct HitView {
    /// The tape.
    tape: String,
    /// The connection's name.
    server: String,
    /// The session.
    session: String,
    /// The number of the request's entry on the tape, or of the message's.
    entry: u64,
    /// The number of the answer's entry.
    answer: Option<u64>,
    /// When it began.
    time: String,
    /// What it is: request, notification, stderr and so on.
    #[serde(rename = "type")]
    what: &'static str,
    method: Option<String>,
    /// The tool, prompt or resource.
    name: Option<String>,
    /// The backend, for a message between the gateway and a backend.
    via: Option<String>,
    /// How long the answer took.
    response_time_ms: Option<f64>,
    /// Whether it failed.
    failed: bool,
    error_code: Option<i64>,
    /// Why the request or the answer was not delivered, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    undelivered: Option<String>,
    /// The rules that applied to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    applied_rules: Vec<String>,
    /// The tags they gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    tags: Vec<String>,
    /// The size of request and answer.
    size_bytes: u64,
    /// About how many tokens both cost a model.
    tokens: u64,
    /// A piece of the text, with «matches» marked.
    snippet: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FacetsView {
    methods: Vec<FacetView>,
    tools: Vec<FacetView>,
    sessions: Vec<FacetView>,
    error_codes: Vec<FacetView>,
    /// The last days (UTC).
    days: Vec<FacetView>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FacetView {
    value: String,
    count: u64,
}

impl SearchResultsView {
    /// Takes as many hits as fit; at least one.
    pub(super) fn fit(found: &SearchResults, offset: usize, max_tokens: u64, mut notes: Vec<String>) -> Self {
        if let Some((why, count)) = found.why_bounded.zip(found.looked_at_only) {
            notes.push(format!("Only {count} {}.", why.words()));
        }
        // Facets come first: their size is limited, and they show how to narrow a search with too many hits.
        let facets = FacetsView::of(&found.facets);
        // 40 tokens for the members around them.
        let mut used =
            notes.iter().map(|note| estimate_tokens(note)).sum::<usize>() + tokens_of(&facets) + 40;
        let mut hits = Vec::new();
        for hit in &found.hits {
            let hit = HitView::of(hit);
            // Each hit is in the answer twice: as data and as text.
            let more = tokens_of(&hit) + estimate_tokens(&hit.line());
            // The first hit is always taken, or the next page would begin at the same offset.
            if !hits.is_empty() && used as u64 + more as u64 > max_tokens {
                notes.push("More hits did not fit: continue at next_offset, or raise max_tokens.".to_owned());
                break;
            }
            used += more;
            hits.push(hit);
        }
        let end = offset as u64 + hits.len() as u64;
        let is_all = hits.len() == found.hits.len() && end >= found.total;
        let next_offset = (!is_all && !hits.is_empty()).then_some(end);
        Self {
            total: found.total,
            total_is_exact: found.total_is_exact,
            notes,
            hits,
            next_offset,
            facets,
            tokens: used as u64,
        }
    }

    /// Writes the results as text.
    pub(super) fn text(&self) -> String {
        let at_least = if self.total_is_exact { "" } else { "at least " };
        let mut text = format!("{} of {at_least}{} found.", self.hits.len(), self.total);
        for note in &self.notes {
            text.push(' ');
            text.push_str(note);
        }
        for hit in &self.hits {
            text.push('\n');
            text.push_str(&hit.line());
        }
        if let Some(next) = self.next_offset {
            text.push_str(&format!("\n… more at offset {next}"));
        }
        text
    }
}

impl HitView {
    fn of(hit: &TapeHit) -> Self {
        let quote = |text: &Option<String>| text.as_deref().map(quoted);
        Self {
            tape: hit.tape.clone(),
            server: quoted(&hit.server),
            session: quoted(&hit.session),
            entry: hit.entry,
            answer: hit.answer,
            time: hit.time.clone(),
            what: hit.what.as_str(),
            method: quote(&hit.method),
            name: quote(&hit.name),
            via: quote(&hit.via),
            response_time_ms: hit.response_time_ns.map(ms),
            failed: hit.failed,
            error_code: hit.error_code,
            undelivered: hit.undelivered.as_deref().map(quoted),
            applied_rules: hit.applied_rules.iter().map(|rule| quoted(rule)).collect(),
            tags: hit.tags.iter().map(|tag| quoted(tag)).collect(),
            size_bytes: hit.size_bytes,
            tokens: hit.tokens,
            snippet: marked(&hit.snippet),
        }
    }

    fn line(&self) -> String {
        let subject: Vec<&str> =
            [self.method.as_deref(), self.name.as_deref()].into_iter().flatten().collect();
        let mut words = vec![
            self.time.clone(),
            format!("tape {}", self.tape),
            format!("#{}", self.entry),
            self.server.clone(),
            if subject.is_empty() { self.what.to_owned() } else { subject.join(" ") },
        ];
        words.extend(self.via.as_ref().map(|via| format!("via {via}")));
        words.extend(self.response_time_ms.map(|ms| format!("{ms} ms")));
        if self.failed {
            words.push(self.error_code.map_or("failed".to_owned(), |code| format!("failed {code}")));
        }
        words.extend(self.undelivered.as_ref().map(|why| format!("undelivered: {why}")));
        if !self.applied_rules.is_empty() {
            words.push(format!("rules {}", self.applied_rules.join(", ")));
        }
        format!("{}\n    {}", words.join("  "), self.snippet)
    }
}

impl FacetsView {
    fn of(facets: &Facets) -> Self {
        let most =
            |all: &[Facet]| -> Vec<FacetView> { all.iter().take(FACETS_MAX).map(FacetView::of).collect() };
        let days = &facets.days;
        Self {
            methods: most(&facets.methods),
            tools: most(&facets.tools),
            sessions: most(&facets.sessions),
            error_codes: most(&facets.error_codes),
            days: most(&days[days.len().saturating_sub(FACETS_MAX)..]),
        }
    }
}

impl FacetView {
    fn of(facet: &Facet) -> Self {
        Self { value: quoted(&facet.value), count: facet.count }
    }
}

/// Puts marks around matches, and makes the text inert. The pieces are made inert one by one, because escapes would shift the
/// positions of the marks.
fn marked(snippet: &Snippet) -> String {
    let characters: Vec<char> = snippet.text.chars().collect();
    let piece = |from: usize, to: usize| -> String {
        quoted(&characters.get(from..to).unwrap_or_default().iter().collect::<String>())
    };
    let (mut out, mut at) = (String::new(), 0);
    for (begin, end) in &snippet.marks {
        out += &format!("{}«{}»", piece(at, *begin), piece(*begin, *end));
        at = *end;
    }
    out + &piece(at, characters.len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use scrubjay_core::exchange::ExchangeKind;

    fn hit(entry: u64) -> TapeHit {
        TapeHit {
            tape: "t".to_owned(),
            server: "s\u{1b}[31m".to_owned(),
            session: String::new(),
            entry,
            answer: None,
            time: String::new(),
            wall_ns: 0,
            what: ExchangeKind::Request,
            answered_with: None,
            method: Some("m".repeat(5000)),
            name: None,
            via: None,
            response_time_ns: Some(1_500_000),
            failed: true,
            error_code: Some(-1),
            size_bytes: 1,
            tokens: 1,
            undelivered: None,
            intercepted: false,
            has_original: false,
            applied_rules: BTreeSet::new(),
            tags: BTreeSet::new(),
            snippet: Snippet { text: "a\u{202e} needle b".to_owned(), marks: vec![(3, 9)] },
        }
    }

    fn found(hits: u64) -> SearchResults {
        SearchResults {
            total: 50,
            total_is_exact: true,
            looked_at_only: None,
            why_bounded: None,
            hits: (0..hits).map(hit).collect(),
            facets: Facets::default(),
        }
    }

    #[test]
    fn an_answer_has_a_limit_and_says_where_to_go_on() {
        let view = SearchResultsView::fit(&found(20), 10, 1000, Vec::new());
        assert!(view.tokens <= 1000 && !view.hits.is_empty() && view.hits.len() < 20, "{}", view.tokens);
        assert_eq!(view.next_offset, Some(10 + view.hits.len() as u64));
        assert!(estimate_tokens(&view.text()) + tokens_of(&view) <= 1200, "{}", view.text());
        assert_eq!(SearchResultsView::fit(&found(20), 0, 1, Vec::new()).hits.len(), 1);
        assert_eq!(SearchResultsView::fit(&found(5), 45, 100_000, Vec::new()).next_offset, None);
        assert_eq!(SearchResultsView::fit(&found(0), 60, 100_000, Vec::new()).next_offset, None);
    }

    #[test]
    fn quoted_text_is_inert() {
        let view = HitView::of(&hit(1));
        assert_eq!(view.snippet, "a\\u{202e} «needle» b");
        assert!(!view.line().contains('\u{1b}'));
        assert!(view.method.is_some_and(|method| method.chars().count() <= super::super::QUOTED_CHARS_MAX));
    }
}
