//! Moves of workspaces: they join the revisions of files before and after their directory was moved.
//!
//! A move applies to the revisions recorded before it: a directory that is created at the old path later is another
//! workspace.

use serde_json::json;
use sqlx::Row;

use super::event::{self, EventKind, NewEvent};
use super::session::{Caller, Session};
use super::statement::{change, select};
use super::{LedgerConnection, LedgerError, Write};

/// The most moves of one workspace that are followed: a limit, so that damaged tables cannot make an endless loop.
const MOVES_MAX: usize = 64;

/// A root under which a workspace's revisions are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceRoot {
    /// The root.
    pub(crate) root: String,
    /// The last revision under this root that belongs to the workspace.
    pub(crate) up_to: i64,
}

/// Returns all roots that a workspace had, the current one first.
pub(crate) async fn roots(
    on: &mut impl LedgerConnection,
    root: &str,
) -> Result<Vec<WorkspaceRoot>, LedgerError> {
    let mut roots = vec![WorkspaceRoot { root: root.to_owned(), up_to: i64::MAX }];
    let mut next = 0;
    while next < roots.len().min(MOVES_MAX) {
        let rows = select(
            "SELECT old_root, up_to FROM workspace_moves WHERE new_root = $1 AND up_to <= $2 ORDER BY id DESC",
        )
        .bind(&roots[next].root)
        .bind(roots[next].up_to)
        .fetch_all(on.conn())
        .await?;
        for row in &rows {
            let (root, up_to): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            match roots.iter_mut().find(|known| known.root == root) {
                // The workspace was there twice: the later stay includes the earlier one's revisions.
                Some(known) => known.up_to = known.up_to.max(up_to),
                None => roots.push(WorkspaceRoot { root, up_to }),
            }
        }
        next += 1;
    }
    Ok(roots)
}

/// Returns the current root of the workspace in which a revision was recorded.
pub(crate) async fn current_root(
    on: &mut impl LedgerConnection,
    root: &str,
    revision: i64,
) -> Result<String, LedgerError> {
    // Only later moves are followed each time, because a workspace may come back to a root that it had before.
    let (mut root, mut revision, mut last) = (root.to_owned(), revision, 0);
    for _ in 0..MOVES_MAX {
        let row = select(
            "SELECT id, new_root, up_to FROM workspace_moves
             WHERE old_root = $1 AND up_to >= $2 AND id > $3 ORDER BY id LIMIT 1",
        )
        .bind(&root)
        .bind(revision)
        .bind(last)
        .fetch_optional(on.conn())
        .await?;
        let Some(row) = row else { break };
        (last, root, revision) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    }
    Ok(root)
}

/// Records that a workspace moved; returns the event's number.
pub(crate) async fn record(
    write: &mut Write,
    session: &Session,
    caller: &Caller,
    old_root: &str,
    new_root: &str,
) -> Result<i64, LedgerError> {
    let event = NewEvent::new(EventKind::WorkspaceMoved, format!("workspace moved: {old_root} → {new_root}"));
    let event = event.about(new_root).with(json!({ "from": old_root, "to": new_root }));
    let event_id = event::append(write, session, caller, event).await?;
    // The move applies to all revisions so far; later ones at the old root belong to another workspace.
    change(
        "INSERT INTO workspace_moves (old_root, new_root, up_to, event_id)
         VALUES ($1, $2, (SELECT coalesce(max(id), 0) FROM revisions), $3)",
    )
    .bind(write.clean(old_root))
    .bind(write.clean(new_root))
    .bind(event_id)
    .execute(write)
    .await?;
    Ok(event_id)
}

/// Returns the workspaces of a project that are not known to have moved, each with the session that last changed a file
/// there.
pub(crate) async fn of_project(
    on: &mut impl LedgerConnection,
    project: &str,
) -> Result<Vec<(String, String)>, LedgerError> {
    let rows = select(
        "SELECT r.workspace, max(r.id) FROM revisions r JOIN events e ON e.id = r.event_id
         WHERE e.project_id = $1 AND r.state = 'done' GROUP BY r.workspace ORDER BY 2 DESC",
    )
    .bind(project)
    .fetch_all(on.conn())
    .await?;
    let mut found = Vec::new();
    for row in &rows {
        let (root, last): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        if current_root(on, &root, last).await? != root {
            continue;
        }
        let session =
            select("SELECT e.session_id FROM revisions r JOIN events e ON e.id = r.event_id WHERE r.id = $1")
                .bind(last)
                .fetch_one(on.conn())
                .await?;
        found.push((root, session.try_get(0)?));
    }
    Ok(found)
}
