//! A query as conditions on rows.
//!
//! Everything that comes from outside is bound, or has become a number of our own before.

use scrubjay_core::glob::Glob;
use scrubjay_core::query::{FieldFilter, SearchQuery, Term, Test};
use serde_json::Value;
use sqlx::{AnyConnection, Row as _};

use super::super::dialect::{from_texts, matches, text_query};
use super::super::fill::{CLIPPED, SECOND_LEG, kept_name};
use super::super::{id_of, int};
use super::{Sql, Tapes, is_one_of, list};
use crate::ledger::dialect::Dialect;

/// The rows that a query is about.
#[derive(Debug)]
pub(super) struct Narrowed {
    dialect: Dialect,
    /// What the text must be like, in the words of the full-text search.
    text: Option<String>,
    /// The first and the last tape it can be about, by their numbers.
    tapes: Option<(i64, i64)>,
    /// The last tape that began before the time asked for was over.
    last_begun: Option<i64>,
    /// Only so many of the rows with that text, from the last tape back.
    text_rows_max: Option<usize>,
    /// Texts that must be there, unless not all of a row's text is known.
    hints: Vec<String>,
    conditions: Vec<String>,
}

impl Narrowed {
    pub(super) async fn new(
        connection: &mut AnyConnection,
        dialect: Dialect,
        query: &SearchQuery,
        tapes: &Tapes,
    ) -> Result<Self, sqlx::Error> {
        let hints = query.params.iter().chain(&query.results).filter_map(hint);
        let mut narrowed = Self {
            dialect,
            text: (!query.text.is_empty()).then(|| text_query(dialect, &query.text)),
            tapes: None,
            last_begun: None,
            text_rows_max: None,
            hints: hints.map(|term| text_query(dialect, &[term])).collect(),
            conditions: Vec::new(),
        };
        narrowed.add_numbers(query);
        narrowed.add_tapes(query, tapes);
        narrowed.add_names(connection, "e.method", &query.methods).await?;
        narrowed.add_names(connection, "e.name", &query.names).await?;
        if !query.tools.is_empty() {
            narrowed.add_names(connection, "e.method", &["tools/call".to_owned()]).await?;
            narrowed.add_names(connection, "e.name", &query.tools).await?;
        }
        let except = numbers_of(connection, &query.except_tools).await?;
        if !except.is_empty() {
            narrowed.conditions.push(format!("(e.name IS NULL OR e.name NOT IN ({}))", list(&except)));
        }
        if query.via.is_empty() {
            narrowed.conditions.push(format!("(e.marks & {SECOND_LEG}) = 0"));
        } else {
            narrowed.add_names(connection, "e.via", &query.via).await?;
        }
        if !query.params.is_empty() {
            narrowed.conditions.push("e.method IS NOT NULL".to_owned());
        }
        Ok(narrowed)
    }

    /// Looks at no more than so many rows where more have the text; tells whether that is so.
    pub(super) async fn bound_text(
        &mut self,
        connection: &mut AnyConnection,
        rows_max: usize,
    ) -> Result<bool, sqlx::Error> {
        if self.text.is_none() {
            return Ok(false);
        }
        let mut sql = Sql::new("SELECT count(*) FROM (");
        self.push_texts(&mut sql, "rowid", self.tapes);
        sql.push(&format!(" LIMIT {}) AS t", rows_max + 1));
        let counted = sql.fetch(connection).await?;
        let count: i64 = counted.first().map_or(Ok(0), |row| row.try_get(0))?;
        let is_frequent = count > i64::try_from(rows_max).unwrap_or(i64::MAX);
        self.text_rows_max = is_frequent.then_some(rows_max);
        Ok(is_frequent)
    }

    /// Writes `SELECT … FROM texts WHERE …`.
    fn push_texts(&self, sql: &mut Sql, what: &str, tapes: Option<(i64, i64)>) {
        let place = sql.bind(self.text.as_deref().unwrap_or_default());
        sql.push(&format!("SELECT {what} FROM texts WHERE {}", matches(self.dialect, &place)));
        if let Some((first, last)) = tapes {
            sql.push(&format!(" AND rowid BETWEEN {} AND {}", id_of(first, 0), id_of(last, u64::MAX)));
        }
    }

    fn add_numbers(&mut self, query: &SearchQuery) {
        let conditions = &mut self.conditions;
        conditions.extend(query.from_ns.map(|ns| format!("e.wall_ns >= {}", int(ns))));
        conditions.extend(query.to_ns.map(|ns| format!("e.wall_ns < {}", int(ns))));
        conditions.extend(query.min_response_ns.map(|ns| format!("e.took_ns >= {}", int(ns))));
        conditions.extend(query.max_response_ns.map(|ns| format!("e.took_ns <= {}", int(ns))));
        conditions.extend(query.has_errors.map(|failed| format!("e.failed = {}", i64::from(failed))));
        if !query.error_codes.is_empty() {
            conditions.push(format!("e.failed = 1 AND e.code IN ({})", list(&query.error_codes)));
        }
        if !query.types.is_empty() {
            let codes: Vec<i64> = query.types.iter().map(|what| what.code()).collect();
            let codes = list(&codes);
            conditions.push(format!("(e.what IN ({codes}) OR e.answered_with IN ({codes}))"));
        }
    }

