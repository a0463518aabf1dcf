//! Parses queries as people type them: `tool:read_file error:true >500ms since:2d "connection refused"`.
//!
//! Words are text to find, `name:value` is a filter, `OR` joins its neighbours, `-` negates, parentheses group.
//! Anything else is an error with its position and the known filters, because a mistyped filter that became text would
//! silently search for something else. Knows no clock: the caller passes the time and the zone.

use std::iter::Peekable;
use std::ops::Range;
use std::vec::IntoIter;

use jiff::tz::TimeZone;
use thiserror::Error;

use super::filter::{QueryTime, add, page};
use super::words::{QueryToken, QueryWord, tokens};
use super::{Conditions, SearchQuery};

/// The longest query. Far above what people type; it bounds the work of parsing one.
const QUERY_BYTES_MAX: usize = 4096;
/// How many alternatives, groups and negations a query may have: each is up to two bits of a number in the database.
const UNITS_MAX: usize = 30;

const KNOWN: &str = "tool: method: name: type: session: tape: server: via: rule: tag: error: code: since: until: \
                     sort: limit: offset: tokens:>5000 >500ms <2s param.FIELD arg.FIELD result.FIELD error.FIELD, each also \
                     with a - in front, and text";

/// What is wrong with a query, and where.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{problem}")]
pub struct QueryError {
    /// What is wrong.
    pub problem: QueryProblem,
    /// The bytes of the query that it is about; empty if it is about the whole query.
    pub at: Range<usize>,
}

/// What is wrong with a query.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum QueryProblem {
    /// An unknown filter.
    #[error(
        "there is no filter \"{0}\": known are {KNOWN}. To search for the text itself, quote it: '\"{1}\"'"
    )]
    Unknown(String, String),
    /// A value that its filter does not take.
    #[error("{0}")]
    Value(String),
    /// A quotation mark without its other half.
    #[error("a \" is not closed: quote text like \"connection refused\"")]
    Quote,
    /// A parenthesis without its other half, or with nothing in it.
    #[error("{0}. To search for the text itself, quote it")]
    Parenthesis(&'static str),
    /// An `OR` with nothing on one side.
    #[error(
        "OR joins the words before and after it, and one of them is missing. To search for the text itself, \
         quote it: '\"OR\"'"
    )]
    Or,
    /// A text without letters and digits.
    #[error("\"{0}\" holds neither letters nor digits, and only those are found")]
    NoWord(String),
    /// The query is too long.
    #[error("the query is longer than {QUERY_BYTES_MAX} bytes")]
    Long,
    /// The query has too many parts.
    #[error("the query has more than {UNITS_MAX} alternatives, groups and negations")]
    Parts,
}

/// Parses a query; ages and days are relative to this time and zone.
///
/// # Errors
/// A part of the query is malformed.
pub fn parse(text: &str, now_ns: u64, zone: &TimeZone) -> Result<SearchQuery, QueryError> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(QueryError { problem: QueryProblem::Long, at: 0..0 });
    }
    let mut parser = Parser {
        tokens: tokens(text)?.into_iter().peekable(),
        clock: QueryTime { now_ns, zone },
        query: SearchQuery::default(),
        units: 0,
    };
    let conditions = parser.all(None)?;
    Ok(SearchQuery { conditions, ..parser.query })
}

struct Parser<'a> {
    tokens: Peekable<IntoIter<QueryToken>>,
    clock: QueryTime<'a>,
    /// Collects the page that is asked for.
    query: SearchQuery,
    units: usize,
}

/// A word or a group, which may be one of several alternatives.
enum QueryUnit {
    Word(QueryWord),
    Group { conditions: Box<Conditions>, is_negated: bool },
}

