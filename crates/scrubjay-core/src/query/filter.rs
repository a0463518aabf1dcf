//! Interprets one word of a query: text, a filter `name:value`, a response time, or a test of a field.

use jiff::tz::TimeZone;
use serde_json::Value;

use super::field::{FieldFilter, ValueTest, field_path};
use super::syntax::QueryProblem;
use super::time::{DayEdge, moment};
use super::words::QueryWord;
use super::{Conditions, LIMIT_MAX, SearchQuery, SearchTerm, SortField, SortOrder};
use crate::exchange::ExchangeKind;
use crate::units::parse_duration;

/// The names of filters.
const FILTERS: [&str; 18] = [
    "tool", "method", "name", "type", "session", "tape", "server", "via", "rule", "tag", "error", "code",
    "since", "until", "sort", "limit", "offset", "tokens",
];

/// The current time and the time zone, for times such as `yesterday`.
pub(super) struct QueryTime<'a> {
    pub(super) now_ns: u64,
    pub(super) zone: &'a TimeZone,
}

/// Adds a word's condition; the caller handles a `-` in front of it.
pub(super) fn add(
    conditions: &mut Conditions,
    word: &QueryWord,
    clock: &QueryTime<'_>,
) -> Result<(), QueryProblem> {
    if word.is_quoted {
        conditions.text.push(SearchTerm::phrase(word.text.clone())?);
    } else if let Some(bound) = word.text.strip_prefix(['>', '<']) {
        let ns = response_time(&word.text, bound.trim_start_matches('='))?;
        let is_least = word.text.starts_with('>');
        *(if is_least { &mut conditions.min_response_ns } else { &mut conditions.max_response_ns }) =
            Some(ns);
    } else if let Some((filters, begin)) = field_target(conditions, word) {
        filters.push(field(begin, word)?);
    } else if let Some((name, value)) = word.filter() {
        narrow(conditions, name, value, &word.text, clock)?;
    } else if word.comparison() == Some("tokens") {
        // `tokens>5000` is written like a test of a field, and means the same as `tokens:>5000`.
        narrow(conditions, "tokens", &word.text["tokens".len()..], &word.text, clock)?;
    } else if let Some(name) = word.comparison() {
        let operator = word.text[name.len()..].chars().next().unwrap_or('=');
        return Err(QueryProblem::Unknown(format!("{name}{operator}"), word.text.clone()));
    } else {
        conditions.text.push(SearchTerm::of(plain(word)?)?);
    }
    Ok(())
}

/// Refuses words that were meant as operators but would be searched as text.
fn plain(word: &QueryWord) -> Result<String, QueryProblem> {
    let text = word.text.as_str();
    let meant = match text {
        "AND" => "all words must be there anyway: leave AND out",
        "NOT" => "write -word for what must not be there",
        _ if word.is_negated && text.starts_with('-') => "it begins with two minus signs",
        _ if word.is_negated && text.bytes().all(|b| b.is_ascii_digit()) => {
            "a minus sign leaves a word out: for the code of an error write code:-32601"
        }
        _ => return Ok(text.to_owned()),
    };
    let typed = if word.is_negated { format!("-{text}") } else { text.to_owned() };
    if !text.contains(char::is_alphanumeric) {
        return Err(QueryProblem::NoWord(typed));
    }
    let quoted = "To search for the text itself, quote it";
    Err(QueryProblem::Value(format!("\"{typed}\": {meant}. {quoted}: '\"{typed}\"'")))
}

fn response_time(typed: &str, bound: &str) -> Result<u64, QueryProblem> {
    let duration = parse_duration(bound).map_err(|_| {
        QueryProblem::Value(format!(
            "\"{typed}\" is not a response time: write it like >500ms, >0.5ms or <2s"
        ))
    })?;
    Ok(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads `>5000`, `<200` or `>=10k`. Bounds include the number itself, as with times.
fn token_count(conditions: &mut Conditions, value: &str) -> Option<()> {
    let number = value.strip_prefix(['>', '<'])?;
    let number = number.strip_prefix('=').unwrap_or(number);
    let (digits, unit) = number.strip_suffix(['k', 'K']).map_or((number, 1), |digits| (digits, 1000));
    let count = digits.parse::<u64>().ok()?.saturating_mul(unit);
    let is_least = value.starts_with('>');
    *(if is_least { &mut conditions.min_tokens } else { &mut conditions.max_tokens }) = Some(count);
    Some(())
}

/// Returns the filters that a word adds to if it tests a field, and the beginning of the field's path.
fn field_target<'q>(
    conditions: &'q mut Conditions,
    word: &QueryWord,
) -> Option<(&'q mut Vec<FieldFilter>, &'static [&'static str])> {
    let (member, _) = word.text.split_once('.').filter(|(member, _)| member.len() < word.quoted_from)?;
    match member {
        "param" | "params" => Some((&mut conditions.params, &[])),
        "arg" => Some((&mut conditions.params, &["arguments"])),
        "result" => Some((&mut conditions.results, &[])),
        "error" => Some((&mut conditions.errors, &[])),
        _ => None,
    }
}

/// Reads `target.path`, `target.path=value`, `~part`, `>number` or `<number`.
fn field(begin: &[&str], word: &QueryWord) -> Result<FieldFilter, QueryProblem> {
    let typed = word.text.as_str();
    let bad = |what: String| QueryProblem::Value(format!("\"{typed}\"{what}"));
    let (_, rest) = typed.split_once('.').unwrap_or_default();
    let (path, test) = match rest.find(['=', '~', '>', '<']) {
        None => (rest, ValueTest::Exists),
        Some(at) => {
            let value = &rest[at + 1..];
            let is_quoted = word.quoted_from != usize::MAX;
            if value.is_empty() && !is_quoted {
                return Err(bad(": a value is missing at its end".to_owned()));
            }
            if value.starts_with(['=', '~', '>', '<']) && !is_quoted {
                return Err(bad(": there are =, ~, > and <, one of them, and no others".to_owned()));
            }
            let number = || {
                let number = value.parse().ok().filter(|number: &f64| number.is_finite());
                let error = || bad(format!(": \"{value}\" is not a number, so nothing is above or below it"));
                number.ok_or_else(error)
            };
            let test = match &rest[at..=at] {
                "=" => ValueTest::Equals(
                    serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned())),
                ),
                "~" => ValueTest::Contains(value.to_owned()),
                ">" => ValueTest::Greater(number()?),
                _ => ValueTest::Less(number()?),
            };
            (&rest[..at], test)
        }
    };
    let problem = " names no field: write it like arg.path, param.name=read_file, result.count>3, \
                arg.files[0].path, error.message~refused or result.content.*.text~refused";
    let path = field_path(path).ok_or_else(|| bad(problem.to_owned()))?;
    let path = begin.iter().map(|step| (*step).to_owned()).chain(path).collect();
    Ok(FieldFilter { path, test })
}

