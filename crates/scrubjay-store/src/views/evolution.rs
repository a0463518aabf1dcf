//! The evolution: which files a session changed, and each file's revisions with what changed in them.

use scrubjay_core::diff;
use serde::Serialize;
use sqlx::Row;

use super::{SessionView, ViewError, iso};
use crate::ledger::blob::{self, Hash, hex};
use crate::ledger::revision::{self, Revision, Source, State};
use crate::ledger::session::Session;
use crate::ledger::{Conn, LedgerError};

/// The files a session changed.
#[derive(Clone, Debug, Serialize)]
pub struct Files {
    /// The session.
    pub session: SessionView,
    /// The files.
    pub files: Vec<FileView>,
}

/// What is shown of a changed file.
#[derive(Clone, Debug, Serialize)]
pub struct FileView {
    /// The path in the workspace.
    pub path: String,
    /// The root of the workspace.
    pub workspace: String,
    /// How many revisions the session made or found.
    pub revisions: i64,
    /// How many lines came.
    pub added: i64,
    /// How many went.
    pub removed: i64,
}

/// A page of a file's revisions.
#[derive(Clone, Debug, Serialize)]
pub struct Evolution {
    /// The path in the workspace.
    pub path: String,
    /// The root of the workspace.
    pub workspace: String,
    /// Its revisions, of this session and of others.
    pub revisions: Vec<RevisionView>,
    /// The revision after which the next page begins; none where this is the last.
    pub next_after: Option<i64>,
    /// How many there are in all.
    pub total: i64,
}

/// What is shown of a revision.
#[derive(Clone, Debug, Serialize)]
pub struct RevisionView {
    /// Its number.
    pub id: i64,
    /// The event that tells of it.
    pub event_id: i64,
    /// When.
    pub at: String,
    /// In which session.
    pub session_id: String,
    /// The plan step it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Whether we made it, an agent says it did, or we found it.
    pub source: Source,
    /// Whether it happened.
    pub state: State,
    /// The hash of the content; none where the file was deleted.
    pub hash: Option<String>,
    /// The hash of what was there before.
    pub before_hash: Option<String>,
    /// How many bytes.
    pub size: i64,
    /// How many lines.
    pub lines: i64,
    /// How many lines came.
    pub added: i64,
    /// How many went.
    pub removed: i64,
    /// What changed, as a unified diff.
    pub diff: String,
}

/// Lists the files a session changed.
///
/// # Errors
/// The ledger failed.
pub async fn files(on: &mut impl Conn, session: &Session) -> Result<Files, LedgerError> {
    let touched = revision::touched(on, &session.id).await?;
    let files = touched.into_iter().map(|t| FileView {
        path: t.path,
        workspace: t.workspace,
        revisions: t.revisions,
        added: t.added,
        removed: t.removed,
    });
    Ok(Files { session: SessionView::new(session), files: files.collect() })
}

/// Reads a page of the revisions of a file that a session changed.
///
/// # Errors
/// The session changed no such file, or the ledger failed.
pub async fn read(
    on: &mut impl Conn,
    session: &Session,
    path: &str,
    after: i64,
    limit: i64,
) -> Result<Evolution, ViewError> {
    let touched = revision::touched(on, &session.id).await?;
    let file = touched
        .into_iter()
        .find(|t| t.path == path)
        .ok_or_else(|| ViewError::NoFile(session.id.clone(), path.to_owned()))?;
    let limit = limit.clamp(1, super::PAGE_MAX);
    let revisions = revision::page(on, &file.workspace, path, after, limit).await?;
    let total = revision::count(on, &file.workspace, path).await?;
    let next_after = (revisions.len() as i64 == limit).then(|| revisions.last().map(|r| r.id)).flatten();
    let mut views = Vec::with_capacity(revisions.len());
    let mut seen = Seen::default();
    for revision in revisions {
        views.push(view(on, revision, &mut seen).await?);
    }
    Ok(Evolution { path: file.path, workspace: file.workspace, revisions: views, next_after, total })
}

/// The content looked at last: one revision's after is mostly the next one's before.
#[derive(Default)]
struct Seen(Option<(Hash, Vec<u8>)>);

impl Seen {
    async fn content(&mut self, on: &mut impl Conn, hash: Option<Hash>) -> Result<Vec<u8>, LedgerError> {
        let Some(hash) = hash else { return Ok(Vec::new()) };
        if let Some((seen, bytes)) = &self.0
            && *seen == hash
        {
            return Ok(bytes.clone());
        }
        blob::get(on, &hash).await
    }
}

async fn view(on: &mut impl Conn, revision: Revision, seen: &mut Seen) -> Result<RevisionView, LedgerError> {
    let before = seen.content(on, revision.before).await?;
    let after = seen.content(on, revision.after).await?;
    let name = |there: bool, side: &str| match there {
        true => format!("{side}/{}", revision.path),
        false => "/dev/null".to_owned(),
    };
    let diff = diff::unified(
        &before,
        &after,
        &name(revision.before.is_some(), "a"),
        &name(revision.after.is_some(), "b"),
    );
    if let Some(hash) = revision.after {
        seen.0 = Some((hash, after));
    }
    let row = sqlx::query(
        "SELECT e.at_ns, e.session_id, p.text FROM events e LEFT JOIN plan_steps p ON p.id = e.step
         WHERE e.id = $1",
    )
    .bind(revision.event_id)
    .fetch_one(on.conn())
    .await?;
    Ok(RevisionView {
        id: revision.id,
        event_id: revision.event_id,
        at: iso(row.try_get(0)?),
        session_id: row.try_get(1)?,
        step: row.try_get(2)?,
        source: revision.source,
        state: revision.state,
        hash: revision.after.as_ref().map(hex),
        before_hash: revision.before.as_ref().map(hex),
        size: revision.size,
        lines: revision.lines,
        added: revision.added,
        removed: revision.removed,
        diff,
    })
}
