//! The context of a record: its parent and its open children as whole records, other relatives as references.

use sqlx::Row;

use super::collection::RecordCollection;
use super::row::{REF, VERSION, sql};
use super::{Record, RecordError, RecordId, RecordRef, RecordState, listing, row};
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError};

/// The most open children that are included as whole records: more would fill a model's context.
const OPEN_CHILDREN_MAX: i64 = 50;
/// The most references of each kind that are included.
const REFS_MAX: i64 = 100;

/// A record with its relatives.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The record.
    pub target: Record,
    /// Its parent.
    pub parent: Option<Record>,
    /// Its first open children.
    pub open: Vec<Record>,
    /// Its first other children.
    pub other: Vec<RecordRef>,
    /// Its first grandchildren.
    pub grandchildren: Vec<RecordRef>,
    /// How many grandchildren there are.
    pub grandchildren_total: i64,
}

/// Loads a record with its context.
///
/// # Errors
/// There is no such record, or the ledger failed.
pub async fn load(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
) -> Result<Bundle, RecordError> {
    let target = row::full(on, collection, id, None).await?;
    let parent = match target.now.parent {
        Some(parent) => Some(row::full(on, collection, parent, None).await?),
        None => None,
    };
    let mut bundle =
        Bundle { target, parent, open: vec![], other: vec![], grandchildren: vec![], grandchildren_total: 0 };
    // The record's own counts save queries that would return nothing.
    if bundle.target.now.open_children > 0 {
        bundle.open = open_children(on, collection, id).await?;
    }
    if bundle.target.now.children > bundle.target.now.open_children {
        bundle.other = listing::children(on, collection, id, None, REFS_MAX).await?;
    }
    if bundle.target.now.children > 0 {
        (bundle.grandchildren, bundle.grandchildren_total) = grandchildren(on, collection, id).await?;
    }
    Ok(bundle)
}

async fn open_children(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
) -> Result<Vec<Record>, LedgerError> {
    let rows = select(sql!(
        "SELECT ",
        REF,
        ", ",
        VERSION,
        " FROM records r JOIN record_versions v
         ON v.book = r.book AND v.number = r.number AND v.version = r.version
         WHERE r.book = $1 AND r.parent = $2 AND r.state = $3 ORDER BY r.number LIMIT $4",
    ))
    .bind(collection.id)
    .bind(id.0)
    .bind(RecordState::Open.name())
    .bind(OPEN_CHILDREN_MAX)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(Record::of).collect()
}

async fn grandchildren(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
) -> Result<(Vec<RecordRef>, i64), LedgerError> {
    // Summed from the counts of the children: each record stores its own, so grandchildren need not be counted.
    let total = select(
        "SELECT CAST(coalesce(sum(children), 0) AS BIGINT) FROM records WHERE book = $1 AND parent = $2",
    )
    .bind(collection.id)
    .bind(id.0)
    .fetch_one(on.conn())
    .await?
    .try_get(0)?;
    // `IN` and not a join, for which SQLite reads the index of the whole book in the order of the result.
    let rows = select(sql!(
        "SELECT ",
        REF,
        " FROM records r WHERE r.book = $1
         AND r.parent IN (SELECT c.number FROM records c WHERE c.book = $1 AND c.parent = $2)
         ORDER BY r.parent, r.number LIMIT $3",
    ))
    .bind(collection.id)
    .bind(id.0)
    .bind(REFS_MAX)
    .fetch_all(on.conn())
    .await?;
    Ok((rows.iter().map(RecordRef::of).collect::<Result<_, _>>()?, total))
}

/// Returns the first siblings of a record, and how many there are.
///
/// # Errors
/// The ledger failed.
pub async fn siblings(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    target: &RecordRef,
) -> Result<(Vec<RecordRef>, i64), LedgerError> {
    let rows = select(sql!(
        "SELECT ",
        REF,
        " FROM records r WHERE r.book = $1 AND r.parent = $2 AND r.number <> $3
         ORDER BY r.number LIMIT $4",
    ))
    .bind(collection.id)
    .bind(target.parent.map_or(0, |p| p.0))
    .bind(target.id.0)
    .bind(REFS_MAX)
    .fetch_all(on.conn())
    .await?;
    let total = match target.parent {
        Some(parent) => row::find(on, collection, parent).await?.map_or(0, |p| p.children),
        None => collection.totals.roots,
    };
    // Without the record itself.
    Ok((rows.iter().map(RecordRef::of).collect::<Result<_, _>>()?, total - 1))
}
