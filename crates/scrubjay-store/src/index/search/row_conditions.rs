//! Turns a query into SQL conditions on rows.
//!
//! Texts from outside are bound, or were replaced by ids of ours. Conditions on fields of messages cannot be checked in
//! SQL: a row that matches everything else is a candidate.

mod expression;
mod parts;

use scrubjay_core::query::{Conditions, FieldFilter, SearchTerm, ValueTest};
use serde_json::Value;
use sqlx::{AnyConnection, Row as _};

use super::super::dialect::{any_text, from_texts, matches, text_query, text_without};
use super::super::fill::CLIPPED;
use super::super::int;
use super::{Sql, Tapes, is_one_of};
use crate::ledger::dialect::Dialect;
use expression::Expression;
use parts::{KnownNames, names_in};

/// The conditions on rows that follow from a query.
#[derive(Debug)]
pub(super) struct RowConditions {
    dialect: Dialect,
    /// The full-text query.
    text: Option<String>,
    /// The numbers of the tapes to which it is limited; `None` for all tapes.
    numbers: Option<Vec<i64>>,
    /// The first and last id of the exchanges of these tapes.
    ids: Option<(i64, i64)>,
    /// The condition that an exchange is of these tapes; only if the text is frequent, because ids of other tapes may
    /// lie between.
    of_tapes: Option<String>,
    /// The last id of the tapes that began before the end of the query's time range.
    last_begun: Option<i64>,
    /// The most rows with that text that are checked, from the last one back; `None` for all.
    text_rows_max: Option<usize>,
    /// Full-text queries that each match must satisfy, unless its text is not indexed completely.
    hints: Vec<String>,
    condition: Expression,
    /// The condition of each part of the query by itself, without fields and nested parts.
    parts: Vec<Expression>,
}

impl RowConditions {
    pub(super) async fn new(
        connection: &mut AnyConnection,
        dialect: Dialect,
        query: &Conditions,
        tapes: &Tapes,
    ) -> Result<Self, sqlx::Error> {
        let known = KnownNames { dialect, names: names_in(connection, query).await?, tapes };
        let (text, rest) = driving_text(dialect, query);
        let mut conditions = known.direct_conditions(query, false);
        conditions.extend(known.nested_conditions(&rest, true));
        conditions.extend(known.shown_legs(query));
        // Only messages with a method have parameters.
        if !query.params.is_empty() {
            conditions.push(Expression::Sql("e.method IS NOT NULL".to_owned()));
        }
        let numbers = known.tape_numbers(query);
        let ids = numbers.as_ref().map(|numbers| ids_of(numbers, tapes));
        let last_id_before = |to_ns| tapes.values().filter(|t| t.started_ns < to_ns).map(|t| t.last_id).max();
        let fields = query.params.iter().chain(&query.results).chain(&query.errors);
        Ok(Self {
            dialect,
            text,
            numbers,
            ids,
            of_tapes: None,
            last_begun: query.to_ns.and_then(|ns| last_id_before(int(ns))),
            text_rows_max: None,
            hints: fields.filter_map(hint).map(|term| text_query(dialect, &[term])).collect(),
            condition: Expression::All(conditions),
            // Without the first part, which is the query itself: every row that is found matches it.
            parts: query
                .parts()
                .into_iter()
                .skip(1)
                .map(|part| Expression::All(known.direct_conditions(part, true)))
                .collect(),
        })
    }

    /// Limits the rows to check if more than `rows_max` match the text; returns whether it did.
    pub(super) async fn bound_text(
        &mut self,
        connection: &mut AnyConnection,
        rows_max: usize,
    ) -> Result<bool, sqlx::Error> {
        if self.text.is_none() {
            return Ok(false);
        }
        // Counted up to one more than the limit, so the cost of finding out is limited, too.
        let mut is_frequent = self.has_more_texts(connection, rows_max).await?;
        // The range of ids may include other tapes, so a frequent text is counted again in the wanted tapes only.
        if is_frequent && let Some(numbers) = &self.numbers {
            self.of_tapes = Some(is_one_of("tape", numbers));
            is_frequent = self.has_more_texts(connection, rows_max).await?;
        }
        // A search looks only at this number of rows then, and its total is a lower bound.
        self.text_rows_max = is_frequent.then_some(rows_max);
        Ok(is_frequent)
    }

    async fn has_more_texts(
        &self,
        connection: &mut AnyConnection,
        rows_max: usize,
    ) -> Result<bool, sqlx::Error> {
        let mut sql = Sql::new("SELECT count(*) FROM (");
        self.push_texts(&mut sql, "rowid", self.ids);
        sql.push(&format!(" LIMIT {}) AS t", rows_max + 1));
        let counted = sql.fetch(connection).await?;
        let count: i64 = counted.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(count > i64::try_from(rows_max).unwrap_or(i64::MAX))
    }

