//! Writes what was read: many rows a statement, because each statement is a trip to another thread.

use std::collections::HashMap;

use scrubjay_core::exchange::Exchange;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};

use super::catch_up::forget;
use super::gather::Step;
use super::{id_of, int};

/// So many rows go into one statement; it may have 32,766 values.
const ROWS_MAX: usize = 256;
/// So many names are remembered; the others are looked up.
const NAMES_MAX: usize = 100_000;

/// The second leg of something shown already.
pub(super) const SECOND_LEG: i64 = 1;
/// Said by the client.
pub(super) const BY_CLIENT: i64 = 2;
/// Not all of its text is found.
pub(super) const CLIPPED: i64 = 4;

/// The numbers of names.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<String, i64>,
}

impl Names {
    async fn number(
        &mut self,
        connection: &mut SqliteConnection,
        name: Option<&str>,
    ) -> Result<Option<i64>, sqlx::Error> {
        let Some(name) = name else { return Ok(None) };
        if let Some(number) = self.known.get(name) {
            return Ok(Some(*number));
        }
        let number = sqlx::query_scalar(
            "INSERT INTO names (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = name RETURNING id",
        )
        .bind(name)
        .fetch_one(connection)
        .await?;
        if self.known.len() >= NAMES_MAX {
            self.known.clear();
        }
        self.known.insert(name.to_owned(), number);
        Ok(Some(number))
    }
}

struct Numbers {
    method: Option<i64>,
    name: Option<i64>,
    via: Option<i64>,
    shape: Option<i64>,
}

/// Writes one step, within the caller's transaction.
pub(super) async fn fill(
    connection: &mut SqliteConnection,
    names: &mut Names,
    step: &Step,
) -> Result<(), sqlx::Error> {
    if step.begins_anew {
        forget(connection, step.number).await?;
    }
    for rows in step.rows.chunks(ROWS_MAX) {
        replace_texts(connection, step.number, rows).await?;
        let mut numbers = Vec::with_capacity(rows.len());
        for (row, _) in rows {
            numbers.push(Numbers {
                method: names.number(connection, row.method.as_deref()).await?,
                name: names.number(connection, row.name.as_deref()).await?,
                via: names.number(connection, row.via.as_deref()).await?,
                shape: names.number(connection, row.error_shape.as_deref()).await?,
            });
        }
        write_rows(connection, step.number, rows, &numbers).await?;
    }
    for definition in &step.definitions {
        sqlx::query("INSERT INTO definitions (tape, tool, via, hash, entry) VALUES ($1, $2, $3, $4, $5)")
            .bind(step.number)
            .bind(names.number(connection, Some(&definition.tool)).await?)
            .bind(names.number(connection, definition.via.as_deref()).await?)
            .bind(definition.hash.to_vec())
            .bind(int(definition.entry))
            .execute(&mut *connection)
            .await?;
    }
    write_tape(connection, step).await
}

async fn replace_texts(
    connection: &mut SqliteConnection,
    tape: i64,
    rows: &[(Exchange, bool)],
) -> Result<(), sqlx::Error> {
    let earlier: Vec<i64> =
        rows.iter().filter(|(_, was)| *was).map(|(row, _)| id_of(tape, row.place)).collect();
    if !earlier.is_empty() {
        let mut delete = QueryBuilder::<Sqlite>::new("DELETE FROM texts WHERE rowid IN (");
        let mut list = delete.separated(", ");
        for id in earlier {
            list.push_bind(id);
        }
        delete.push(")");
        delete.build().persistent(false).execute(&mut *connection).await?;
    }
    let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO texts (rowid, text) ");
    insert.push_values(rows, |mut tuple, (row, _)| {
        tuple.push_bind(id_of(tape, row.place)).push_bind(row.text.as_str());
    });
    insert.build().persistent(rows.len() == ROWS_MAX).execute(connection).await?;
    Ok(())
}

async fn write_rows(
    connection: &mut SqliteConnection,
    tape: i64,
    rows: &[(Exchange, bool)],
    numbers: &[Numbers],
) -> Result<(), sqlx::Error> {
    let mut insert = QueryBuilder::<Sqlite>::new(
        "INSERT OR REPLACE INTO exchanges (id, entry, answer, wall_ns, since_start_ns, what, answered_with, \
         method, name, via, marks, took_ns, failed, code, shape, asked_bytes, answered_bytes) ",
    );
    insert.push_values(rows.iter().zip(numbers), |mut tuple, ((row, _), numbers)| {
        let marks = i64::from(row.is_second_leg) * SECOND_LEG
            + i64::from(row.by_client) * BY_CLIENT
            + i64::from(row.clipped) * CLIPPED;
        tuple
            .push_bind(id_of(tape, row.place))
            .push_bind(int(row.entry))
            .push_bind(row.answer.map(int))
            .push_bind(int(row.wall_ns))
            .push_bind(int(row.since_start_ns))
            .push_bind(row.what.code())
            .push_bind(row.answered_with.map(|what| what.code()))
            .push_bind(numbers.method)
            .push_bind(numbers.name)
            .push_bind(numbers.via)
            .push_bind(marks)
            .push_bind(row.took_ns.map(int))
            .push_bind(i64::from(row.failed))
            .push_bind(row.error_code)
            .push_bind(numbers.shape)
            .push_bind(int(row.asked_bytes))
            .push_bind(int(row.answered_bytes));
    });
    insert.build().persistent(rows.len() == ROWS_MAX).execute(connection).await?;
    Ok(())
}

async fn write_tape(connection: &mut SqliteConnection, step: &Step) -> Result<(), sqlx::Error> {
    let tape = &step.tape;
    sqlx::query(
        "INSERT INTO tapes (number, id, server, session, started_ns, is_sealed, file_bytes, next_entry, damage) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         ON CONFLICT (number) DO UPDATE SET server = excluded.server, session = excluded.session, \
         started_ns = excluded.started_ns, is_sealed = excluded.is_sealed, file_bytes = excluded.file_bytes, \
         next_entry = excluded.next_entry, damage = excluded.damage",
    )
    .bind(step.number)
    .bind(&tape.id)
    .bind(&tape.server)
    .bind(&tape.session)
    .bind(int(tape.started_ns))
    .bind(tape.is_sealed)
    .bind(int(tape.file_bytes))
    .bind(int(step.next_entry))
    .bind(&tape.damage)
    .execute(connection)
    .await?;
    Ok(())
}
