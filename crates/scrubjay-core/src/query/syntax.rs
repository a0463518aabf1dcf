//! The short form people type: `tool:read_file error:true >500ms since:2d "connection refused"`.
//!
//! Words are text to be found; `name:value` narrows. Whatever is not understood is an error that says what is
//! known and where it stands, because a filter that silently became text would answer another question. Knows no
//! clock: the caller says what time it is, and where.

use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde_json::Value;
use thiserror::Error;

use super::{FieldFilter, LIMIT_MAX, SearchQuery, SortField, SortOrder, Term, Test};
use crate::exchange::What;
use crate::units::parse_duration;

/// A query is no longer than this.
const QUERY_BYTES_MAX: usize = 4096;

const KNOWN: &str = "tool: -tool: method: name: type: session: tape: server: via: error: code: since: until: \
                     sort: limit: offset: >500ms <2s param.FIELD arg.FIELD result.FIELD, and text";

/// What cannot be understood in a query, and where it stands.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{problem}")]
pub struct QueryError {
    /// What is wrong.
    pub problem: QueryProblem,
    /// Which bytes of the query it is about; none where it is about all of it.
    pub at: Range<usize>,
}

/// What cannot be understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QueryProblem {
    /// A filter nobody knows.
    #[error(
        "there is no filter \"{0}\": known are {KNOWN}. To search for the text itself, quote it: '\"{1}\"'"
    )]
    Unknown(String, String),
    /// A value that makes no sense to its filter.
    #[error("{0}")]
    Value(String),
    /// A quotation mark without its other half.
    #[error("a \" is not closed: quote text like \"connection refused\"")]
    Quote,
    /// A text of nothing but punctuation.
    #[error("\"{0}\" holds neither letters nor digits, and only those are found")]
    NoWord(String),
    /// Too much.
    #[error("the query is longer than {QUERY_BYTES_MAX} bytes")]
    Long,
}

/// Reads a query; times are told from this moment and in this zone.
///
/// # Errors
/// A part of it cannot be understood.
pub fn parse(text: &str, now_ns: u64, zone: &TimeZone) -> Result<SearchQuery, QueryError> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(QueryError { problem: QueryProblem::Long, at: 0..0 });
    }
    let mut query = SearchQuery::default();
    for word in words(text)? {
        let at = word.at.clone();
        add(&mut query, word, &Clock { now_ns, zone }).map_err(|problem| QueryError { problem, at })?;
    }
    Ok(query)
}

fn add(query: &mut SearchQuery, word: Word, clock: &Clock<'_>) -> Result<(), QueryProblem> {
    if let Some(bound) = word.text.strip_prefix(['>', '<']).filter(|_| !word.is_quoted) {
        let ns = response_time(&word.text, bound.trim_start_matches('='))?;
        let bound =
            if word.text.starts_with('>') { &mut query.min_response_ns } else { &mut query.max_response_ns };
        *bound = Some(ns);
    } else if let Some(filters) = field_target(query, &word) {
        filters.0.push(field(filters.1, &word.text)?);
    } else if let Some((name, value)) = word.filter() {
        narrow(query, name, value, &word.text, clock)?;
    } else {
        query.text.push(term(word)?);
    }
    Ok(())
}

struct Clock<'a> {
    now_ns: u64,
    zone: &'a TimeZone,
}

/// One word of a query; quotation marks around it or within it are gone.
struct Word {
    text: String,
    /// Whether it began with one.
    is_quoted: bool,
    /// Where in the text the first quoted part begins.
    quoted_from: usize,
    /// Where in the query it stands.
    at: Range<usize>,
}

impl Word {
    /// Splits `name:value`; a name is of small letters, and `://` is an address.
    fn filter(&self) -> Option<(&str, &str)> {
        let (name, value) = self.text.split_once(':')?;
        let bare = name.strip_prefix('-').unwrap_or(name);
        let is_name = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        (is_name && name.len() < self.quoted_from && !value.starts_with("//")).then_some((name, value))
    }
}

fn words(text: &str) -> Result<Vec<Word>, QueryError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let begin = text.len() - rest.len();
        let is_quoted = rest.starts_with('"');
        let mut word =
            Word { text: String::new(), is_quoted, quoted_from: usize::MAX, at: begin..text.len() };
        let mut opened = begin;
        let mut characters = rest.char_indices();
        let mut end = rest.len();
        let mut open = false;
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    open = !open;
                    opened = begin + at;
                    word.quoted_from = word.quoted_from.min(word.text.len());
                }
                '\\' if open => word.text.extend(characters.next().map(|(_, next)| next)),
                c if c.is_whitespace() && !open => {
                    end = at;
                    break;
                }
                c => word.text.push(c),
            }
        }
        if open {
            return Err(QueryError { problem: QueryProblem::Quote, at: opened..text.len() });
        }
        word.at.end = begin + end;
        words.push(word);
        rest = rest[end..].trim_start();
    }
    Ok(words)
}

fn term(word: Word) -> Result<Term, QueryProblem> {
    if word.is_quoted { Term::phrase(word.text) } else { Term::of(word.text) }
}

