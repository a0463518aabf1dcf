//! Writes rows read from tapes. One statement writes many rows of many tapes, because sqlx sends each statement to
//! another thread.

use std::borrow::Cow;
use std::collections::HashMap;

use scrubjay_core::exchange::Exchange;
use sqlx::{AnyConnection, AssertSqlSafe, Executor, Row as _};

use super::catch_up::forget;
use super::dialect::{placeholder, stored_text, text_placeholder};
use super::sql::{Sql, list, values};
use super::tape_reading::IndexStep;
use super::{int, uint, without_nul};
use crate::ledger::dialect::Dialect;

/// The most rows that one statement writes: SQLite allows 32,766 values, and a row has up to 21.
const ROWS_MAX: usize = 256;
/// The most numbers that are written into one statement: SQLite allows a text of a million bytes.
const NUMBERS_MAX: usize = 4096;
/// The most names that are cached, about 10 MB: beyond this the cache starts again from empty.
const NAMES_MAX: usize = 100_000;
/// The longest name that is stored whole. PostgreSQL cannot index long texts, so a longer name is stored as its
/// beginning and a hash.
const NAME_BYTES_MAX: usize = 1024;

/// Mark: the exchange repeats on a backend's connection what a client's exchange shows.
pub(super) const SECOND_LEG: i64 = 1;
/// Mark: the client sent it.
pub(super) const BY_CLIENT: i64 = 2;
/// Mark: its text is not indexed completely.
pub(super) const CLIPPED: i64 = 4;
/// Mark: the gateway sent it on the client's behalf.
pub(super) const BY_GATEWAY: i64 = 8;
/// Mark: rules changed, delayed, blocked or answered it.
pub(super) const INTERCEPTED: i64 = 16;
/// Mark: its indexed text includes the original from before rules changed it.
pub(super) const ORIGINAL: i64 = 32;

/// The kind of a row in `judged` that names a rule which applied to an exchange.
pub(super) const RULE: i64 = 0;
/// The kind of a row in `judged` that names a tag which rules gave to an exchange.
pub(super) const TAG: i64 = 1;

/// Converts a name to the form in which it is stored.
pub(super) fn stored_name(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return without_nul(name);
    }
    // The hash keeps two long names with the same beginning apart.
    let end = (0..=NAME_BYTES_MAX).rfind(|at| name.is_char_boundary(*at)).unwrap_or(0);
    let hash = blake3::hash(name.as_bytes()).to_hex();
    format!("{}…{}", without_nul(&name[..end]), &hash[..16]).into()
}

/// The ids of names, cached.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    known: HashMap<String, i64>,
}

impl NameTable {
    async fn number(
        &mut self,
        connection: &mut AnyConnection,
        name: Option<&str>,
    ) -> Result<Option<i64>, sqlx::Error> {
        let Some(name) = name.map(stored_name) else { return Ok(None) };
        if let Some(number) = self.known.get(&*name) {
            return Ok(Some(*number));
        }
        // The update changes nothing, but without it a conflict would return no id.
        let number = sqlx::query_scalar(
            "INSERT INTO names (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name \
             RETURNING id",
        )
        .bind(&*name)
        .fetch_one(connection)
        .await?;
        if self.known.len() >= NAMES_MAX {
            self.known.clear();
        }
        self.known.insert(name.into_owned(), number);
        Ok(Some(number))
    }
}

/// An exchange with its row id and its tape.
struct ExchangeRow<'a> {
    id: i64,
    tape: i64,
    row: &'a Exchange,
}

struct NameIds {
    method: Option<i64>,
    name: Option<i64>,
    via: Option<i64>,
    shape: Option<i64>,
}

/// Writes batches of steps to the tables.
#[derive(Debug)]
pub(super) struct IndexWriter {
    dialect: Dialect,
    names: NameTable,
    next_id: i64,
}

