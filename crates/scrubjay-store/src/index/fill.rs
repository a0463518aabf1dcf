//! Writes what was read: many rows a statement, because each statement is a trip to another thread.

use std::borrow::Cow;
use std::collections::HashMap;

use scrubjay_core::exchange::Exchange;
use sqlx::{AnyConnection, AssertSqlSafe, Executor};

use super::catch_up::forget;
use super::dialect::{kept_text, place, text_place};
use super::gather::Step;
use super::sql::{list, values};
use super::{id_of, int, without_nul};
use crate::ledger::dialect::Dialect;

/// So many rows go into one statement; it may have 32,766 values.
const ROWS_MAX: usize = 256;
/// So many names are remembered; the others are looked up.
const NAMES_MAX: usize = 100_000;
/// A longer name is known by its beginning and its hash: PostgreSQL looks up none that are longer.
const NAME_BYTES_MAX: usize = 1024;

/// The second leg of something shown already.
pub(super) const SECOND_LEG: i64 = 1;
/// Said by the client.
pub(super) const BY_CLIENT: i64 = 2;
/// Not all of its text is found.
pub(super) const CLIPPED: i64 = 4;
/// Asked by the gateway for the client.
pub(super) const BY_GATEWAY: i64 = 8;
/// Rules changed, held back, blocked or made some of it.
pub(super) const INTERCEPTED: i64 = 16;
/// Its text is also what it was before rules changed it.
pub(super) const ORIGINAL: i64 = 32;

/// A rule that applied to an exchange.
pub(super) const RULE: i64 = 0;
/// A tag that rules gave it.
pub(super) const TAG: i64 = 1;

/// Returns a name as it is kept.
pub(super) fn kept_name(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return without_nul(name);
    }
    let end = (0..=NAME_BYTES_MAX).rfind(|at| name.is_char_boundary(*at)).unwrap_or(0);
    let hash = blake3::hash(name.as_bytes()).to_hex();
    format!("{}…{}", without_nul(&name[..end]), &hash[..16]).into()
}

/// The numbers of names.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<String, i64>,
}