fn response_time(typed: &str, bound: &str) -> Result<u64, QueryProblem> {
    let duration = parse_duration(bound).map_err(|_| {
        QueryProblem::Value(format!("\"{typed}\" is no response time: write it like >500ms or <2s"))
    })?;
    Ok(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Tells whether a word is about a field, of what, and how the way to it begins.
fn field_target<'q>(
    query: &'q mut SearchQuery,
    word: &Word,
) -> Option<(&'q mut Vec<FieldFilter>, &'static [&'static str])> {
    if word.is_quoted {
        return None;
    }
    match word.text.split_once('.')?.0 {
        "param" | "params" => Some((&mut query.params, &[])),
        "arg" => Some((&mut query.params, &["arguments"])),
        "result" => Some((&mut query.results, &[])),
        _ => None,
    }
}

/// Reads `target.path`, `target.path=value`, `~part`, `>number` or `<number`.
fn field(begin: &[&str], typed: &str) -> Result<FieldFilter, QueryProblem> {
    let (_, rest) = typed.split_once('.').unwrap_or_default();
    let (path, test) = match rest.find(['=', '~', '>', '<']) {
        None => (rest, Test::Exists),
        Some(at) => {
            let value = &rest[at + 1..];
            let number = || {
                value.parse().map_err(|_| {
                    QueryProblem::Value(format!(
                        "\"{typed}\": \"{value}\" is not a number, so nothing is above or below it"
                    ))
                })
            };
            let test = match &rest[at..=at] {
                "=" => Test::Equals(
                    serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned())),
                ),
                "~" => Test::Contains(value.to_owned()),
                ">" => Test::Greater(number()?),
                _ => Test::Less(number()?),
            };
            (&rest[..at], test)
        }
    };
    if path.split('.').any(str::is_empty) {
        return Err(QueryProblem::Value(format!(
            "\"{typed}\" names no field: write it like arg.path, param.name=read_file, result.count>3 or \
             result.content.*.text~refused"
        )));
    }
    let path = begin.iter().copied().chain(path.split('.')).map(str::to_owned).collect();
    Ok(FieldFilter { path, test })
}

fn narrow(
    query: &mut SearchQuery,
    name: &str,
    value: &str,
    typed: &str,
    clock: &Clock<'_>,
) -> Result<(), QueryProblem> {
    let bad = |expected: &str| QueryProblem::Value(format!("\"{typed}\": {expected}"));
    let known =
        ["tool", "-tool", "method", "name", "type", "session", "tape", "server", "via", "error", "code"];
    if value.is_empty() && known.contains(&name) {
        return Err(bad("a value is missing behind the colon"));
    }
    match name {
        "tool" => query.tools.push(value.to_owned()),
        "-tool" => query.except_tools.push(value.to_owned()),
        "method" => query.methods.push(value.to_owned()),
        "name" => query.names.push(value.to_owned()),
        "session" => query.sessions.push(value.to_owned()),
        "tape" => query.tapes.push(value.to_owned()),
        "server" => query.servers.push(value.to_owned()),
        "via" => query.via.push(value.to_owned()),
        "type" => query
            .types
            .push(What::parse(value).ok_or_else(|| bad(&format!("known types are {}", What::NAMES)))?),
        "error" if matches!(value, "true" | "yes") => query.has_errors = Some(true),
        "error" if matches!(value, "false" | "no") => query.has_errors = Some(false),
        "error" | "code" => query
            .error_codes
            .push(value.parse().map_err(|_| bad("expected true, false or a code like -32601"))?),
        "since" => query.from_ns = Some(moment(value, clock.now_ns, clock.zone).map_err(|e| bad(&e))?),
        "until" => query.to_ns = Some(moment(value, clock.now_ns, clock.zone).map_err(|e| bad(&e))?),
        "sort" => {
            let (field, order) = match value.strip_prefix('-') {
                Some(field) => (field, SortOrder::Ascending),
                None => (value, SortOrder::Descending),
            };
            query.order = order;
            query.sort = match field {
                "time" => SortField::Time,
                "took" => SortField::Took,
                "size" => SortField::Size,
                _ => return Err(bad("sort by time, took or size; with a - in front the other way round")),
            };
        }
        "limit" => {
            let limit = value.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
            query.limit = limit.ok_or_else(|| bad(&format!("expected a number from 1 to {LIMIT_MAX}")))?;
        }
        "offset" => query.offset = value.parse().map_err(|_| bad("expected a number"))?,
        _ => return Err(QueryProblem::Unknown(format!("{name}:"), typed.to_owned())),
    }
    Ok(())
}

