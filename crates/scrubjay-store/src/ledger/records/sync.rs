//! Sync: what other sessions wrote since a session last synced, and how much of it concerns records near its own.

use sqlx::Row;

use super::history::{VERSION_ORIGIN, Version};
use super::row::{VERSION, VERSION_COLUMNS, sql};
use super::scope::Scope;
use super::{RecordContent, RecordError, RecordId, row};
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError, Write, project, session};

/// The most changes that one sync returns. The next one continues behind them.
const CHANGES_MAX: i64 = 100;
/// A sync ends after the change with which its texts exceed this size, because all of them are in one answer.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// The result of a sync.
#[derive(Clone, Debug)]
pub struct SyncResult {
    /// The project's tick.
    pub tick: i64,
    /// The tick up to which the session had synced before.
    pub before: i64,
    /// The tick up to which it has synced now; less than the project's tick if there is more.
    pub seen: i64,
    /// The changes, in order.
    pub changes: Vec<ForeignChange>,
    /// How many changes other sessions made since.
    pub total: i64,
    /// How near the changed records are to the session's.
    pub nearness: Nearness,
}

/// A change that another session made.
#[derive(Clone, Debug)]
pub struct ForeignChange {
    /// The record.
    pub id: RecordId,
    /// The new version.
    pub version: Version,
    /// The content before; `None` if the record is new.
    pub old: Option<RecordContent>,
}

/// How many changes concern records near a session's active ones; each change is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nearness {
    /// Changes of active records.
    pub active: i64,
    /// Changes of their parents.
    pub parents: i64,
    /// Changes of their children.
    pub children: i64,
    /// Changes of other records.
    pub elsewhere: i64,
}

/// Returns what other sessions wrote, and notes that this session has seen it.
///
/// # Errors
/// The ledger failed.
pub async fn sync(write: &mut Write, scope: &mut Scope) -> Result<SyncResult, RecordError> {
    let tick = project::get(write, &scope.collection.project).await?.map_or(0, |p| p.tick);
    let before = scope.session.last_sync_tick;
    let nearness = nearness(write, scope, before).await?;
    let total = nearness.active + nearness.parents + nearness.children + nearness.elsewhere;
    // `write` keeps other writers out until the commit, so no version appears between the count and the page.
    let (changes, whole) = changes(write, scope, before).await?;
    // Every version has a tick of its own, so a page can end behind any of them, and none is skipped or repeated.
    let seen = if whole { tick } else { changes.last().map_or(tick, |change| change.version.tick) };
    scope.session.last_sync_tick = seen;
    session::update(write, &scope.session).await?;
    Ok(SyncResult { tick, before, seen, changes, total, nearness })
}

async fn changes(
    write: &mut Write,
    scope: &Scope,
    before: i64,
) -> Result<(Vec<ForeignChange>, bool), RecordError> {
    let rows = select(sql!(
        "SELECT ",
        VERSION,
        VERSION_ORIGIN,
        ", v.number FROM record_versions v
         WHERE v.book = $1 AND v.tick > $2 AND v.session_id <> $3 ORDER BY v.tick LIMIT $4",
    ))
    .bind(scope.collection.id)
    .bind(before)
    .bind(&scope.session.id)
    // One more than is returned, to know whether others follow.
    .bind(CHANGES_MAX + 1)
    .fetch_all(write.conn())
    .await?;
    let mut changes = Vec::new();
    let mut bytes = 0;
    for row in &rows {
        // Checked before the next change is loaded, so that each sync makes progress.
        if changes.len() as i64 == CHANGES_MAX || bytes > TEXT_BYTES_MAX {
            return Ok((changes, false));
        }
        let (id, version) = (RecordId(row.try_get(VERSION_COLUMNS + 4)?), Version::of(row)?);
        let old = match version.version {
            1 => None,
            n => Some(row::full(write, &scope.collection, id, Some(n - 1)).await?.content),
        };
        bytes += version.content.body.len() + old.as_ref().map_or(0, |old| old.body.len());
        changes.push(ForeignChange { id, version, old });
    }
    Ok((changes, true))
}

async fn nearness(write: &mut Write, scope: &Scope, before: i64) -> Result<Nearness, LedgerError> {
    let rows = select(
        "SELECT near, count(*) FROM (
             SELECT CASE
                 WHEN EXISTS (SELECT 1 FROM record_actives a WHERE a.session_id = $3 AND a.number = v.number)
                     THEN 'active'
                 WHEN EXISTS (SELECT 1 FROM records c JOIN record_actives a
                         ON a.session_id = $3 AND a.number = c.number
                         WHERE c.book = $1 AND c.parent = v.number) THEN 'parent'
                 WHEN EXISTS (SELECT 1 FROM record_actives a WHERE a.session_id = $3 AND a.number = r.parent)
                     THEN 'child'
                 ELSE 'elsewhere' END AS near
             FROM record_versions v JOIN records r ON r.book = v.book AND r.number = v.number
             WHERE v.book = $1 AND v.tick > $2 AND v.session_id <> $3) AS writes
         GROUP BY near",
    )
    .bind(scope.collection.id)
    .bind(before)
    .bind(&scope.session.id)
    .fetch_all(write.conn())
    .await?;
    let mut nearness = Nearness::default();
    for row in &rows {
        let count: i64 = row.try_get(1)?;
        match row.try_get::<String, _>(0)?.as_str() {
            "active" => nearness.active = count,
            "parent" => nearness.parents = count,
            "child" => nearness.children = count,
            _ => nearness.elsewhere = count,
        }
    }
    Ok(nearness)
}
