//! Catching up: finds tapes that are new, have grown, were sealed or were removed, and updates the tables.

use std::collections::HashMap;
use std::io;

use scrubjay_core::id::TapeId;
use serde::Serialize;
use sqlx::{AnyConnection, AssertSqlSafe, Connection, Executor};
use tokio::sync::mpsc;

use super::clean::{is_unclean, note_unclean};
use super::dialect::{begin_write, maintenance_statements};
use super::fill::IndexWriter;
use super::lease::Lease;
use super::sql::is_one_of;
use super::tape_reading::{IndexStep, OpenTapes, read_all};
use super::{Index, IndexError, int};
use scrubjay_tape::home::{FindError, Home, TapeFile};

/// The most tapes that one statement forgets: its text must stay short enough for SQLite.
const TAPES_MAX: usize = 1000;
/// The most batches that wait to be written while the next is read: one, so that memory stays small.
const BATCHES_MAX: usize = 1;

/// What catching up did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CaughtUp {
    /// Tapes that were read.
    pub tapes: u64,
    /// Entries that are new.
    pub entries: u64,
    /// Entries that were read: the new ones, and earlier ones on which the meaning of the new ones depends.
    pub read: u64,
    /// Tapes that were forgotten.
    pub removed: u64,
}

/// How far catching up has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries that are new.
    pub entries: u64,
    /// How many bytes of the tapes' files were read.
    pub bytes: u64,
    /// How many bytes are to be read in all.
    pub bytes_total: u64,
}

/// A tape as it is in the directory.
#[derive(Clone, Debug)]
pub(super) struct TapeOnDisk {
    pub(super) file: TapeFile,
    pub(super) is_sealed: bool,
    pub(super) file_bytes: u64,
}

/// A tape as the index knows it.
#[derive(Clone, Copy, Debug)]
struct IndexedTape {
    number: i64,
    is_sealed: bool,
    file_bytes: i64,
    next_entry: i64,
}

/// A tape to be read, and its first new entry.
#[derive(Clone, Debug)]
pub(super) struct TapeToRead {
    pub(super) on_disk: TapeOnDisk,
    pub(super) number: i64,
    pub(super) next_entry: u64,
}

#[derive(Debug, Default)]
struct CatchUpPlan {
    read: Vec<TapeToRead>,
    forget: Vec<i64>,
}

impl Index {
    /// Tells whether the index is up to date.
    pub(super) async fn is_current(&self) -> Result<bool, IndexError> {
        let mut connection = self.pool.acquire().await?;
        let plan = self.plan(&mut connection).await?;
        Ok(plan.read.is_empty() && plan.forget.is_empty() && !is_unclean(&mut connection).await?)
    }

    pub(super) async fn catch_up_with(
        &self,
        _lease: &Lease,
        mut report: impl FnMut(Progress),
    ) -> Result<CaughtUp, IndexError> {
        let mut connection = self.pool.acquire().await?;
        // Planned again, now with the lease: another process may have caught up since `is_current`.
        let plan = self.plan(&mut connection).await?;
        let mut totals = CaughtUp { tapes: plan.read.len() as u64, ..CaughtUp::default() };
        // Taken out while this runs, because after a failure their state need not agree with the index. The next run
        // then reads those tapes from their beginning.
        let mut open = self.swap_open(OpenTapes::default());
        totals.removed += self.forget(&mut connection, plan.forget, &mut open).await?;
        if !plan.read.is_empty() {
            open = self.read_tapes(&mut connection, plan.read, open, &mut totals, &mut report).await?;
            // A process that does not wait for the lease may have removed tapes while they were read.
            let removed = self.plan(&mut connection).await?.forget;
            totals.removed += self.forget(&mut connection, removed, &mut open).await?;
        }
        self.swap_open(open);
        Ok(totals)
    }

    /// Forgets removed tapes, and reads none.
    pub(super) async fn forget_with(&self, _lease: &Lease) -> Result<u64, IndexError> {
        let mut connection = self.pool.acquire().await?;
        let plan = self.plan(&mut connection).await?;
        let mut open = self.swap_open(OpenTapes::default());
        let removed = self.forget(&mut connection, plan.forget, &mut open).await?;
        self.swap_open(open);
        Ok(removed)
    }

    /// Deletes tapes from the tables and from the pages of the files; returns how many. Also completes a cleaning that
    /// another process left unfinished.
    async fn forget(
        &self,
        connection: &mut AnyConnection,
        tapes: Vec<i64>,
        open: &mut OpenTapes,
    ) -> Result<u64, IndexError> {
        if !tapes.is_empty() {
            open.forget(&tapes);
            let mut tx = connection.begin_with(begin_write(self.dialect())).await?;
            forget(&mut tx, &tapes).await?;
            // In the same transaction: a crash after the commit must not leave deleted text that nobody cleans.
            note_unclean(&mut tx).await?;
            tx.commit().await?;
        }
        if is_unclean(connection).await? {
            self.clean().await?;
        }
        Ok(tapes.len() as u64)
    }

