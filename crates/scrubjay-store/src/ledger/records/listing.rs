//! Lists records by state, type and position in the tree, a page at a time.

use sqlx::Row;

use super::collection::RecordCollection;
use super::row::{REF, sql};
use super::{RecordError, RecordId, RecordRef, RecordState, row};
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError};

/// The most types in a filter: each is a bind of its own.
pub(super) const TYPES_MAX: usize = 20;

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct RecordFilter {
    /// The states; if empty, any.
    pub states: Vec<RecordState>,
    /// The types; if empty, any.
    pub types: Vec<String>,
    /// The part of the tree.
    pub place: TreePlace,
    /// The session that created or changed them; `None` for any.
    pub session: Option<String>,
    /// The last record of the previous page.
    pub after: Option<RecordId>,
    /// The most records to return.
    pub limit: i64,
}

/// A part of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreePlace {
    /// All of it, in the order of creation.
    #[default]
    Anywhere,
    /// This number of levels from the roots down, in the order of the tree; 1 is the roots only.
    Roots(i64),
    /// This number of levels below a record.
    Below(RecordId, i64),
}

/// Lists records; returns the page, and how many there are without the limit.
///
/// # Errors
/// The record of `place` or `after` does not exist, or the ledger failed.
pub async fn list(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    filter: &RecordFilter,
) -> Result<(Vec<RecordRef>, i64), RecordError> {
    if filter.types.len() > TYPES_MAX {
        return Err(RecordError::Invalid(format!("at most {TYPES_MAX} types can be asked for")));
    }
    let place = tree_place_sql(on, collection, filter.place).await?;
    let after = match filter.after {
        Some(id) => Some(row::require(on, collection, id).await?),
        None => None,
    };
    let mut condition = place.condition.to_owned();
    if !filter.states.is_empty() {
        // The names are constants, so they are written into the statement instead of bound.
        let states: Vec<_> = filter.states.iter().map(|state| format!("'{}'", state.name())).collect();
        condition += &format!(" AND r.state IN ({})", states.join(", "));
    }
    if !filter.types.is_empty() {
        let types: Vec<_> = (0..filter.types.len()).map(|n| format!("${}", n + 8)).collect();
        condition += &format!(" AND r.type IN ({})", types.join(", "));
    }
    if filter.session.is_some() {
        condition += &format!(
            " AND EXISTS (SELECT 1 FROM record_versions v WHERE v.book = r.book AND v.number = r.number
                AND v.session_id = ${})",
            filter.types.len() + 8
        );
    }
    // Both statements use all binds, so that one loop can bind them.
    let page = format!(
        "SELECT {REF} FROM records r WHERE {condition}
         AND (r.number > $4 OR $6 = 1) AND (r.path > $5 OR $6 = 0) ORDER BY {} LIMIT $7",
        place.order
    );
    let count =
        format!("SELECT count(*) FROM records r WHERE {condition} AND $4 >= 0 AND $5 >= '' AND $6 + $7 >= 0");
    let mut rows = Vec::new();
    let mut total = 0;
    for (text, counts) in [(page, false), (count, true)] {
        let mut query = select(sqlx::AssertSqlSafe(text))
            .bind(collection.id)
            .bind(&place.first)
            .bind(&place.end)
            .bind(after.as_ref().map_or(0, |r| r.id.0))
            .bind(after.as_ref().map_or("", |r| &r.path))
            .bind(i64::from(place.by_path))
            .bind(filter.limit);
        for text in filter.types.iter().chain(&filter.session) {
            query = query.bind(text);
        }
        if counts {
            total = query.fetch_one(on.conn()).await?.try_get(0)?;
        } else {
            rows = query.fetch_all(on.conn()).await?;
        }
    }
    let page = rows.iter().map(RecordRef::of).collect::<Result<_, _>>()?;
    Ok((page, total))
}

/// A part of the tree as SQL. It contains only numbers of our own.
struct PlaceSql {
    condition: String,
    first: String,
    end: String,
    order: &'static str,
    by_path: bool,
}

async fn tree_place_sql(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    place: TreePlace,
) -> Result<PlaceSql, RecordError> {
    // PostgreSQL refuses binds that a statement does not use, so the condition uses all of them, even without effect.
    let any = "r.book = $1 AND $2 >= '' AND $3 >= ''";
    let by_number = |condition: String| PlaceSql {
        condition,
        first: String::new(),
        end: String::new(),
        order: "r.number",
        by_path: false,
    };
    Ok(match place {
        TreePlace::Anywhere => by_number(any.to_owned()),
        TreePlace::Roots(depth) if depth <= 1 => by_number(format!("{any} AND r.parent = 0")),
        TreePlace::Roots(depth) => PlaceSql {
            condition: format!("{any} AND r.depth <= {depth}"),
            first: String::new(),
            end: String::new(),
            order: "r.path",
            by_path: true,
        },
        TreePlace::Below(id, depth) => {
            let top = row::require(on, collection, id).await?;
            if depth <= 1 {
                by_number(format!("{any} AND r.parent = {}", id.0))
            } else {
                let (first, end) = top.subtree();
                let deepest = top.depth.saturating_add(depth);
                PlaceSql {
                    condition: format!(
                        "r.book = $1 AND r.path > $2 AND r.path < $3 AND r.depth <= {deepest}"
                    ),
                    first,
                    end,
                    order: "r.path",
                    by_path: true,
                }
            }
        }
    })
}

/// Returns the first children of a record: of one state, or all that are not open.
pub(super) async fn children(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
    state: Option<RecordState>,
    limit: i64,
) -> Result<Vec<RecordRef>, LedgerError> {
    let condition = if state.is_some() { "r.state = $3" } else { "r.state <> $3" };
    let rows = select(sql!(
        "SELECT ",
        REF,
        " FROM records r WHERE r.book = $1 AND r.parent = $2 AND ",
        condition,
        " ORDER BY r.number LIMIT $4",
    ))
    .bind(collection.id)
    .bind(id.0)
    .bind(state.unwrap_or(RecordState::Open).name())
    .bind(limit)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(RecordRef::of).collect()
}

/// Returns the newest records in a state, or the newest roots.
///
/// # Errors
/// The ledger failed.
pub async fn newest(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    state: Option<RecordState>,
    limit: i64,
) -> Result<Vec<RecordRef>, LedgerError> {
    let condition = if state.is_some() { "r.state = $2" } else { "r.parent = 0 AND $2 = ''" };
    let rows = select(sql!(
        "SELECT ",
        REF,
        " FROM records r WHERE r.book = $1 AND ",
        condition,
        " ORDER BY r.number DESC LIMIT $3",
    ))
    .bind(collection.id)
    .bind(state.map_or("", RecordState::name))
    .bind(limit)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(RecordRef::of).collect()
}
