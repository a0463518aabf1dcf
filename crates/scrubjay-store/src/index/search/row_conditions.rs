//! Turns a query into SQL conditions on rows.
//!
//! Texts from outside are bound, or replaced by ids of ours before. Conditions on fields of messages cannot be checked in
//! SQL: a row that matches everything else is a candidate.

use std::collections::HashMap;

use scrubjay_core::exchange::ExchangeKind;
use scrubjay_core::glob::Glob;
use scrubjay_core::protocol::method;
use scrubjay_core::query::{Conditions, FieldFilter, SearchTerm, ValueTest};
use serde_json::Value;
use sqlx::{AnyConnection, Row as _};

use super::super::dialect::{any_text, from_texts, has_text, matches, text_query, text_without};
use super::super::fill::{CLIPPED, ORIGINAL, RULE, SECOND_LEG, TAG, stored_name};
use super::super::int;
use super::{Sql, Tapes, is_one_of, list};
use crate::ledger::dialect::Dialect;

/// The conditions on rows that follow from a query.
#[derive(Debug)]
pub(super) struct RowConditions {
    dialect: Dialect,
    /// The full-text query.
    text: Option<String>,
    /// The numbers of the tapes it is limited to; none for all tapes.
    numbers: Option<Vec<i64>>,
    /// The ids between which exchanges of these tapes are.
    ids: Option<(i64, i64)>,
    /// The condition that an exchange is of these tapes, if the text is frequent and other tapes' ids lie between.
    of_tapes: Option<String>,
    /// The last id of tapes that began before the end of the query's time range.
    last_begun: Option<i64>,
    /// How many rows with that text are looked at, from the last one back; none for all.
    text_rows_max: Option<usize>,
    /// Texts that must be in a row, unless its text is not indexed completely.
    hints: Vec<String>,
    condition: Expression,
    /// The condition of each part of the query by itself, without fields and nested parts.
    parts: Vec<Expression>,
}

/// A condition on a row of exchanges.
#[derive(Debug)]
enum Expression {
    Sql(String),
    /// The row's text matches this full-text query.
    Text(String),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

impl Expression {
    fn push(&self, dialect: Dialect, sql: &mut Sql) {
        match self {
            Self::Sql(text) => drop(sql.push(text)),
            Self::Text(text) => {
                let place = sql.bind(text);
                sql.push(&has_text(dialect, &place));
            }
            Self::All(all) => Self::join(all, dialect, sql, " AND ", "1 = 1"),
            Self::Any(any) => Self::join(any, dialect, sql, " OR ", "1 = 0"),
            Self::Not(one) => {
                // NULL counts as false: a row without a name does not have the name.
                sql.push("CASE WHEN ");
                one.push(dialect, sql);
                sql.push(" THEN 0 ELSE 1 END = 1");
            }
        }
    }

    fn join(all: &[Self], dialect: Dialect, sql: &mut Sql, between: &str, nothing: &str) {
        if all.is_empty() {
            sql.push(nothing);
            return;
        }
        sql.push("(");
        for (at, one) in all.iter().enumerate() {
            sql.push(if at == 0 { "" } else { between });
            one.push(dialect, sql);
        }
        sql.push(")");
    }
}

/// The ids of the names in a query, and the tapes.
struct KnownNames<'a> {
    dialect: Dialect,
    names: HashMap<String, Vec<i64>>,
    tapes: &'a Tapes,
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
        let mut conditions = known.own(query, false);
        conditions.extend(known.within(&rest, true));
        conditions.extend(known.shown_legs(query));
        if !query.params.is_empty() {
            conditions.push(Expression::Sql("e.method IS NOT NULL".to_owned()));
        }
        let numbers = known.tape_numbers(query);
        let ids = numbers.as_ref().map(|numbers| ids_of(numbers, tapes));
        let begun = |to_ns| tapes.values().filter(|t| t.started_ns < to_ns).map(|t| t.last_id).max();
        let fields = query.params.iter().chain(&query.results).chain(&query.errors);
        Ok(Self {
            dialect,
            text,
            numbers,
            ids,
            of_tapes: None,
            last_begun: query.to_ns.and_then(|ns| begun(int(ns))),
            text_rows_max: None,
            hints: fields.filter_map(hint).map(|term| text_query(dialect, &[term])).collect(),
            condition: Expression::All(conditions),
            // Without the first part, the query itself, which every row that is found matches.
            parts: query
                .parts()
                .into_iter()
                .skip(1)
                .map(|part| Expression::All(known.own(part, true)))
                .collect(),
        })
    }

    /// Limits the rows that are looked at if more than `rows_max` match the text; returns whether it did.
    pub(super) async fn bound_text(
        &mut self,
        connection: &mut AnyConnection,
        rows_max: usize,
    ) -> Result<bool, sqlx::Error> {
        if self.text.is_none() {
            return Ok(false);
        }
        let mut is_frequent = self.has_more_texts(connection, rows_max).await?;
        if is_frequent && let Some(numbers) = &self.numbers {
            self.of_tapes = Some(is_one_of("tape", numbers));
            is_frequent = self.has_more_texts(connection, rows_max).await?;
        }
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
        let place = sql.bind(self.text.as_deref().unwrap_or_default());
        sql.push(&format!("SELECT {what} FROM texts WHERE {}", matches(self.dialect, &place)));
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
                let place = sql.bind(text);
                let matches = matches(self.dialect, &place);
                sql.push(&format!(
                    "FROM texts {join} exchanges e ON e.id = texts.rowid WHERE {matches} AND "
                ));
                if let Some((first, last)) = self.ids {
                    sql.push(&format!("texts.rowid BETWEEN {first} AND {last} AND "));
                }
            }
            (Some(_), Some(rows_max)) => {
                let (first, last) = self.ids.unwrap_or((0, i64::MAX));
                let last = self.last_begun.map_or(last, |begun| begun.min(last));
                sql.push("FROM (");
                self.push_texts(sql, "rowid AS id", Some((first, last)));
                sql.push(&format!(
                    " ORDER BY rowid DESC LIMIT {rows_max}) AS t {join} exchanges e ON e.id = t.id WHERE "
                ));
            }
        }
        self.condition.push(self.dialect, sql);
        for hint in &self.hints {
            let place = sql.bind(hint);
            sql.push(&format!(
                " AND ((e.marks & {CLIPPED}) != 0 OR e.id IN (SELECT rowid FROM texts WHERE {}))",
                matches(self.dialect, &place)
            ));
        }
    }
}

