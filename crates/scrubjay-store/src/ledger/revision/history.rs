//! One file's revisions, under all the roots its workspace had.

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, Row};

use super::Revision;
use crate::ledger::moves::{self, WorkspaceRoot};
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError};

/// Returns the last known state of a file.
pub(crate) async fn latest(
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: &str,
) -> Result<Option<Revision>, LedgerError> {
    as_of(on, workspace, path, i64::MAX).await
}

/// Returns the last state of a file up to an event.
pub(crate) async fn as_of(
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: &str,
    event: i64,
) -> Result<Option<Revision>, LedgerError> {
    let last_of_root = |root: &WorkspaceRoot| {
        select(revisions!(
            "WHERE workspace = $1 AND path = $2 AND state = 'done' AND event_id <= $3 AND id <= $4
             ORDER BY id DESC LIMIT 1"
        ))
        .bind(root.root.clone())
        .bind(path.to_owned())
        .bind(event)
        .bind(root.up_to)
    };
    // One of each root at most: the last of these is the file's state.
    Ok(of_all_roots(on, workspace, last_of_root).await?.pop())
}

/// Returns the first known state of a file.
pub(crate) async fn first(
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: &str,
) -> Result<Option<Revision>, LedgerError> {
    first_after(on, workspace, path, 0).await
}

/// Returns the first state of a file after a revision.
pub(crate) async fn first_after(
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: &str,
    after: i64,
) -> Result<Option<Revision>, LedgerError> {
    let first_of_root = |root: &WorkspaceRoot| {
        select(revisions!(
            "WHERE workspace = $1 AND path = $2 AND state = 'done' AND id > $3 AND id <= $4 ORDER BY id LIMIT 1"
        ))
        .bind(root.root.clone())
        .bind(path.to_owned())
        .bind(after)
        .bind(root.up_to)
    };
    Ok(of_all_roots(on, workspace, first_of_root).await?.into_iter().next())
}

/// Returns a page of a file's revisions in order.
///
/// # Errors
/// The ledger failed.
pub async fn page(
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: &str,
    after: i64,
    limit: i64,
) -> Result<Vec<Revision>, LedgerError> {
    let page_of_root = |root: &WorkspaceRoot| {
        select(revisions!("WHERE workspace = $1 AND path = $2 AND id > $3 AND id <= $4 ORDER BY id LIMIT $5"))
            .bind(root.root.clone())
            .bind(path.to_owned())
            .bind(after)
            .bind(root.up_to)
            .bind(limit)
    };
    // Each root may give a whole page, of which the first revisions are the page of all roots.
    let mut page = of_all_roots(on, workspace, page_of_root).await?;
    page.truncate(usize::try_from(limit).unwrap_or(0));
    Ok(page)
}

/// Returns the paths of a workspace's recorded files, `limit` for each of its roots.
pub(crate) async fn paths(
    on: &mut impl LedgerConnection,
    workspace: &str,
    limit: i64,
) -> Result<Vec<String>, LedgerError> {
    // A set, because a path may be recorded under several roots.
    let mut paths = std::collections::BTreeSet::new();
    for root in moves::roots(on, workspace).await? {
        let rows = select(
            "SELECT DISTINCT path FROM revisions WHERE workspace = $1 AND id <= $2 AND state = 'done'
             ORDER BY path LIMIT $3",
        )
        .bind(&root.root)
        .bind(root.up_to)
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
pub(crate) async fn count(
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: &str,
) -> Result<i64, LedgerError> {
    let mut total = 0;
    for root in moves::roots(on, workspace).await? {
        let row = select("SELECT count(*) FROM revisions WHERE workspace = $1 AND path = $2 AND id <= $3")
            .bind(&root.root)
            .bind(path)
            .bind(root.up_to)
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
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: Option<&str>,
) -> Result<Vec<Revision>, LedgerError> {
    let pending_of_root = |root: &WorkspaceRoot| {
        // The state is in the text and not bound: a plan for any state, which PostgreSQL makes of a statement after
        // some executions, cannot use the partial index `revisions_pending`. An empty path stands for all, because no
        // file has it.
        select(revisions!(
            "WHERE state = 'pending' AND workspace = $1 AND id <= $2 AND ($3 = '' OR path = $3) ORDER BY id"
        ))
        .bind(root.root.clone())
        .bind(root.up_to)
        .bind(path.unwrap_or_default().to_owned())
    };
    of_all_roots(on, workspace, pending_of_root).await
}

/// Runs a statement for each root that the workspace had; returns the revisions in order.
async fn of_all_roots(
    on: &mut impl LedgerConnection,
    workspace: &str,
    statement: impl Fn(&WorkspaceRoot) -> Query<'static, Any, AnyArguments>,
) -> Result<Vec<Revision>, LedgerError> {
    let mut found = Vec::new();
    for root in moves::roots(on, workspace).await? {
        for row in &statement(&root).fetch_all(on.conn()).await? {
            found.push(Revision::of(row)?);
        }
    }
    // Roots come newest first, and a workspace that came back has revisions under one root before and after another.
    found.sort_by_key(|revision| revision.id);
    Ok(found)
}
