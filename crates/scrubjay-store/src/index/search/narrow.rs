//! A query as conditions on rows.
//!
//! Everything that comes from outside is bound, or has become a number of our own before.

use scrubjay_core::glob::Glob;
use scrubjay_core::query::{FieldFilter, SearchQuery, Term, Test};
use serde_json::Value;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::super::fill::{CLIPPED, SECOND_LEG};
use super::super::{id_of, int};
use super::{Tapes, list};

/// The rows that a query is about.
#[derive(Debug, Default)]
pub(super) struct Narrowed {
    /// What the text must be like, in the words of the full-text search.
    text: Option<String>,
    /// Texts that must be there, unless not all of a row's text is known.
    hints: Vec<String>,
    conditions: Vec<String>,
}

impl Narrowed {
    pub(super) async fn new(
        connection: &mut SqliteConnection,
        query: &SearchQuery,
        tapes: &Tapes,
    ) -> Result<Self, sqlx::Error> {
        let mut narrowed = Self::default();
        narrowed.add_numbers(query);
        narrowed.add_tapes(query, tapes);
        narrowed.add_names(connection, "e.method", &query.methods).await?;
        narrowed.add_names(connection, "e.name", &query.names).await?;
        if !query.tools.is_empty() {
            narrowed.add_names(connection, "e.method", &["tools/call".to_owned()]).await?;
            narrowed.add_names(connection, "e.name", &query.tools).await?;
        }
        if query.via.is_empty() {
            narrowed.conditions.push(format!("e.marks & {SECOND_LEG} = 0"));
        } else {
            narrowed.add_names(connection, "e.via", &query.via).await?;
        }
        let terms: Vec<String> = query.text.iter().map(term).collect();
        narrowed.text = (!terms.is_empty()).then(|| terms.join(" AND "));
        narrowed.hints = query.params.iter().chain(&query.results).filter_map(hint).collect();
        if !query.params.is_empty() {
            narrowed.conditions.push("e.method IS NOT NULL".to_owned());
        }
        Ok(narrowed)
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
        self.conditions.push(match numbers.as_slice() {
            [one] => format!("e.id BETWEEN {} AND {}", id_of(*one, 0), id_of(*one, u64::MAX)),
            several => format!("(e.id >> 32) IN ({})", list(several)),
        });
    }

    async fn add_names(
        &mut self,
        connection: &mut SqliteConnection,
        column: &str,
        wanted: &[String],
    ) -> Result<(), sqlx::Error> {
        if wanted.is_empty() {
            return Ok(());
        }
        let mut numbers: Vec<i64> = Vec::new();
        for name in wanted {
            let found: Vec<i64> = if name.contains('*') {
                let pattern =
                    name.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_").replace('*', "%");
                sqlx::query_scalar("SELECT id FROM names WHERE name LIKE $1 ESCAPE '\\'")
                    .bind(pattern)
                    .fetch_all(&mut *connection)
                    .await?
            } else {
                sqlx::query_scalar("SELECT id FROM names WHERE name = $1")
                    .bind(name)
                    .fetch_all(&mut *connection)
                    .await?
            };
            numbers.extend(found);
        }
        self.conditions.push(format!("{column} IN ({})", list(&numbers)));
        Ok(())
    }

    /// Writes `FROM … WHERE …`.
    pub(super) fn push(&self, sql: &mut QueryBuilder<Sqlite>) {
        sql.push(if self.text.is_some() {
            // The text first: it leaves the fewest.
            "FROM texts CROSS JOIN exchanges e ON e.id = texts.rowid WHERE texts MATCH "
        } else {
            "FROM exchanges e WHERE 1"
        });
        if let Some(text) = &self.text {
            sql.push_bind(text.clone());
        }
        for condition in &self.conditions {
            sql.push(format!(" AND {condition}"));
        }
        for hint in &self.hints {
            sql.push(format!(
                " AND (e.marks & {CLIPPED} != 0 OR e.id IN (SELECT rowid FROM texts WHERE texts MATCH "
            ));
            sql.push_bind(hint.clone());
            sql.push("))");
        }
    }
}

fn term(term: &Term) -> String {
    let quoted = term.as_str().replace('"', "\"\"");
    match term {
        Term::Phrase(_) => format!("\"{quoted}\""),
        Term::Prefix(_) => format!("\"{quoted}\" *"),
    }
}

/// A field that equals a text can only be where that text is.
fn hint(filter: &FieldFilter) -> Option<String> {
    match &filter.test {
        Test::Equals(Value::String(text)) if text.contains(char::is_alphanumeric) && text.len() <= 128 => {
            Some(format!("\"{}\"", text.replace('"', "\"\"")))
        }
        _ => None,
    }
}
