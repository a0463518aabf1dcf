//! Facets: the number of matches for each method, tool, session, error code and day.

use std::collections::BTreeMap;

use scrubjay_core::export::iso_time;
use scrubjay_core::protocol::method;
use serde::Serialize;
use sqlx::{AnyConnection, Row as _};

use super::row_conditions::RowConditions;
use super::{Row, Sql, Tapes, names, uint};

/// The most values of each facet that are returned, the most frequent first.
const VALUES_MAX: usize = 20;
const DAY_NS: i64 = 86_400_000_000_000;

/// A value, and how many matches have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facet {
    /// The value.
    pub value: String,
    /// The number of matches.
    pub count: u64,
}

/// The facets of all matches: the most frequent values first, days (UTC) in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facets {
    #[serde(skip)]
    pub(super) total: u64,
    /// By method.
    pub methods: Vec<Facet>,
    /// By tool.
    pub tools: Vec<Facet>,
    /// By session.
    pub sessions: Vec<Facet>,
    /// By the code of the error.
    pub error_codes: Vec<Facet>,
    /// By day; the latest days.
    pub days: Vec<Facet>,
}

/// Rows with the same value in every facet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    method: Option<i64>,
    name: Option<i64>,
    tape: i64,
    code: Option<i64>,
    day: i64,
    count: i64,
}

impl Group {
    pub(super) fn of(row: &Row) -> Self {
        Self {
            method: row.method,
            name: row.name,
            tape: row.tape,
            code: row.code,
            day: row.wall_ns / DAY_NS,
            count: 1,
        }
    }
}

/// Counts all matches in the database.
pub(super) async fn count(
    connection: &mut AnyConnection,
    conditions: &RowConditions,
    tapes: &Tapes,
) -> Result<Facets, sqlx::Error> {
    let call: Option<i64> = sqlx::query_scalar("SELECT id FROM names WHERE name = 'tools/call'")
        .fetch_optional(&mut *connection)
        .await?;
    // Only calls of tools are counted by name. Without the name `tools/call` there are none, and no name has the id -1.
    let mut sql = Sql::new(format!(
        "SELECT e.method, CASE WHEN e.method = {} THEN e.name END, e.tape, e.code, e.wall_ns / {DAY_NS}, \
         count(*) ",
        call.unwrap_or(-1)
    ));
    conditions.push(&mut sql);
    sql.push(" GROUP BY 1, 2, 3, 4, 5");
    let rows = sql.fetch(&mut *connection).await?;
    let mut groups = Vec::with_capacity(rows.len());
    for row in rows {
        groups.push(Group {
            method: row.try_get(0)?,
            name: row.try_get(1)?,
            tape: row.try_get(2)?,
            code: row.try_get(3)?,
            day: row.try_get(4)?,
            count: row.try_get(5)?,
        });
    }
    sum_groups(connection, groups.into_iter(), tapes).await
}

/// Sums groups of rows to facets.
pub(super) async fn sum_groups(
    connection: &mut AnyConnection,
    groups: impl Iterator<Item = Group>,
    tapes: &Tapes,
) -> Result<Facets, sqlx::Error> {
    let groups: Vec<Group> = groups.collect();
    let names = names(connection, groups.iter().flat_map(|g| [g.method, g.name])).await?;
    let mut counts: [BTreeMap<String, u64>; 5] = Default::default();
    let mut total = 0;
    for group in &groups {
        let count = uint(group.count);
        total += count;
        let name = |number: Option<i64>| number.and_then(|n| names.get(&n).cloned());
        let method = name(group.method);
        let tool = name(group.name).filter(|_| method.as_deref() == Some(method::TOOLS_CALL));
        let session = tapes.get(&group.tape).map(|tape| tape.session.clone());
        let day = iso_time(uint(group.day * DAY_NS)).get(..10).map(str::to_owned);
        let values = [method, tool, session, group.code.map(|c| c.to_string()), day];
        // Summed by text, because several tapes may belong to one session.
        for (facet, value) in counts.iter_mut().zip(values) {
            if let Some(value) = value {
                *facet.entry(value).or_default() += count;
            }
        }
    }
    let [methods, tools, sessions, error_codes, days] = counts.map(|facet| -> Vec<Facet> {
        facet.into_iter().map(|(value, count)| Facet { value, count }).collect()
    });
    // A BTreeMap sorts ISO days by time.
    let last = days.len().saturating_sub(VALUES_MAX);
    Ok(Facets {
        total,
        methods: most_frequent(methods),
        tools: most_frequent(tools),
        sessions: most_frequent(sessions),
        error_codes: most_frequent(error_codes),
        days: days[last..].to_vec(),
    })
}

fn most_frequent(mut facets: Vec<Facet>) -> Vec<Facet> {
    facets.sort_by_key(|facet| std::cmp::Reverse(facet.count));
    facets.truncate(VALUES_MAX);
    facets
}