impl Names {
    async fn number(
        &mut self,
        connection: &mut AnyConnection,
        name: Option<&str>,
    ) -> Result<Option<i64>, sqlx::Error> {
        let Some(name) = name.map(kept_name) else { return Ok(None) };
        if let Some(number) = self.known.get(&*name) {
            return Ok(Some(*number));
        }
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

struct Numbers {
    method: Option<i64>,
    name: Option<i64>,
    via: Option<i64>,
    shape: Option<i64>,
}

/// Writes one step, within the caller's transaction.
pub(super) async fn fill(
    connection: &mut AnyConnection,
    dialect: Dialect,
    names: &mut Names,
    step: &Step,
) -> Result<(), sqlx::Error> {
    if step.begins_anew {
        forget(connection, step.number).await?;
    }
    for rows in step.rows.chunks(ROWS_MAX) {
        let clipped = replace_texts(connection, dialect, step.number, rows).await?;
        let mut numbers = Vec::with_capacity(rows.len());
        for (row, _) in rows {
            numbers.push(Numbers {
                method: names.number(connection, row.method.as_deref()).await?,
                name: names.number(connection, row.name.as_deref()).await?,
                via: names.number(connection, row.via.as_deref()).await?,
                shape: names.number(connection, row.error_shape.as_deref()).await?,
            });
        }
        write_rows(connection, dialect, step.number, rows, &numbers, &clipped).await?;
        write_judged(connection, names, step.number, rows).await?;
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

/// Writes the texts of some rows, and takes away what stood there of them before; tells of which not all is found.
async fn replace_texts(
    connection: &mut AnyConnection,
    dialect: Dialect,
    tape: i64,
    rows: &[(Exchange, bool)],
) -> Result<Vec<bool>, sqlx::Error> {
    let earlier: Vec<i64> =
        rows.iter().filter(|(_, was)| *was).map(|(row, _)| id_of(tape, row.place)).collect();
    if !earlier.is_empty() {
        // Numbers alone: nothing of a recording gets into the statement.
        for (table, column) in [("texts", "rowid"), ("judged", "exchange")] {
            let delete = format!("DELETE FROM {table} WHERE {column} IN ({})", list(&earlier));
            connection.execute(AssertSqlSafe(delete)).await?;
        }
    }
    let places = values(rows.len(), 2, |column, number| match column {
        0 => place(dialect, number),
        _ => text_place(dialect, number),
    });
    let insert = format!("INSERT INTO texts (rowid, text) VALUES {places}");
    let mut insert = sqlx::query(AssertSqlSafe(insert)).persistent(rows.len() == ROWS_MAX);
    let mut clipped = Vec::with_capacity(rows.len());
    for (row, _) in rows {
        let (text, is_clipped) = kept_text(dialect, &row.text);
        insert = insert.bind(id_of(tape, row.place)).bind(text);
        clipped.push(is_clipped || row.clipped);
    }
    insert.execute(connection).await?;
    Ok(clipped)
}

/// The columns of an exchange.
const COLUMNS: [&str; 19] = [
    "id",
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
    tape: i64,
    rows: &[(Exchange, bool)],
    numbers: &[Numbers],
    clipped: &[bool],
) -> Result<(), sqlx::Error> {
    let taken: Vec<String> = COLUMNS[1..].iter().map(|name| format!("{name} = excluded.{name}")).collect();
    let insert = format!(
        "INSERT INTO exchanges ({}) VALUES {} ON CONFLICT (id) DO UPDATE SET {}",
        COLUMNS.join(", "),
        values(rows.len(), COLUMNS.len(), |_, number| place(dialect, number)),
        taken.join(", ")
    );
    let mut insert = sqlx::query(AssertSqlSafe(insert)).persistent(rows.len() == ROWS_MAX);
    for (((row, _), numbers), clipped) in rows.iter().zip(numbers).zip(clipped) {
        let marks = i64::from(row.is_second_leg) * SECOND_LEG
            + i64::from(row.by_client) * BY_CLIENT
            + i64::from(row.by_gateway) * BY_GATEWAY
            + i64::from(row.intercepted) * INTERCEPTED
            + i64::from(row.has_original) * ORIGINAL
            + i64::from(*clipped) * CLIPPED;
        insert = insert
            .bind(id_of(tape, row.place))
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

/// Writes which rules applied to some rows, and which tags they gave.
async fn write_judged(
    connection: &mut AnyConnection,
    names: &mut Names,
    tape: i64,
    rows: &[(Exchange, bool)],
) -> Result<(), sqlx::Error> {
    let mut judged: Vec<String> = Vec::new();
    for (row, _) in rows {
        let all = row.rules.iter().map(|rule| (RULE, rule)).chain(row.tags.iter().map(|tag| (TAG, tag)));
        for (kind, name) in all {
            let number = names.number(connection, Some(name)).await?.unwrap_or_default();
            judged.push(format!("({}, {kind}, {number})", id_of(tape, row.place)));
        }
    }
    for values in judged.chunks(ROWS_MAX) {
        // Numbers alone: nothing of a recording gets into the statement.
        let insert = format!("INSERT INTO judged (exchange, kind, name) VALUES {}", values.join(", "));
        connection.execute(AssertSqlSafe(insert)).await?;
    }
    Ok(())
}

async fn write_tape(connection: &mut AnyConnection, step: &Step) -> Result<(), sqlx::Error> {
    let tape = &step.tape;
    sqlx::query(
        "INSERT INTO tapes (number, id, server, session, started_ns, is_sealed, file_bytes, next_entry, damage) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         ON CONFLICT (number) DO UPDATE SET server = excluded.server, session = excluded.session, \
         started_ns = excluded.started_ns, is_sealed = excluded.is_sealed, file_bytes = excluded.file_bytes, \
         next_entry = excluded.next_entry, damage = excluded.damage",
    )
    .bind(step.number)
    .bind(tape.id.as_str())
    .bind(&*without_nul(&tape.server))
    .bind(&*without_nul(&tape.session))
    .bind(int(tape.started_ns))
    .bind(i64::from(tape.is_sealed))
    .bind(int(tape.file_bytes))
    .bind(int(step.next_entry))
    .bind(tape.damage.as_deref().map(|damage| without_nul(damage).into_owned()))
    .execute(connection)
    .await?;
    Ok(())
}
