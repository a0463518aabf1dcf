//! Revisions: the states of files in order, and changes that were intended.
//!
//! A change is first a pending revision, which is committed before the file is touched. Afterwards it is done, failed,
//! or changed by someone else. Only done revisions are states that a file had. A workspace that moved stays one
//! workspace: its files' revisions are found under all roots that it had.

use serde::Serialize;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::blob::{self, Hash};
use super::names::{name_of, value_of};
use super::statement::{change, select};
use super::{LedgerConnection, LedgerError, Write, moves};

/// Completes a query for revisions.
macro_rules! revisions {
    ($rest:literal) => {
        concat!(
            "SELECT id, workspace, path, event_id, source, state, before_hash, after_hash, size, lines, added, \
             removed, mode FROM revisions ",
            $rest
        )
    };
}

mod history;

pub(crate) use history::{as_of, count, first, first_after, latest, paths};
pub use history::{page, pending};

/// How the ledger knows a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RevisionSource {
    /// Scrubjay made the change.
    Enforced,
    /// An agent reported the change.
    Reported,
    /// It was found in the file.
    Observed,
}

/// The state of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RevisionState {
    /// Intended; whether it happened is not known.
    Pending,
    /// It happened.
    Done,
    /// It did not happen.
    Failed,
    /// Whether it happened cannot be known, because someone else changed the file since.
    Changed,
}

const SOURCES: [(RevisionSource, &str); 3] = [
    (RevisionSource::Enforced, "enforced"),
    (RevisionSource::Reported, "reported"),
    (RevisionSource::Observed, "observed"),
];
const STATES: [(RevisionState, &str); 4] = [
    (RevisionState::Pending, "pending"),
    (RevisionState::Done, "done"),
    (RevisionState::Failed, "failed"),
    (RevisionState::Changed, "changed"),
];

fn read_name<T: Copy>(names: &[(T, &'static str)], name: &str) -> Result<T, LedgerError> {
    value_of(names, name)
        .ok_or_else(|| LedgerError::Damaged(format!("unknown word \"{name}\" in a revision")))
}

impl RevisionSource {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&SOURCES, &self)
    }
}

impl RevisionState {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&STATES, &self)
    }
}

/// One state of one file, or an intended change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Its number.
    pub id: i64,
    /// The root of the workspace.
    pub workspace: String,
    /// The path in it.
    pub path: String,
    /// The event that records it.
    pub event_id: i64,
    /// How the ledger knows it.
    pub source: RevisionSource,
    /// Whether it happened.
    pub state: RevisionState,
    /// The content before; `None` if there was no file.
    pub before: Option<Hash>,
    /// The content after; `None` if the file was deleted.
    pub after: Option<Hash>,
    /// The size of the content after, in bytes.
    pub size: i64,
    /// The number of its lines.
    pub lines: i64,
    /// How many lines were added.
    pub added: i64,
    /// How many were removed.
    pub removed: i64,
    /// The permission bits of the file.
    pub mode: Option<i64>,
}

impl Revision {
    fn of(row: &AnyRow) -> Result<Self, LedgerError> {
        let hash = |bytes: Option<Vec<u8>>| bytes.map(blob::from_column).transpose();
        let (source, state): (String, String) = (row.try_get(4)?, row.try_get(5)?);
        Ok(Self {
            id: row.try_get(0)?,
            workspace: row.try_get(1)?,
            path: row.try_get(2)?,
            event_id: row.try_get(3)?,
            source: read_name(&SOURCES, &source)?,
            state: read_name(&STATES, &state)?,
            before: hash(row.try_get(6)?)?,
            after: hash(row.try_get(7)?)?,
            size: row.try_get(8)?,
            lines: row.try_get(9)?,
            added: row.try_get(10)?,
            removed: row.try_get(11)?,
            mode: row.try_get(12)?,
        })
    }
}

/// Adds a revision, ignoring its `id`; returns the id it got.
///
/// # Errors
/// The ledger failed.
pub async fn insert(write: &mut Write, revision: &Revision) -> Result<i64, LedgerError> {
    let row = change(
        "INSERT INTO revisions (workspace, path, event_id, source, state, before_hash, after_hash, size, lines,
             added, removed, mode) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id",
    )
    // The redactor changes neither: `Files::secret_in` refused paths with secrets, which could not be found again.
    .bind(write.clean(&revision.workspace))
    .bind(write.clean(&revision.path))
    .bind(revision.event_id)
    .bind(revision.source.name())
    .bind(revision.state.name())
    .bind(revision.before)
    .bind(revision.after)
    .bind(revision.size)
    .bind(revision.lines)
    .bind(revision.added)
    .bind(revision.removed)
    .bind(revision.mode)
    .fetch_one(write)
    .await?;
    Ok(row.try_get(0)?)
}

