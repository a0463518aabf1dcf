//! One file's revisions, under all the roots its workspace had.

use sqlx::Row;

use super::Revision;
use crate::ledger::statement::select;
use crate::ledger::{Conn, LedgerError, moves};

/// Returns the last known state of a file.
pub(crate) async fn latest(
    on: &mut impl Conn,
    workspace: &str,
    path: &str,
) -> Result<Option<Revision>, LedgerError> {
    as_of(on, workspace, path, i64::MAX).await
}

/// Returns the last state of a file up to an event.
pub(crate) async fn as_of(
    on: &mut impl Conn,
    workspace: &str,
    path: &str,
    event: i64,
) -> Result<Option<Revision>, LedgerError> {
    let mut last: Option<Revision> = None;
    for place in moves::roots(on, workspace).await? {
        let row = select(select!(
            "WHERE workspace = $1 AND path = $2 AND state = 'done' AND event_id <= $3 AND id <= $4
             ORDER BY id DESC LIMIT 1"
        ))
        .bind(&place.root)
        .bind(path)
        .bind(event)
        .bind(place.up_to)
        .fetch_optional(on.conn())
        .await?;
        let found = row.as_ref().map(Revision::of).transpose()?;
        last = last.into_iter().chain(found).max_by_key(|revision| revision.id);
    }
    Ok(last)
}

/// Returns the first known state of a file.
///
/// # Errors
/// The ledger failed.
pub async fn first(on: &mut impl Conn, workspace: &str, path: &str) -> Result<Option<Revision>, LedgerError> {
    first_after(on, workspace, path, 0).await
}

/// Returns the first state of a file after a revision.
pub(crate) async fn first_after(
    on: &mut impl Conn,
    workspace: &str,
    path: &str,
    after: i64,
) -> Result<Option<Revision>, LedgerError> {
    let mut first: Option<Revision> = None;
    for place in moves::roots(on, workspace).await? {
        let row = select(select!(
            "WHERE workspace = $1 AND path = $2 AND state = 'done' AND id > $3 AND id <= $4 ORDER BY id LIMIT 1"
        ))
        .bind(&place.root)
        .bind(path)
        .bind(after)
        .bind(place.up_to)
        .fetch_optional(on.conn())
        .await?;
        let found = row.as_ref().map(Revision::of).transpose()?;
        first = first.into_iter().chain(found).min_by_key(|revision| revision.id);
    }
    Ok(first)
}

/// Returns a page of a file's revisions in order.
///
/// # Errors
/// The ledger failed.
pub async fn page(
    on: &mut impl Conn,
    workspace: &str,
    path: &str,
    after: i64,
    limit: i64,
) -> Result<Vec<Revision>, LedgerError> {
    let mut page: Vec<Revision> = Vec::new();
    for place in moves::roots(on, workspace).await? {
        let rows = select(select!(
            "WHERE workspace = $1 AND path = $2 AND id > $3 AND id <= $4 ORDER BY id LIMIT $5"
        ))
        .bind(&place.root)
        .bind(path)
        .bind(after)
        .bind(place.up_to)
        .bind(limit)
        .fetch_all(on.conn())
        .await?;
        page.extend(rows.iter().map(Revision::of).collect::<Result<Vec<_>, _>>()?);
    }
    page.sort_by_key(|revision| revision.id);
    page.truncate(usize::try_from(limit).unwrap_or(0));
    Ok(page)
}

/// Returns the paths of a workspace's recorded files, `limit` for each of its roots.
pub(crate) async fn paths(
    on: &mut impl Conn,
    workspace: &str,
    limit: i64,
) -> Result<Vec<String>, LedgerError> {
    let mut paths = std::collections::BTreeSet::new();
    for place in moves::roots(on, workspace).await? {
        let rows = select(
            "SELECT DISTINCT path FROM revisions WHERE workspace = $1 AND id <= $2 AND state = 'done'
             ORDER BY path LIMIT $3",
        )
        .bind(&place.root)
        .bind(place.up_to)
        .bind(limit)
        .fetch_all(on.conn())
        .await?;
        for row in &rows {
            paths.insert(row.try_get(0)?);
        }
    }
    Ok(paths.into_iter().collect())
}

/// Returns how many revisions a file has.
///
/// # Errors
/// The ledger failed.
pub async fn count(on: &mut impl Conn, workspace: &str, path: &str) -> Result<i64, LedgerError> {
    let mut total = 0;
    for place in moves::roots(on, workspace).await? {
        let row = select("SELECT count(*) FROM revisions WHERE workspace = $1 AND path = $2 AND id <= $3")
            .bind(&place.root)
            .bind(path)
            .bind(place.up_to)
            .fetch_one(on.conn())
            .await?;
        total += row.try_get::<i64, _>(0)?;
    }
    Ok(total)
}

/// Returns the pending changes of a workspace, of one file or of all.
///
/// # Errors
/// The ledger failed.
pub async fn pending(
    on: &mut impl Conn,
    workspace: &str,
    path: Option<&str>,
) -> Result<Vec<Revision>, LedgerError> {
    let mut pending: Vec<Revision> = Vec::new();
    for place in moves::roots(on, workspace).await? {
        let rows = select(select!(
            "WHERE state = 'pending' AND workspace = $1 AND id <= $2 AND ($3 = '' OR path = $3) ORDER BY id"
        ))
        .bind(&place.root)
        .bind(place.up_to)
        .bind(path.unwrap_or_default())
        .fetch_all(on.conn())
        .await?;
        pending.extend(rows.iter().map(Revision::of).collect::<Result<Vec<_>, _>>()?);
    }
    pending.sort_by_key(|revision| revision.id);
    Ok(pending)
}