impl KnownNames<'_> {
    /// Returns the full condition of a part. Whether fields match is not known here: with `may` they count as matching,
    /// else as not matching.
    fn all(&self, conditions: &Conditions, may: bool) -> Expression {
        let mut all = self.own(conditions, true);
        let has_fields =
            [&conditions.params, &conditions.results, &conditions.errors].iter().any(|f| !f.is_empty());
        if has_fields && !may {
            all.push(Expression::Sql("1 = 0".to_owned()));
        }
        all.extend(self.within(conditions, may));
        Expression::All(all)
    }

    /// Returns the conditions of nested parts.
    fn within(&self, conditions: &Conditions, may: bool) -> Vec<Expression> {
        let any =
            |group: &Vec<Conditions>| Expression::Any(group.iter().map(|one| self.all(one, may)).collect());
        let not = |one: &Conditions| Expression::Not(Box::new(self.all(one, !may)));
        conditions.any_of.iter().map(any).chain(conditions.none_of.iter().map(not)).collect()
    }

    /// Returns the conditions of a part by itself, without fields; with its text if `with_text` says so.
    fn own(&self, query: &Conditions, with_text: bool) -> Vec<Expression> {
        let mut all: Vec<String> = Vec::new();
        all.extend(query.from_ns.map(|ns| format!("e.wall_ns >= {}", int(ns))));
        all.extend(query.to_ns.map(|ns| format!("e.wall_ns < {}", int(ns))));
        all.extend(query.min_response_ns.map(|ns| format!("e.took_ns >= {}", int(ns))));
        all.extend(query.max_response_ns.map(|ns| format!("e.took_ns <= {}", int(ns))));
        let tokens = "e.asked_tokens + e.answered_tokens";
        all.extend(query.min_tokens.map(|count| format!("{tokens} >= {}", int(count))));
        all.extend(query.max_tokens.map(|count| format!("{tokens} <= {}", int(count))));
        all.extend(query.has_errors.map(|failed| format!("e.failed = {}", i64::from(failed))));
        if !query.error_codes.is_empty() {
            all.push(format!("e.failed = 1 AND e.code IN ({})", list(&query.error_codes)));
        }
        if !query.types.is_empty() {
            let codes: Vec<i64> = query.types.iter().map(|what| what.code()).collect();
            let codes = list(&codes);
            let original = if query.types.contains(&ExchangeKind::Original) { ORIGINAL } else { 0 };
            all.push(format!(
                "(e.what IN ({codes}) OR e.answered_with IN ({codes}) OR (e.marks & {original}) != 0)"
            ));
        }
        all.extend(self.tape_numbers(query).map(|numbers| is_one_of("e.tape", &numbers)));
        let call = if query.tools.is_empty() { Vec::new() } else { vec![method::TOOLS_CALL.to_owned()] };
        let columns = [
            ("e.method", &query.methods),
            ("e.name", &query.names),
            ("e.method", &call),
            ("e.name", &query.tools),
            ("e.via", &query.via),
        ];
        all.extend(columns.into_iter().filter_map(|(column, wanted)| self.is_named(column, wanted)));
        for (kind, wanted) in [(RULE, &query.rules), (TAG, &query.tags)] {
            let judged = self.is_named("name", wanted);
            all.extend(judged.map(|named| {
                format!("e.id IN (SELECT exchange FROM judged WHERE kind = {kind} AND {named})")
            }));
        }
        let mut all: Vec<Expression> = all.into_iter().map(Expression::Sql).collect();
        if with_text && !query.text.is_empty() {
            all.push(Expression::Text(text_query(self.dialect, &query.text)));
        }
        all
    }

    fn is_named(&self, column: &str, wanted: &[String]) -> Option<String> {
        let numbers = wanted.iter().filter_map(|name| self.names.get(name)).flatten().copied();
        (!wanted.is_empty()).then(|| is_one_of(column, &numbers.collect::<Vec<i64>>()))
    }

    /// Leaves out second legs, unless the query names a backend.
    fn shown_legs(&self, query: &Conditions) -> Option<Expression> {
        if !query.via.is_empty() {
            return None;
        }
        let mut shown = vec![Expression::Sql(format!("(e.marks & {SECOND_LEG}) = 0"))];
        let alternatives = query.any_of.iter().flatten().flat_map(Conditions::parts);
        let asked = alternatives.filter_map(|part| self.is_named("e.via", &part.via));
        shown.extend(asked.map(Expression::Sql));
        Some(Expression::Any(shown))
    }

    /// Returns the numbers of the tapes that a part is limited to; none for all tapes.
    fn tape_numbers(&self, query: &Conditions) -> Option<Vec<i64>> {
        if query.sessions.is_empty() && query.tapes.is_empty() && query.servers.is_empty() {
            return None;
        }
        let latest = self.tapes.values().max_by_key(|t| (t.started_ns, &t.id)).map(|t| t.number);
        let begins =
            |wanted: &[String], id: &str| wanted.is_empty() || wanted.iter().any(|w| id.starts_with(w));
        let servers: Vec<Glob> = query.servers.iter().map(|server| Glob::new(server)).collect();
        let is_latest = |number: i64| query.tapes.iter().any(|t| t == "latest") && Some(number) == latest;
        let numbers = self.tapes.values();
        let numbers = numbers
            .filter(|t| begins(&query.sessions, &t.session))
            .filter(|t| begins(&query.tapes, &t.id) || is_latest(t.number))
            .filter(|t| servers.is_empty() || servers.iter().any(|s| s.matches(&t.server)));
        Some(numbers.map(|t| t.number).collect())
    }
}

