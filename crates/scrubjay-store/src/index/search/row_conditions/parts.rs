//! The conditions of the parts of a query: of each by itself, and of those nested in it.

use std::collections::HashMap;

use scrubjay_core::exchange::ExchangeKind;
use scrubjay_core::glob::Glob;
use scrubjay_core::protocol::method;
use scrubjay_core::query::Conditions;
use sqlx::AnyConnection;

use super::expression::Expression;
use crate::index::dialect::text_query;
use crate::index::fill::{ORIGINAL, RULE, SECOND_LEG, TAG, stored_name};
use crate::index::int;
use crate::index::search::Tapes;
use crate::index::sql::{is_one_of, list};
use crate::ledger::dialect::Dialect;

/// What the conditions refer to: the ids of the names in a query, and the tapes.
pub(super) struct KnownNames<'a> {
    pub(super) dialect: Dialect,
    pub(super) names: HashMap<String, Vec<i64>>,
    pub(super) tapes: &'a Tapes,
}

impl KnownNames<'_> {
    /// Returns the full condition of a part. Whether fields match is not known here: with `fields_match` they count as
    /// matching, otherwise as not matching. Within `NOT` that is reversed, so that no match is lost.
    fn whole_condition(&self, conditions: &Conditions, fields_match: bool) -> Expression {
        let mut all = self.direct_conditions(conditions, true);
        let has_fields =
            [&conditions.params, &conditions.results, &conditions.errors].iter().any(|f| !f.is_empty());
        if has_fields && !fields_match {
            all.push(Expression::Sql("1 = 0".to_owned()));
        }
        all.extend(self.nested_conditions(conditions, fields_match));
        Expression::All(all)
    }

    /// Returns the conditions of nested parts.
    pub(super) fn nested_conditions(&self, conditions: &Conditions, fields_match: bool) -> Vec<Expression> {
        let any = |group: &Vec<Conditions>| {
            Expression::Any(group.iter().map(|one| self.whole_condition(one, fields_match)).collect())
        };
        let not = |one: &Conditions| Expression::Not(Box::new(self.whole_condition(one, !fields_match)));
        conditions.any_of.iter().map(any).chain(conditions.none_of.iter().map(not)).collect()
    }

    /// Returns the conditions of a part by itself, without fields and nested parts, and with its text if `with_text`.
    pub(super) fn direct_conditions(&self, query: &Conditions, with_text: bool) -> Vec<Expression> {
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
            // The original is no row of its own: it is text of the exchange that rules changed, marked by a bit.
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

    /// Returns the condition that leaves out second legs; `None` if the query names a backend.
    pub(super) fn shown_legs(&self, query: &Conditions) -> Option<Expression> {
        if !query.via.is_empty() {
            return None;
        }
        // A second leg repeats a client's exchange, so it would be a second hit for the same call.
        let mut shown = vec![Expression::Sql(format!("(e.marks & {SECOND_LEG}) = 0"))];
        let alternatives = query.any_of.iter().flatten().flat_map(Conditions::parts);
        let backends = alternatives.filter_map(|part| self.is_named("e.via", &part.via));
        shown.extend(backends.map(Expression::Sql));
        Some(Expression::Any(shown))
    }

    /// Returns the numbers of the tapes to which a part is limited; `None` for all tapes.
    pub(super) fn tape_numbers(&self, query: &Conditions) -> Option<Vec<i64>> {
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

/// Looks up the ids of all names in a query.
pub(super) async fn names_in(
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