impl IndexWriter {
    /// Continues behind the last id. No other process assigns ids meanwhile, because the caller holds the lease.
    pub(super) async fn new(connection: &mut AnyConnection, dialect: Dialect) -> Result<Self, sqlx::Error> {
        let last: Option<i64> =
            sqlx::query_scalar("SELECT max(id) FROM exchanges").fetch_one(connection).await?;
        Ok(Self { dialect, names: NameTable::default(), next_id: last.unwrap_or(0) + 1 })
    }

    /// Writes a batch within the caller's transaction.
    pub(super) async fn fill(
        &mut self,
        connection: &mut AnyConnection,
        batch: &[IndexStep],
    ) -> Result<(), sqlx::Error> {
        let anew: Vec<i64> = batch.iter().filter(|step| step.begins_anew).map(|step| step.number).collect();
        // First, because the ids of the new rows of these tapes are looked up among those that are stored.
        forget(connection, &anew).await?;
        let mut rows = Vec::new();
        let mut replaced = Vec::new();
        let mut ids = Vec::with_capacity(batch.len());
        for step in batch {
            let first = rows.len();
            self.assign_ids(connection, step, &mut rows, &mut replaced).await?;
            let placed = rows[first..].iter().map(|row| row.id);
            ids.push((placed.clone().min().unwrap_or(0), placed.max().unwrap_or(0)));
        }
        // FTS5 buffers rows only while their ids ascend, and flushes the buffer otherwise.
        rows.sort_unstable_by_key(|placed| placed.id);
        replaced.sort_unstable();
        remove_texts(connection, &replaced).await?;
        for rows in rows.chunks(ROWS_MAX) {
            let clipped = write_texts(connection, self.dialect, rows).await?;
            let mut numbers = Vec::with_capacity(rows.len());
            for ExchangeRow { row, .. } in rows {
                numbers.push(self.numbers(connection, row).await?);
            }
            write_rows(connection, self.dialect, rows, &numbers, &clipped).await?;
            write_judged(connection, &mut self.names, rows).await?;
        }
        self.write_definitions(connection, batch).await?;
        write_tapes(connection, self.dialect, batch, &ids).await
    }

    /// Assigns an id to each exchange of a step. An exchange that is stored already, in an earlier state, keeps its id.
    async fn assign_ids<'a>(
        &mut self,
        connection: &mut AnyConnection,
        step: &'a IndexStep,
        rows: &mut Vec<ExchangeRow<'a>>,
        replaced: &mut Vec<i64>,
    ) -> Result<(), sqlx::Error> {
        let given = step.rows.iter().filter(|(_, was_given)| *was_given);
        let given: Vec<i64> = given.map(|(row, _)| int(row.place)).collect();
        let mut known = HashMap::with_capacity(given.len());
        for places in given.chunks(NUMBERS_MAX) {
            let found = Sql::new(format!(
                "SELECT place, id FROM exchanges WHERE tape = {} AND place IN ({})",
                step.number,
                list(places)
            ));
            for row in found.fetch(connection).await? {
                known.insert(uint(row.try_get(0)?), row.try_get::<i64, _>(1)?);
            }
        }
        for (row, _) in &step.rows {
            let id = known.get(&row.place).copied().unwrap_or_else(|| {
                self.next_id += 1;
                self.next_id - 1
            });
            rows.push(ExchangeRow { id, tape: step.number, row });
        }
        replaced.extend(known.into_values());
        Ok(())
    }

    async fn numbers(
        &mut self,
        connection: &mut AnyConnection,
        row: &Exchange,
    ) -> Result<NameIds, sqlx::Error> {
        let names = &mut self.names;
        Ok(NameIds {
            method: names.number(connection, row.method.as_deref()).await?,
            name: names.number(connection, row.name.as_deref()).await?,
            via: names.number(connection, row.via.as_deref()).await?,
            shape: names.number(connection, row.error_shape.as_deref()).await?,
        })
    }

    async fn write_definitions(
        &mut self,
        connection: &mut AnyConnection,
        batch: &[IndexStep],
    ) -> Result<(), sqlx::Error> {
        let mut all = Vec::new();
        for step in batch {
            for definition in &step.definitions {
                let tool = self.names.number(connection, Some(&definition.tool)).await?;
                let via = self.names.number(connection, definition.via.as_deref()).await?;
                all.push((step.number, tool, via, definition));
            }
        }
        for some in all.chunks(ROWS_MAX) {
            let places = values(some.len(), 5, |_, number| placeholder(self.dialect, number));
            let insert = format!("INSERT INTO definitions (tape, tool, via, hash, entry) VALUES {places}");
            let mut insert = sqlx::query(AssertSqlSafe(insert)).persistent(some.len() == ROWS_MAX);
            for (tape, tool, via, definition) in some {
                let (hash, entry) = (definition.hash.to_vec(), int(definition.entry));
                insert = insert.bind(*tape).bind(*tool).bind(*via).bind(hash).bind(entry);
            }
            insert.execute(&mut *connection).await?;
        }
        Ok(())
    }
}