/// Sets the final state of a pending revision. One that is not pending keeps its state: it was settled meanwhile.
pub(crate) async fn conclude(write: &mut Write, id: i64, state: RevisionState) -> Result<(), LedgerError> {
    change("UPDATE revisions SET state = $2 WHERE id = $1 AND state = 'pending'")
        .bind(id)
        .bind(state.name())
        .execute(write)
        .await?;
    Ok(())
}

/// Returns a revision of any file.
pub(crate) async fn get(on: &mut impl LedgerConnection, id: i64) -> Result<Option<Revision>, LedgerError> {
    let row = select(revisions!("WHERE id = $1")).bind(id).fetch_optional(on.conn()).await?;
    row.as_ref().map(Revision::of).transpose()
}

/// Returns the revisions of a session's events, after one event and up to another.
pub(crate) async fn of_events(
    on: &mut impl LedgerConnection,
    session: &str,
    after: i64,
    up_to: i64,
) -> Result<Vec<Revision>, LedgerError> {
    // In no order: callers look revisions up by their event.
    let rows = select(
        "SELECT r.id, r.workspace, r.path, r.event_id, r.source, r.state, r.before_hash, r.after_hash, r.size,
             r.lines, r.added, r.removed, r.mode FROM revisions r JOIN events e ON e.id = r.event_id
         WHERE e.session_id = $1 AND e.id > $2 AND e.id <= $3",
    )
    .bind(session)
    .bind(after)
    .bind(up_to)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(Revision::of).collect()
}

/// A file that a session changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TouchedFile {
    /// The root of the workspace.
    pub(crate) workspace: String,
    /// The path in it.
    pub(crate) path: String,
    /// The first revision the session made of it.
    pub(crate) first: i64,
    /// The last.
    pub(crate) last: i64,
    /// How many revisions the session made.
    pub(crate) revisions: i64,
    /// How many lines it added.
    pub(crate) added: i64,
    /// How many it removed.
    pub(crate) removed: i64,
}

/// Returns the files a session changed, by path.
pub(crate) async fn touched(
    on: &mut impl LedgerConnection,
    session: &str,
) -> Result<Vec<TouchedFile>, LedgerError> {
    // CAST, because PostgreSQL's sum of BIGINTs is a NUMERIC, for which sqlx::Any has no type.
    let rows = select(
        "SELECT r.workspace, r.path, min(r.id), max(r.id), count(*), CAST(sum(r.added) AS BIGINT),
             CAST(sum(r.removed) AS BIGINT) FROM events e JOIN revisions r ON r.event_id = e.id
         WHERE e.session_id = $1 AND r.state = 'done' GROUP BY r.workspace, r.path ORDER BY r.workspace, r.path",
    )
    .bind(session)
    .fetch_all(on.conn())
    .await?;
    let touched = rows.iter().map(|row| {
        Ok(TouchedFile {
            workspace: row.try_get(0)?,
            path: row.try_get(1)?,
            first: row.try_get(2)?,
            last: row.try_get(3)?,
            revisions: row.try_get(4)?,
            added: row.try_get(5)?,
            removed: row.try_get(6)?,
        })
    });
    touched.collect()
}

/// Returns the workspaces in which a session left pending changes.
///
/// # Errors
/// The ledger failed.
pub async fn unsettled(on: &mut impl LedgerConnection, session: &str) -> Result<Vec<String>, LedgerError> {
    let rows = select(
        "SELECT r.workspace, max(r.id) FROM revisions r JOIN events e ON e.id = r.event_id
         WHERE r.state = 'pending' AND e.session_id = $1 GROUP BY r.workspace ORDER BY r.workspace",
    )
    .bind(session)
    .fetch_all(on.conn())
    .await?;
    let mut roots = Vec::new();
    for row in &rows {
        roots.push(moves::current_root(on, &row.try_get::<String, _>(0)?, row.try_get(1)?).await?);
    }
    // Two old roots may have become one.
    roots.dedup();
    Ok(roots)
}