    /// Writes `SELECT … FROM texts WHERE …`.
    fn push_texts(&self, sql: &mut Sql, what: &str, ids: Option<(i64, i64)>) {
        let bind = sql.bind(self.text.as_deref().unwrap_or_default());
        sql.push(&format!("SELECT {what} FROM texts WHERE {}", matches(self.dialect, &bind)));
        if let Some((first, last)) = ids {
            sql.push(&format!(" AND rowid BETWEEN {first} AND {last}"));
        }
        if let Some(of_tapes) = &self.of_tapes {
            // The plus keeps SQLite from starting with the subquery instead of the text.
            sql.push(&format!(" AND +rowid IN (SELECT id FROM exchanges WHERE {of_tapes})"));
        }
    }

    /// Writes an expression with a bit for each part of the query that matches a row by itself.
    pub(super) fn push_parts(&self, sql: &mut Sql) {
        sql.push("CAST(0 AS BIGINT)");
        for (at, part) in self.parts.iter().enumerate() {
            sql.push(" + CASE WHEN ");
            part.push(self.dialect, sql);
            // The bits suffice, because the parser limits alternatives, groups and negations (`UNITS_MAX`).
            sql.push(&format!(" THEN {} ELSE 0 END", 1i64 << at));
        }
    }

    /// Writes `FROM … WHERE …`.
    pub(super) fn push(&self, sql: &mut Sql) {
        let join = from_texts(self.dialect);
        match (&self.text, self.text_rows_max) {
            (None, _) => {
                sql.push("FROM exchanges e WHERE ");
            }
            (Some(text), None) => {
                let bind = sql.bind(text);
                let matches = matches(self.dialect, &bind);
                sql.push(&format!(
                    "FROM texts {join} exchanges e ON e.id = texts.rowid WHERE {matches} AND "
                ));
                if let Some((first, last)) = self.ids {
                    sql.push(&format!("texts.rowid BETWEEN {first} AND {last} AND "));
                }
            }
            (Some(_), Some(rows_max)) => {
                let (first, last) = self.ids.unwrap_or((0, i64::MAX));
                let last = self.last_begun.map_or(last, |id| id.min(last));
                sql.push("FROM (");
                self.push_texts(sql, "rowid AS id", Some((first, last)));
                sql.push(&format!(
                    " ORDER BY rowid DESC LIMIT {rows_max}) AS t {join} exchanges e ON e.id = t.id WHERE "
                ));
            }
        }
        self.condition.push(self.dialect, sql);
        // Reading a message from its tape costs far more than a lookup in the text index, so this leaves fewer
        // candidates.
        for hint in &self.hints {
            let bind = sql.bind(hint);
            sql.push(&format!(
                " AND ((e.marks & {CLIPPED}) != 0 OR e.id IN (SELECT rowid FROM texts WHERE {}))",
                matches(self.dialect, &bind)
            ));
        }
    }
}

/// Returns the first and last id of the exchanges of some tapes.
fn ids_of(numbers: &[i64], tapes: &Tapes) -> (i64, i64) {
    // A tape without exchanges has no ids.
    let known = || numbers.iter().filter_map(|number| tapes.get(number)).filter(|tape| tape.last_id > 0);
    let first = known().map(|tape| tape.first_id).min().unwrap_or(0);
    (first, known().map(|tape| tape.last_id).max().unwrap_or(0))
}

/// Returns the full-text query that every match satisfies, and the query without the conditions that it covers; `None`
/// if the query can match any text.
fn driving_text(dialect: Dialect, query: &Conditions) -> (Option<String>, Conditions) {
    let mut rest = query.clone();
    let mut wanted: Vec<String> = Vec::new();
    if !query.text.is_empty() {
        wanted.push(text_query(dialect, &query.text));
    }
    let with_text = query.any_of.iter().filter(|group| group.iter().all(|one| !one.text.is_empty()));
    wanted.extend(with_text.map(|group| {
        let texts: Vec<String> = group.iter().map(|one| text_query(dialect, &one.text)).collect();
        any_text(dialect, &texts)
    }));
    if wanted.is_empty() {
        return (None, rest);
    }
    let unwanted = query.none_of.iter().filter(|one| one.is_text_alone());
    let unwanted: Vec<String> = unwanted.map(|one| text_query(dialect, &one.text)).collect();
    rest.any_of.retain(|group| !group.iter().all(Conditions::is_text_alone));
    rest.none_of.retain(|one| !one.is_text_alone());
    (Some(text_without(dialect, &wanted, &unwanted)), rest)
}

/// Returns a search term for a filter: a field can equal a text only in messages that contain the text.
fn hint(filter: &FieldFilter) -> Option<SearchTerm> {
    match &filter.test {
        ValueTest::Equals(Value::String(text))
            if text.contains(char::is_alphanumeric) && text.len() <= 128 =>
        {
            Some(SearchTerm::Phrase(text.clone()))
        }
        _ => None,
    }
}