/// Deletes the texts and rule marks of exchanges that are written again.
async fn remove_texts(connection: &mut AnyConnection, ids: &[i64]) -> Result<(), sqlx::Error> {
    for ids in ids.chunks(NUMBERS_MAX) {
        // The statement contains only numbers of our own, nothing of a recording.
        for (table, column) in [("texts", "rowid"), ("judged", "exchange")] {
            let delete = format!("DELETE FROM {table} WHERE {column} IN ({})", list(ids));
            connection.execute(AssertSqlSafe(delete)).await?;
        }
    }
    Ok(())
}

/// Writes the texts of rows; returns for each whether it was clipped.
async fn write_texts(
    connection: &mut AnyConnection,
    dialect: Dialect,
    rows: &[ExchangeRow<'_>],
) -> Result<Vec<bool>, sqlx::Error> {
    let places = values(rows.len(), 2, |column, number| match column {
        0 => placeholder(dialect, number),
        _ => text_placeholder(dialect, number),
    });
    let insert = format!("INSERT INTO texts (rowid, text) VALUES {places}");
    // Only the statement for a full chunk is used again, so only that is worth caching.
    let mut insert = sqlx::query(AssertSqlSafe(insert)).persistent(rows.len() == ROWS_MAX);
    let mut clipped = Vec::with_capacity(rows.len());
    for ExchangeRow { id, row, .. } in rows {
        let (text, is_clipped) = stored_text(dialect, &row.text);
        insert = insert.bind(*id).bind(text);
        clipped.push(is_clipped || row.clipped);
    }
    insert.execute(connection).await?;
    Ok(clipped)
}

/// The columns of an exchange.
const COLUMNS: [&str; 21] = [
    "id",
    "tape",
    "place",
    "entry",
    "answer",
    "wall_ns",
    "since_start_ns",
    "what",
    "answered_with",
    "method",
    "name",
    "via",
    "marks",
    "took_ns",
    "failed",
    "code",
    "shape",
    "asked_bytes",
    "answered_bytes",
    "asked_tokens",
    "answered_tokens",
];

async fn write_rows(
    connection: &mut AnyConnection,
    dialect: Dialect,
    rows: &[ExchangeRow<'_>],
    numbers: &[NameIds],
    clipped: &[bool],
) -> Result<(), sqlx::Error> {
    // An exchange that waited for its answer has a row already, which is replaced.
    let taken: Vec<String> = COLUMNS[1..].iter().map(|name| format!("{name} = excluded.{name}")).collect();
    let insert = format!(
        "INSERT INTO exchanges ({}) VALUES {} ON CONFLICT (id) DO UPDATE SET {}",
        COLUMNS.join(", "),
        values(rows.len(), COLUMNS.len(), |_, number| placeholder(dialect, number)),
        taken.join(", ")
    );
    let mut insert = sqlx::query(AssertSqlSafe(insert)).persistent(rows.len() == ROWS_MAX);
    for ((ExchangeRow { id, tape, row }, numbers), clipped) in rows.iter().zip(numbers).zip(clipped) {
        let marks = i64::from(row.is_second_leg) * SECOND_LEG
            + i64::from(row.by_client) * BY_CLIENT
            + i64::from(row.by_gateway) * BY_GATEWAY
            + i64::from(row.intercepted) * INTERCEPTED
            + i64::from(row.has_original) * ORIGINAL
            + i64::from(*clipped) * CLIPPED;
        insert = insert
            .bind(*id)
            .bind(*tape)
            .bind(int(row.place))
            .bind(int(row.entry))
            .bind(row.answer.map(int))
            .bind(int(row.wall_ns))
            .bind(int(row.since_start_ns))
            .bind(row.what.code())
            .bind(row.answered_with.map(|what| what.code()))
            .bind(numbers.method)
            .bind(numbers.name)
            .bind(numbers.via)
            .bind(marks)
            .bind(row.took_ns.map(int))
            .bind(i64::from(row.failed))
            .bind(row.error_code)
            .bind(numbers.shape)
            .bind(int(row.asked_bytes))
            .bind(int(row.answered_bytes))
            .bind(int(row.asked_tokens))
            .bind(int(row.answered_tokens));
    }
    insert.execute(connection).await?;
    Ok(())
}

/// Writes which rules applied to rows, and which tags they gave.
async fn write_judged(
    connection: &mut AnyConnection,
    names: &mut NameTable,
    rows: &[ExchangeRow<'_>],
) -> Result<(), sqlx::Error> {
    let mut judged: Vec<String> = Vec::new();
    for ExchangeRow { id, row, .. } in rows {
        let all = row.rules.iter().map(|rule| (RULE, rule)).chain(row.tags.iter().map(|tag| (TAG, tag)));
        for (kind, name) in all {
            let number = names.number(connection, Some(name)).await?.unwrap_or_default();
            judged.push(format!("({id}, {kind}, {number})"));
        }
    }
    for values in judged.chunks(ROWS_MAX) {
        // The statement contains only numbers of our own, nothing of a recording.
        let insert = format!("INSERT INTO judged (exchange, kind, name) VALUES {}", values.join(", "));
        connection.execute(AssertSqlSafe(insert)).await?;
    }
    Ok(())
}

/// Writes how far each tape was read, and the first and last id of the exchanges written for it.
async fn write_tapes(
    connection: &mut AnyConnection,
    dialect: Dialect,
    batch: &[IndexStep],
    ids: &[(i64, i64)],
) -> Result<(), sqlx::Error> {
    let all: Vec<(&IndexStep, (i64, i64))> = batch.iter().zip(ids.iter().copied()).collect();
    for some in all.chunks(ROWS_MAX) {
        // Several steps may belong to one tape. An id of 0 means that no exchange of it was written yet.
        let insert = format!(
            "INSERT INTO tapes (number, id, server, session, started_ns, is_sealed, file_bytes, next_entry, \
             first_id, last_id, damage) VALUES {} \
             ON CONFLICT (number) DO UPDATE SET server = excluded.server, session = excluded.session, \
             started_ns = excluded.started_ns, is_sealed = excluded.is_sealed, \
             file_bytes = excluded.file_bytes, next_entry = excluded.next_entry, damage = excluded.damage, \
             first_id = CASE WHEN tapes.first_id = 0 THEN excluded.first_id ELSE tapes.first_id END, \
             last_id = CASE WHEN excluded.last_id > tapes.last_id THEN excluded.last_id ELSE tapes.last_id END",
            values(some.len(), 11, |_, number| placeholder(dialect, number))
        );
        let mut insert = sqlx::query(AssertSqlSafe(insert)).persistent(some.len() == ROWS_MAX);
        for (step, (first_id, last_id)) in some {
            let tape = &step.tape;
            insert = insert
                .bind(step.number)
                .bind(tape.id.as_str())
                .bind(without_nul(&tape.server).into_owned())
                .bind(without_nul(&tape.session).into_owned())
                .bind(int(tape.started_ns))
                .bind(i64::from(tape.is_sealed))
                .bind(int(tape.file_bytes))
                .bind(int(step.next_entry))
                .bind(*first_id)
                .bind(*last_id)
                .bind(tape.damage.as_deref().map(|damage| without_nul(damage).into_owned()));
        }
        insert.execute(&mut *connection).await?;
    }
    Ok(())
}
