//! Reads records from their tables.

use serde_json::{Map, Value};
use sqlx::Row;
use sqlx::any::AnyRow;

use super::collection::RecordCollection;
use super::{Record, RecordContent, RecordError, RecordId, RecordRef, RecordState};
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError};

/// The columns of a [`RecordRef`], from `records r`.
pub(super) const REF: &str = "r.number, r.type, r.title, r.summary, r.state, r.parent, r.children,
    r.open_children, r.depth, r.version, r.tick, r.cited, r.created_ns, r.modified_ns, r.path";
/// The columns of a version, from `record_versions v`.
pub(super) const VERSION: &str = "v.version, v.at_ns, v.type, v.title, v.summary, v.body, v.state,
    v.resolved_by, v.related, v.metadata, v.citations";
const REF_COLUMNS: usize = 15;
/// How many columns a version has.
pub(super) const VERSION_COLUMNS: usize = 11;
/// The width of each number in a path: fixed, so that paths sort as their numbers do and a subtree is a range of texts.
const PATH_DIGITS: usize = 9;

impl RecordRef {
    pub(super) fn of(row: &AnyRow) -> Result<Self, LedgerError> {
        let parent: i64 = row.try_get(5)?;
        Ok(Self {
            id: RecordId(row.try_get(0)?),
            kind: row.try_get(1)?,
            title: row.try_get(2)?,
            summary: row.try_get(3)?,
            state: state(row.try_get(4)?)?,
            parent: (parent != 0).then_some(RecordId(parent)),
            children: row.try_get(6)?,
            open_children: row.try_get(7)?,
            depth: row.try_get(8)?,
            version: row.try_get(9)?,
            tick: row.try_get(10)?,
            cited: row.try_get(11)?,
            created_ns: row.try_get(12)?,
            modified_ns: row.try_get(13)?,
            path: row.try_get(14)?,
        })
    }

    /// Returns the path of a child.
    pub(super) fn child_path(&self, child: RecordId) -> String {
        path(&self.path, child)
    }

    /// Returns the first path of its subtree, and the first path behind it.
    pub(super) fn subtree(&self) -> (String, String) {
        // Everything below sorts before the path of the next sibling, whether that exists or not.
        let above = &self.path[..self.path.len() - PATH_DIGITS];
        (self.path.clone(), path(above, RecordId(self.id.0 + 1)))
    }

    /// Returns its ancestors, the root first, and itself.
    pub(super) fn lineage(&self) -> Vec<RecordId> {
        let digits = self.path.as_bytes().chunks(PATH_DIGITS);
        digits.filter_map(|n| std::str::from_utf8(n).ok()?.parse().ok()).map(RecordId).collect()
    }
}

/// Returns the path of a record below another.
pub(super) fn path(above: &str, id: RecordId) -> String {
    format!("{above}{:0PATH_DIGITS$}", id.0)
}

fn state(name: String) -> Result<RecordState, LedgerError> {
    RecordState::from_name(&name).ok_or_else(|| LedgerError::Damaged(format!("unknown state \"{name}\"")))
}

fn json<T: serde::de::DeserializeOwned>(row: &AnyRow, column: usize) -> Result<T, LedgerError> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|e| LedgerError::Damaged(format!("a record: {e}")))
}

impl RecordContent {
    /// Reads the columns of a version, which begin at column `at`.
    pub(super) fn of(row: &AnyRow, at: usize) -> Result<Self, LedgerError> {
        let related: Vec<i64> = json(row, at + 8)?;
        let metadata: Map<String, Value> = json(row, at + 9)?;
        Ok(Self {
            kind: row.try_get(at + 2)?,
            title: row.try_get(at + 3)?,
            summary: row.try_get(at + 4)?,
            body: row.try_get(at + 5)?,
            state: state(row.try_get(at + 6)?)?,
            resolved_by: row.try_get::<Option<i64>, _>(at + 7)?.map(RecordId),
            related: related.into_iter().map(RecordId).collect(),
            metadata,
            citations: json(row, at + 10)?,
        })
    }
}

impl Record {
    /// Reads a row of [`REF`] and [`VERSION`] columns.
    pub(super) fn of(row: &AnyRow) -> Result<Self, LedgerError> {
        Ok(Self {
            now: RecordRef::of(row)?,
            version: row.try_get(REF_COLUMNS)?,
            at_ns: row.try_get(REF_COLUMNS + 1)?,
            content: RecordContent::of(row, REF_COLUMNS)?,
        })
    }
}

/// Joins constants into a statement. Nothing else may be passed: the text is not checked.
macro_rules! sql {
    ($($part:expr),* $(,)?) => { sqlx::AssertSqlSafe([$($part),*].concat()) };
}
pub(super) use sql;

/// Returns a record's reference, if the record exists.
pub(super) async fn find(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
) -> Result<Option<RecordRef>, LedgerError> {
    let row = select(sql!("SELECT ", REF, " FROM records r WHERE r.book = $1 AND r.number = $2"))
        .bind(collection.id)
        .bind(id.0)
        .fetch_optional(on.conn())
        .await?;
    row.as_ref().map(RecordRef::of).transpose()
}

/// Returns a record's reference.
///
/// # Errors
/// There is no such record, or the ledger failed.
pub async fn require(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
) -> Result<RecordRef, RecordError> {
    find(on, collection, id).await?.ok_or_else(|| RecordError::NotFound(id.to_string()))
}

/// Returns a whole record in a version; `None` for its newest.
///
/// # Errors
/// There is no such record or version, or the ledger failed.
pub async fn full(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
    version: Option<i64>,
) -> Result<Record, RecordError> {
    // Versions count from 1, so 0 can stand for the newest.
    let row = select(sql!(
        "SELECT ",
        REF,
        ", ",
        VERSION,
        " FROM records r JOIN record_versions v
         ON v.book = r.book AND v.number = r.number AND v.version = CASE $3 WHEN 0 THEN r.version ELSE $3 END
         WHERE r.book = $1 AND r.number = $2",
    ))
    .bind(collection.id)
    .bind(id.0)
    .bind(version.unwrap_or(0))
    .fetch_optional(on.conn())
    .await?;
    match row {
        Some(row) => Ok(Record::of(&row)?),
        None => {
            // An unknown record is another error than an unknown version.
            require(on, collection, id).await?;
            let wanted = format!("version {}", version.unwrap_or(0));
            Err(RecordError::NoVersion { id, wanted })
        }
    }
}