/// Returns the first and last id of the exchanges of some tapes.
fn ids_of(numbers: &[i64], tapes: &Tapes) -> (i64, i64) {
    let known = || numbers.iter().filter_map(|number| tapes.get(number)).filter(|tape| tape.last_id > 0);
    let first = known().map(|tape| tape.first_id).min().unwrap_or(0);
    (first, known().map(|tape| tape.last_id).max().unwrap_or(0))
}

/// Returns the full-text query that every match of the whole query satisfies, and the query without the conditions that
/// it covers. None if the query can match any text.
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

/// Looks up the ids of all names in a query.
async fn names_in(
    connection: &mut AnyConnection,
    query: &Conditions,
) -> Result<HashMap<String, Vec<i64>>, sqlx::Error> {
    let mut known = HashMap::new();
    for part in query.parts() {
        let lists = [&part.methods, &part.names, &part.tools, &part.via, &part.rules, &part.tags];
        let call = (!part.tools.is_empty()).then(|| method::TOOLS_CALL.to_owned());
        for name in lists.into_iter().flatten().chain(&call) {
            if !known.contains_key(name) {
                known.insert(name.clone(), numbers_of(connection, name).await?);
            }
        }
    }
    Ok(known)
}

/// Returns the ids of a name; a `*` in it matches anything.
async fn numbers_of(connection: &mut AnyConnection, name: &str) -> Result<Vec<i64>, sqlx::Error> {
    if !name.contains('*') {
        return sqlx::query_scalar("SELECT id FROM names WHERE name = $1")
            .bind(stored_name(name).into_owned())
            .fetch_all(connection)
            .await;
    }
    let glob = Glob::new(name);
    let pattern = name.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_").replace('*', "%");
    let found: Vec<(i64, String)> =
        sqlx::query_as("SELECT id, name FROM names WHERE name LIKE $1 ESCAPE '\\'")
            .bind(stored_name(&pattern).into_owned())
            .fetch_all(connection)
            .await?;
    // SQLite's LIKE ignores case, so check again.
    Ok(found.into_iter().filter(|(_, found)| glob.matches(found)).map(|(number, _)| number).collect())
}

/// A field can equal a text only in messages that contain the text.
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
