//! A project's collection of records: the last number, and how many records are in each state.
//!
//! Every write updates the totals, so that the records of a large project need not be counted. The tables call a
//! collection `book`.

use serde::Serialize;
use sqlx::Row;

use super::RecordState;
use crate::ledger::statement::{Key, change, select};
use crate::ledger::{LedgerConnection, LedgerError, Write, project};

/// A project's collection of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordCollection {
    /// Its key in the tables; 0 until it is created.
    pub(crate) id: i64,
    /// The project.
    pub project: String,
    /// How many records it has.
    pub totals: Totals,
}

/// How many records there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// All of them. It is also the number of the newest, because records are never removed.
    pub records: i64,
    /// Records without a parent.
    pub roots: i64,
    /// Being worked on.
    pub open: i64,
    /// Postponed.
    pub later: i64,
    /// Answered.
    pub resolved: i64,
    /// Given up.
    pub discarded: i64,
}

impl Totals {
    fn of(&mut self, state: RecordState) -> &mut i64 {
        match state {
            RecordState::Open => &mut self.open,
            RecordState::Later => &mut self.later,
            RecordState::Resolved => &mut self.resolved,
            RecordState::Discarded => &mut self.discarded,
        }
    }

    pub(super) fn count_created(&mut self, state: RecordState, root: bool) {
        self.records += 1;
        self.roots += i64::from(root);
        *self.of(state) += 1;
    }

    pub(super) fn count_transition(&mut self, from: RecordState, to: RecordState) {
        *self.of(from) -= 1;
        *self.of(to) += 1;
    }
}

/// Reads a project's collection; one that was never written to is empty.
///
/// # Errors
/// The ledger failed.
pub async fn open(on: &mut impl LedgerConnection, project: &str) -> Result<RecordCollection, LedgerError> {
    let row = select(
        "SELECT id, last, roots, open, later, resolved, discarded FROM record_books WHERE project_id = $1",
    )
    .bind(project)
    .fetch_optional(on.conn())
    .await?;
    // Reading creates nothing: a project without records has no row.
    let mut collection = RecordCollection { id: 0, project: project.to_owned(), totals: Totals::default() };
    if let Some(row) = row {
        collection.id = row.try_get(0)?;
        collection.totals = Totals {
            records: row.try_get(1)?,
            roots: row.try_get(2)?,
            open: row.try_get(3)?,
            later: row.try_get(4)?,
            resolved: row.try_get(5)?,
            discarded: row.try_get(6)?,
        };
    }
    Ok(collection)
}

/// Reads a project's collection for writing, and creates it if needed.
pub(super) async fn begin(write: &mut Write, project: &str) -> Result<RecordCollection, LedgerError> {
    let mut collection = open(write, project).await?;
    if collection.id == 0 {
        project::ensure(write, project).await?;
        let row = change(
            "INSERT INTO record_books (project_id, last, roots, open, later, resolved, discarded)
             VALUES ($1, 0, 0, 0, 0, 0, 0) RETURNING id",
        )
        .bind(Key::known(project))
        .fetch_one(write)
        .await?;
        collection.id = row.try_get(0)?;
    }
    Ok(collection)
}

/// Stores the totals.
pub(super) async fn update(write: &mut Write, collection: &RecordCollection) -> Result<(), LedgerError> {
    // Set to what was counted here and not incremented in SQL: no other writer can have changed them since they were
    // read.
    let totals = &collection.totals;
    change(
        "UPDATE record_books SET last = $2, roots = $3, open = $4, later = $5, resolved = $6, discarded = $7
         WHERE id = $1",
    )
    .bind(collection.id)
    .bind(totals.records)
    .bind(totals.roots)
    .bind(totals.open)
    .bind(totals.later)
    .bind(totals.resolved)
    .bind(totals.discarded)
    .execute(write)
    .await?;
    Ok(())
}