impl Parser<'_> {
    /// Reads conditions that must all hold, up to the end of the query or of the group that was opened here.
    fn all(&mut self, opened: Option<&Range<usize>>) -> Result<Conditions, QueryError> {
        let mut conditions = Conditions::default();
        let mut is_empty = true;
        loop {
            match self.tokens.peek() {
                Some(QueryToken::Close { at }) if opened.is_none() => {
                    let problem = QueryProblem::Parenthesis("there is no ( for this )");
                    return Err(QueryError { problem, at: at.clone() });
                }
                Some(QueryToken::Close { at }) if is_empty => {
                    let problem = QueryProblem::Parenthesis("there is nothing between ( and )");
                    return Err(QueryError { problem, at: at.clone() });
                }
                Some(QueryToken::Close { .. }) => {
                    self.tokens.next();
                    return Ok(conditions);
                }
                Some(_) => self.item(&mut conditions, opened.is_none())?,
                None => break,
            }
            is_empty = false;
        }
        match opened {
            Some(at) => {
                let problem = QueryProblem::Parenthesis("there is no ) for this (");
                Err(QueryError { problem, at: at.clone() })
            }
            None => Ok(conditions),
        }
    }

    /// Reads a word or a group, with the alternatives that `OR` joins to it.
    fn item(&mut self, conditions: &mut Conditions, is_outside: bool) -> Result<(), QueryError> {
        let first = self.unit()?;
        let mut alternatives = Vec::new();
        while let Some(QueryToken::Or { at }) =
            self.tokens.next_if(|token| matches!(token, QueryToken::Or { .. }))
        {
            if !matches!(self.tokens.peek(), Some(QueryToken::Word(_) | QueryToken::Open { .. })) {
                return Err(QueryError { problem: QueryProblem::Or, at });
            }
            alternatives.push(self.unit()?);
        }
        if !alternatives.is_empty() {
            alternatives.insert(0, first);
            let group: Result<Vec<Conditions>, QueryError> =
                alternatives.into_iter().map(|unit| self.alone(unit)).collect();
            conditions.any_of.push(group?);
            return Ok(());
        }
        match first {
            // A page is one of the whole answer, so its words have no meaning within groups and alternatives.
            QueryUnit::Word(word) if is_outside && self.is_page(&word)? => {}
            QueryUnit::Word(word) if !word.is_negated => self.add(conditions, &word)?,
            QueryUnit::Word(_) | QueryUnit::Group { is_negated: true, .. } => {
                let negated = self.alone(first)?;
                conditions.none_of.extend(negated.none_of);
            }
            QueryUnit::Group { conditions: group, .. } => Self::join(conditions, *group),
        }
        Ok(())
    }

    fn unit(&mut self) -> Result<QueryUnit, QueryError> {
        match self.tokens.next() {
            Some(QueryToken::Open { is_negated, at }) => {
                // Counted before the group is read, so that the limit also bounds the recursion.
                self.count(&at)?;
                Ok(QueryUnit::Group { conditions: Box::new(self.all(Some(&at))?), is_negated })
            }
            Some(QueryToken::Word(word)) => Ok(QueryUnit::Word(word)),
            Some(QueryToken::Or { at } | QueryToken::Close { at }) => {
                Err(QueryError { problem: QueryProblem::Or, at })
            }
            None => Err(QueryError { problem: QueryProblem::Or, at: 0..0 }),
        }
    }

    /// Turns one unit into conditions of its own.
    fn alone(&mut self, unit: QueryUnit) -> Result<Conditions, QueryError> {
        let (conditions, is_negated) = match unit {
            QueryUnit::Group { conditions, is_negated } => (*conditions, is_negated),
            QueryUnit::Word(word) => {
                self.count(&word.at)?;
                let mut conditions = Conditions::default();
                self.add(&mut conditions, &word)?;
                (conditions, word.is_negated)
            }
        };
        Ok(if is_negated {
            Conditions { none_of: vec![conditions], ..Conditions::default() }
        } else {
            conditions
        })
    }

    /// Adds a group that must hold. Its lists are not merged into the others: `tool:a tool:b` means either, but
    /// `tool:a (tool:b)` means both.
    fn join(conditions: &mut Conditions, mut group: Conditions) {
        conditions.text.append(&mut group.text);
        conditions.any_of.append(&mut group.any_of);
        conditions.none_of.append(&mut group.none_of);
        if group != Conditions::default() {
            conditions.any_of.push(vec![group]);
        }
    }

    fn add(&mut self, conditions: &mut Conditions, word: &QueryWord) -> Result<(), QueryError> {
        add(conditions, word, &self.clock).map_err(|problem| QueryError { problem, at: word.at.clone() })
    }

    fn is_page(&mut self, word: &QueryWord) -> Result<bool, QueryError> {
        page(&mut self.query, word).map_err(|problem| QueryError { problem, at: word.at.clone() })
    }

    fn count(&mut self, at: &Range<usize>) -> Result<(), QueryError> {
        self.units += 1;
        if self.units <= UNITS_MAX {
            return Ok(());
        }
        Err(QueryError { problem: QueryProblem::Parts, at: at.clone() })
    }
}

#[cfg(test)]
mod tests;