    /// Reads tapes and writes their rows; returns the live tapes, which stay open.
    async fn read_tapes(
        &self,
        connection: &mut AnyConnection,
        tapes: Vec<TapeToRead>,
        open: OpenTapes,
        totals: &mut CaughtUp,
        report: &mut impl FnMut(Progress),
    ) -> Result<OpenTapes, IndexError> {
        let (batches, mut incoming) = mpsc::channel::<Vec<IndexStep>>(BATCHES_MAX);
        let home = self.home.clone();
        let mut progress = Progress {
            entries: 0,
            bytes: 0,
            bytes_total: tapes.iter().map(|planned| planned.on_disk.file_bytes).sum(),
        };
        report(progress);
        // A new writer each time: its cached ids of names and its next id would be wrong after a rollback.
        let mut writer = IndexWriter::new(connection, self.dialect()).await?;
        // One batch is read while the previous one is written.
        let reading = tokio::task::spawn_blocking(move || read_all(&home, &tapes, open, &batches));
        while let Some(batch) = incoming.recv().await {
            // An error below drops `incoming`; `read_all` then notices at its next batch and stops.
            totals.entries += batch.iter().map(|step| step.new_entries).sum::<u64>();
            totals.read += batch.iter().map(|step| step.read_entries).sum::<u64>();
            let mut tx = connection.begin_with(begin_write(self.dialect())).await?;
            writer.fill(&mut tx, &batch).await?;
            // `fill` deleted the tape's earlier rows, so their text is still in the files.
            if batch.iter().any(|step| step.begins_anew) {
                note_unclean(&mut tx).await?;
            }
            tx.commit().await?;
            progress.entries = totals.entries;
            progress.bytes += batch.iter().map(|step| step.read_bytes).sum::<u64>();
            report(progress);
        }
        for statement in maintenance_statements(self.dialect(), totals.entries) {
            connection.execute(*statement).await?;
        }
        // If the reading panicked, its thread has reported that, and what it sent before is valid.
        Ok(reading.await.unwrap_or_default())
    }

    fn swap_open(&self, open: OpenTapes) -> OpenTapes {
        let mut current = self.open_tapes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::replace(&mut current, open)
    }

    async fn plan(&self, connection: &mut AnyConnection) -> Result<CatchUpPlan, IndexError> {
        let home = self.home.clone();
        // A failure here must not pass for an empty directory: every tape would be forgotten.
        let seen =
            tokio::task::spawn_blocking(move || list_tapes(&home)).await.map_err(IndexError::Listing)??;
        let rows: Vec<(String, i64, i64, i64, i64)> =
            sqlx::query_as("SELECT id, number, is_sealed, file_bytes, next_entry FROM tapes")
                .fetch_all(connection)
                .await?;
        let known = rows
            .into_iter()
            .filter_map(|(id, number, is_sealed, file_bytes, next_entry)| {
                Some((
                    id.parse().ok()?,
                    IndexedTape { number, is_sealed: is_sealed != 0, file_bytes, next_entry },
                ))
            })
            .collect();
        Ok(plan_of(seen, known))
    }
}

/// Lists all tapes with their sizes, the oldest first.
fn list_tapes(home: &Home) -> Result<Vec<TapeOnDisk>, IndexError> {
    let mut seen = Vec::new();
    // In this order, because a search for frequent words takes the exchanges with the last ids.
    for file in home.list()?.into_iter().rev() {
        // A tape that was sealed after the listing has another name.
        let sealed = file.path.with_extension("tape");
        let found = match std::fs::metadata(&file.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => (std::fs::metadata(&sealed), sealed),
            found => (found, file.path),
        };
        match found {
            (Ok(facts), path) => {
                let is_sealed = path.extension().is_some_and(|e| e == "tape");
                seen.push(TapeOnDisk {
                    file: TapeFile { id: file.id, path },
                    is_sealed,
                    file_bytes: facts.len(),
                });
            }
            (Err(e), _) if e.kind() == io::ErrorKind::NotFound => {}
            // A tape whose metadata cannot be read is not gone, so it must not be forgotten.
            (Err(source), path) => return Err(FindError::Io { path, source }.into()),
        }
    }
    Ok(seen)
}

fn plan_of(seen: Vec<TapeOnDisk>, mut known: HashMap<TapeId, IndexedTape>) -> CatchUpPlan {
    let mut plan = CatchUpPlan::default();
    // Numbers of forgotten tapes may be assigned again: no row refers to them.
    let mut next_number = known.values().map(|k| k.number).max().unwrap_or(0) + 1;
    for tape in seen {
        match known.remove(&tape.file.id) {
            // To look into the file would cost as much as indexing it. Each append changes its size, and a sealed file
            // never changes.
            Some(known) if known.is_sealed == tape.is_sealed && known.file_bytes == int(tape.file_bytes) => {}
            Some(known) => plan.read.push(TapeToRead {
                on_disk: tape,
                number: known.number,
                next_entry: super::uint(known.next_entry),
            }),
            None => {
                plan.read.push(TapeToRead { on_disk: tape, number: next_number, next_entry: 0 });
                next_number += 1;
            }
        }
    }
    plan.forget = known.into_values().map(|known| known.number).collect();
    plan
}

/// Deletes all rows of tapes.
pub(super) async fn forget(connection: &mut AnyConnection, tapes: &[i64]) -> Result<(), sqlx::Error> {
    for tapes in tapes.chunks(TAPES_MAX) {
        let of_tapes = is_one_of("tape", tapes);
        let ids = format!("SELECT id FROM exchanges WHERE {of_tapes}");
        // Texts and rule marks first: they are found by the exchanges they belong to. The statements contain only
        // numbers of our own.
        for statement in [
            format!("DELETE FROM texts WHERE rowid IN ({ids})"),
            format!("DELETE FROM judged WHERE exchange IN ({ids})"),
            format!("DELETE FROM exchanges WHERE {of_tapes}"),
            format!("DELETE FROM definitions WHERE {of_tapes}"),
            format!("DELETE FROM tapes WHERE {}", is_one_of("number", tapes)),
        ] {
            connection.execute(AssertSqlSafe(statement)).await?;
        }
    }
    Ok(())
}