/// Reads a time: `2d` (so long ago), a date, or a date and time in this zone.
///
/// # Errors
/// It is none of these; the text says what is expected.
pub fn moment(value: &str, now_ns: u64, zone: &TimeZone) -> Result<u64, String> {
    if let Ok(ago) = parse_duration(value) {
        return Ok(now_ns.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)));
    }
    let local = |time: DateTime| time.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp());
    let time = value.parse::<Timestamp>().ok();
    let time = time.or_else(|| value.parse::<DateTime>().ok().and_then(local));
    let time = time.or_else(|| value.parse::<Date>().ok().and_then(|day| local(day.into())));
    time.and_then(|time| u64::try_from(time.as_nanosecond()).ok()).ok_or_else(|| {
        "expected a time ago like 30m or 2d, a date like 2026-11-01, or 2026-11-01T14:30".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: u64 = 1_800_000_000_000_000_000;

    fn read(text: &str) -> SearchQuery {
        parse(text, NOW, &TimeZone::UTC).unwrap()
    }

    /// What a query is refused for, with what it is about.
    fn place(text: &str) -> String {
        let error = parse(text, NOW, &TimeZone::UTC).unwrap_err();
        text[error.at].to_owned()
    }

    fn refuses(text: &str, told: &str) {
        let error = parse(text, NOW, &TimeZone::UTC).unwrap_err().to_string();
        assert!(error.contains(told), "{text}: {error}");
    }

    #[test]
    fn the_short_form_says_everything() {
        let query = read(r#"tool:read_file error:true >500ms since:2d "connection refused" retry*"#);
        let expected = SearchQuery {
            tools: vec!["read_file".to_owned()],
            has_errors: Some(true),
            min_response_ns: Some(500_000_000),
            from_ns: Some(NOW - 2 * 86_400_000_000_000),
            text: vec![Term::Phrase("connection refused".to_owned()), Term::Prefix("retry".to_owned())],
            ..SearchQuery::default()
        };
        assert_eq!(query, expected);
        let query = read(
            "type:stderr session:abc tape:xyz server:files code:-32601 error:7 <2s sort:-took limit:5 offset:10 until:2026-11-01",
        );
        let expected = SearchQuery {
            types: vec![What::Stderr],
            sessions: vec!["abc".to_owned()],
            tapes: vec!["xyz".to_owned()],
            servers: vec!["files".to_owned()],
            error_codes: vec![-32601, 7],
            max_response_ns: Some(2_000_000_000),
            sort: SortField::Took,
            order: SortOrder::Ascending,
            limit: 5,
            offset: 10,
            to_ns: Some(1_793_491_200_000_000_000),
            ..SearchQuery::default()
        };
        assert_eq!(query, expected);
    }

    #[test]
    fn fields_are_filtered() {
        let query = read(
            r#"param.name=read arg.path="/a b" arg.depth>2 arg.x result.content.*.text~"no such" result.n<1.5"#,
        );
        let filter =
            |path: &str, test: Test| FieldFilter { path: path.split('.').map(str::to_owned).collect(), test };
        assert_eq!(
            query.params,
            [
                filter("name", Test::Equals(json!("read"))),
                filter("arguments.path", Test::Equals(json!("/a b"))),
                filter("arguments.depth", Test::Greater(2.0)),
                filter("arguments.x", Test::Exists),
            ]
        );
        assert_eq!(
            query.results,
            [filter("content.*.text", Test::Contains("no such".to_owned())), filter("n", Test::Less(1.5))]
        );
        assert_eq!(query.text, []);
    }

    #[test]
    fn what_looks_like_a_filter_can_be_quoted() {
        let text = |text: &str| vec![Term::Phrase(text.to_owned())];
        assert_eq!(read("\"nope:1\"").text, text("nope:1"));
        assert_eq!(read("https://x.org/a").text, text("https://x.org/a"));
        assert_eq!(read("read_file").text, text("read_file"));
        assert_eq!(read(r#""say \"hi\"""#).text, text("say \"hi\""));
        assert_eq!(read("tool:\"a b\"").tools, ["a b"]);
        assert_eq!(read("-tool:x*").except_tools, ["x*"]);
        assert_eq!(read(""), SearchQuery::default());
    }

    #[test]
    fn what_is_not_understood_is_said() {
        refuses("tol:read", "known are tool:");
        refuses("tol:read", "'\"tol:read\"'");
        refuses("type:mesage", "notification");
        refuses("error:maybe", "-32601");
        refuses(">fast", ">500ms");
        refuses("since:yesterday", "2026-11-01");
        refuses("limit:0", "1 to 1000");
        refuses("sort:name", "took");
        refuses("arg.", "arg.path");
        refuses("arg.a>b", "not a number");
        refuses("tool:", "missing");
        refuses("\"open", "not closed");
        refuses("---", "letters");
        refuses(&"x".repeat(5000), "4096");
        refuses("-tol:read", "-tool:");
    }

    #[test]
    fn where_it_stands_is_said() {
        assert_eq!(place("größe  tol:read error:true"), "tol:read");
        assert_eq!(place("a tool:x \"open b"), "\"open b");
        assert_eq!(place("a tool:\"x\"\"open b"), "\"open b");
        assert_eq!(place("a  --- b"), "---");
        assert_eq!(place("tool:\"a b\" since:yesterday"), "since:yesterday");
        assert_eq!(place(&"x".repeat(5000)), "");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}") {
            if let Err(error) = parse(&text, NOW, &TimeZone::UTC) {
                assert!(text.get(error.at).is_some());
            }
        }
    }
}