fn narrow(
    conditions: &mut Conditions,
    name: &str,
    value: &str,
    typed: &str,
    clock: &QueryTime<'_>,
) -> Result<(), QueryProblem> {
    let bad = |expected: &str| QueryProblem::Value(format!("\"{typed}\": {expected}"));
    let time = |edge| moment(value, clock.now_ns, clock.zone, edge).map_err(|e| bad(&e.to_string()));
    // Otherwise `tool:` would search for a tool with an empty name and find nothing.
    if value.is_empty() && FILTERS.contains(&name) {
        return Err(bad("a value is missing behind the colon"));
    }
    match name {
        "tool" => conditions.tools.push(value.to_owned()),
        "method" => conditions.methods.push(value.to_owned()),
        "name" => conditions.names.push(value.to_owned()),
        "session" => conditions.sessions.push(value.to_owned()),
        "tape" => conditions.tapes.push(value.to_owned()),
        "server" => conditions.servers.push(value.to_owned()),
        "via" => conditions.via.push(value.to_owned()),
        "rule" => conditions.rules.push(value.to_owned()),
        "tag" => conditions.tags.push(value.to_owned()),
        "type" => conditions
            .types
            .push(ExchangeKind::parse(value).ok_or_else(|| bad(&format!("known types are {}", ExchangeKind::NAMES)))?),
        "error" if matches!(value, "true" | "yes") => conditions.has_errors = Some(true),
        "error" if matches!(value, "false" | "no") => conditions.has_errors = Some(false),
        "error" | "code" => conditions
            .error_codes
            .push(value.parse().map_err(|_| bad("expected true, false or a code like -32601"))?),
        "tokens" => token_count(conditions, value).ok_or_else(|| {
            bad("it counts tokens of request and answer: write it like tokens:>5000, tokens:<200 or tokens:>10k")
        })?,
        "since" => conditions.from_ns = Some(time(DayEdge::Start)?),
        "until" => conditions.to_ns = Some(time(DayEdge::End)?),
        "sort" | "limit" | "offset" => {
            return Err(bad("it is about the whole answer: write it outside of OR and ( ), and without a -"));
        }
        _ if FILTERS.contains(&name.to_ascii_lowercase().as_str()) => {
            let small = name.to_ascii_lowercase();
            return Err(bad(&format!("filters are written in small letters: {small}:{value}")));
        }
        // No filter has capitals, so this is text, as in TypeError:x.
        _ if name.bytes().any(|b| b.is_ascii_uppercase()) => {
            conditions.text.push(SearchTerm::of(typed.to_owned())?);
        }
        _ => return Err(QueryProblem::Unknown(format!("{name}:"), typed.to_owned())),
    }
    Ok(())
}

/// Applies `sort:`, `limit:` or `offset:`; returns whether the word is one of them.
pub(super) fn page(query: &mut SearchQuery, word: &QueryWord) -> Result<bool, QueryProblem> {
    let Some((name, value)) = word.filter().filter(|_| !word.is_negated && !word.is_quoted) else {
        return Ok(false);
    };
    let bad = |expected: &str| QueryProblem::Value(format!("\"{}\": {expected}", word.text));
    match name {
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
                "tokens" => SortField::Tokens,
                _ => {
                    return Err(bad(
                        "sort by time, took, size or tokens; with a - in front the other way round",
                    ));
                }
            };
        }
        "limit" => {
            let limit = value.parse().ok().filter(|n| (1..=LIMIT_MAX).contains(n));
            query.limit = limit.ok_or_else(|| bad(&format!("expected a number from 1 to {LIMIT_MAX}")))?;
        }
        "offset" => query.offset = value.parse().map_err(|_| bad("expected a number"))?,
        _ => return Ok(false),
    }
    Ok(true)
}