    fn add_tapes(&mut self, query: &SearchQuery, tapes: &Tapes) {
        if let Some(to_ns) = query.to_ns.map(int) {
            self.last_begun = tapes.values().filter(|t| t.started_ns < to_ns).map(|t| t.number).max();
        }
        let begins =
            |wanted: &[String], id: &str| wanted.is_empty() || wanted.iter().any(|w| id.starts_with(w));
        if query.sessions.is_empty() && query.tapes.is_empty() && query.servers.is_empty() {
            return;
        }
        let servers: Vec<Glob> = query.servers.iter().map(|server| Glob::new(server)).collect();
        let numbers: Vec<i64> = tapes
            .values()
            .filter(|t| begins(&query.sessions, &t.session) && begins(&query.tapes, &t.id))
            .filter(|t| servers.is_empty() || servers.iter().any(|s| s.matches(&t.server)))
            .map(|t| t.number)
            .collect();
        self.tapes = numbers.iter().min().copied().zip(numbers.iter().max().copied());
        self.conditions.push(match numbers.as_slice() {
            [one] => format!("e.id BETWEEN {} AND {}", id_of(*one, 0), id_of(*one, u64::MAX)),
            several => is_one_of("(e.id >> 32)", several),
        });
    }

    async fn add_names(
        &mut self,
        connection: &mut AnyConnection,
        column: &str,
        wanted: &[String],
    ) -> Result<(), sqlx::Error> {
        if !wanted.is_empty() {
            self.conditions.push(is_one_of(column, &numbers_of(connection, wanted).await?));
        }
        Ok(())
    }

    /// Writes `FROM … WHERE …`.
    pub(super) fn push(&self, sql: &mut Sql) {
        let join = from_texts(self.dialect);
        match (&self.text, self.text_rows_max) {
            (None, _) => {
                sql.push("FROM exchanges e WHERE 1 = 1");
            }
            (Some(text), None) => {
                let place = sql.bind(text);
                let matches = matches(self.dialect, &place);
                sql.push(&format!("FROM texts {join} exchanges e ON e.id = texts.rowid WHERE {matches}"));
                if let Some((first, last)) = self.tapes {
                    sql.push(&format!(
                        " AND texts.rowid BETWEEN {} AND {}",
                        id_of(first, 0),
                        id_of(last, u64::MAX)
                    ));
                }
            }
            (Some(_), Some(rows_max)) => {
                let (first, last) = self.tapes.unwrap_or((0, i64::from(i32::MAX)));
                let last = self.last_begun.map_or(last, |begun| begun.min(last));
                sql.push("FROM (");
                self.push_texts(sql, "rowid AS id", Some((first, last)));
                sql.push(&format!(
                    " ORDER BY rowid DESC LIMIT {rows_max}) AS t {join} exchanges e ON e.id = t.id WHERE 1 = 1"
                ));
            }
        }
        for condition in &self.conditions {
            sql.push(&format!(" AND {condition}"));
        }
        for hint in &self.hints {
            let place = sql.bind(hint);
            sql.push(&format!(
                " AND ((e.marks & {CLIPPED}) != 0 OR e.id IN (SELECT rowid FROM texts WHERE {}))",
                matches(self.dialect, &place)
            ));
        }
    }
}

/// Returns the numbers of names; a `*` in one stands for anything.
async fn numbers_of(connection: &mut AnyConnection, wanted: &[String]) -> Result<Vec<i64>, sqlx::Error> {
    let mut numbers: Vec<i64> = Vec::new();
    for name in wanted {
        if name.contains('*') {
            let glob = Glob::new(name);
            let pattern =
                name.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_").replace('*', "%");
            let found: Vec<(i64, String)> =
                sqlx::query_as("SELECT id, name FROM names WHERE name LIKE $1 ESCAPE '\\'")
                    .bind(kept_name(&pattern).into_owned())
                    .fetch_all(&mut *connection)
                    .await?;
            // One of the databases is less exact about upper and lower case.
            numbers.extend(found.iter().filter(|(_, found)| glob.matches(found)).map(|(number, _)| number));
        } else {
            let found: Vec<i64> = sqlx::query_scalar("SELECT id FROM names WHERE name = $1")
                .bind(kept_name(name).into_owned())
                .fetch_all(&mut *connection)
                .await?;
            numbers.extend(found);
        }
    }
    Ok(numbers)
}

/// A field that equals a text can only be where that text is.
fn hint(filter: &FieldFilter) -> Option<Term> {
    match &filter.test {
        Test::Equals(Value::String(text)) if text.contains(char::is_alphanumeric) && text.len() <= 128 => {
            Some(Term::Phrase(text.clone()))
        }
        _ => None,
    }
}
