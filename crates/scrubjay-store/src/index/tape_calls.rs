//! The calls of tapes, for analysis: of one tape, and of earlier tapes of the same server.

use std::collections::HashMap;
use std::sync::Arc;

use scrubjay_core::analysis::{Call, TapeCalls};
use scrubjay_core::exchange::{Definition, ExchangeKind, ToolLists};
use scrubjay_core::id::TapeId;
use scrubjay_core::protocol::method;
use sqlx::AnyConnection;

use super::call_details;
use super::entry_lookup::TapeKey;
use super::fill::{BY_CLIENT, BY_GATEWAY, SECOND_LEG};
use super::search::names;
use super::{Index, IndexError, uint};

/// The most earlier tapes with which a tape is compared, and the most calls of each: analysis must stay interactive.
const TAPES_MAX: i64 = 20;
const PAST_CALLS_MAX: i64 = 1_000;

impl Index {
    /// Returns the calls of a tape; `None` if it is not in the index.
    ///
    /// # Errors
    /// The database failed.
    pub async fn calls(&self, tape: TapeId) -> Result<Option<TapeCalls>, IndexError> {
        let mut tx = self.read().await?;
        let found: Option<(i64, String, i64)> =
            sqlx::query_as("SELECT number, server, started_ns FROM tapes WHERE id = $1")
                .bind(tape.as_str())
                .fetch_optional(&mut *tx)
                .await?;
        let Some((number, server, started_ns)) = found else { return Ok(None) };
        let calls = load(&mut tx, number, tape.to_string(), server, i64::MAX).await?;
        // Before the tapes are read: an open snapshot keeps the log from being moved into the database.
        tx.commit().await?;
        let key = TapeKey { number, id: calls.tape.clone(), started_ns: uint(started_ns) };
        Ok(call_details::of_calls(&self.home, key, calls).await)
    }

    /// Returns the newest tape of a session, named by its id, a prefix of it, or the host's own id.
    ///
    /// # Errors
    /// The database failed.
    pub async fn newest_of_session(&self, session: &str) -> Result<Option<TapeId>, IndexError> {
        let mut tx = self.read().await?;
        let rows: Vec<(String, String)> =
            sqlx::query_as("SELECT id, session FROM tapes ORDER BY started_ns DESC, id DESC")
                .fetch_all(&mut *tx)
                .await?;
        // Compared here and not with LIKE, because the name comes from a caller and may contain `%` and `_`.
        if let Some((id, _)) = rows.iter().find(|(_, of)| of.starts_with(session)) {
            return Ok(id.parse().ok());
        }
        // The name may be the host's own id, which is only on the tapes.
        let (home, name) = (self.home.clone(), session.to_owned());
        let looking = tokio::task::spawn_blocking(move || Some(home.find(&name).ok()?.id));
        Ok(looking.await.ok().flatten())
    }

    /// Returns the calls of the tapes of the same server before a tape, the newest first.
    ///
    /// # Errors
    /// The database failed.
    pub async fn earlier_calls(&self, tape: TapeId) -> Result<Vec<TapeCalls>, IndexError> {
        let mut tx = self.read().await?;
        let rows: Vec<(i64, String, String, i64, i64)> = sqlx::query_as(
            "SELECT p.number, p.id, p.server, p.started_ns, t.number FROM tapes t JOIN tapes p ON p.server = t.server \
             WHERE t.id = $1 AND (p.started_ns, p.id) < (t.started_ns, t.id) \
             ORDER BY p.started_ns DESC, p.id DESC LIMIT $2",
        )
        .bind(tape.as_str())
        .bind(TAPES_MAX)
        .fetch_all(&mut *tx)
        .await?;
        let Some(now) = rows.first().map(|(.., now)| *now) else { return Ok(Vec::new()) };
        let now = definitions(&mut tx, now).await?;
        let mut past = Vec::with_capacity(rows.len());
        let mut keys = Vec::with_capacity(rows.len());
        for (number, id, server, started_ns, _) in rows {
            keys.push(TapeKey { number, id: id.clone(), started_ns: uint(started_ns) });
            past.push(load(&mut tx, number, id, server, PAST_CALLS_MAX).await?);
        }
        tx.commit().await?;
        Ok(call_details::of_definitions(&self.home, keys, now, past).await)
    }
}

async fn load(
    connection: &mut AnyConnection,
    number: i64,
    tape: String,
    server: String,
    limit: i64,
) -> Result<TapeCalls, sqlx::Error> {
    // All rows are fetched as one text: a sqlx value for each column of each row would cost more than everything else.
    // Both databases aggregate rows as they arrive, so the calls are in the order of the subquery. `|| ''` turns a
    // number into text, and leaves NULL as it is.
    let text: Option<String> = sqlx::query_scalar(
        "SELECT string_agg(entry || ',' || coalesce(answer || '', '') || ',' || since_start_ns || ',' || what \
         || ',' || marks || ',' || coalesce(method || '', '') || ',' || coalesce(name || '', '') || ',' \
         || coalesce(took_ns || '', '') || ',' || failed || ',' || coalesce(code || '', '') || ',' \
         || coalesce(shape || '', '') || ',' || asked_bytes || ',' || answered_bytes || ',' || answered_tokens, ';') \
         FROM (SELECT * FROM exchanges WHERE tape = $1 AND marks & $2 = 0 ORDER BY place LIMIT $3) AS e",
    )
    .bind(number)
    .bind(SECOND_LEG)
    .bind(limit)
    .fetch_one(&mut *connection)
    .await?;
    let mut subjects = Subjects::default();
    let text = text.unwrap_or_default();
    let calls = text.split(';').filter_map(|row| Unnamed::parse(row, &mut subjects)).collect();
    let calls = name(connection, calls, &subjects).await?;
    Ok(TapeCalls {
        tape,
        server,
        calls,
        definitions: definitions(connection, number).await?,
        tool_lists: ToolLists::default(),
    })
}

/// A call whose names are still ids; they are looked up for all calls together.
struct Unnamed {
    subject: usize,
    shape: Option<i64>,
    call: Call,
}

impl Unnamed {
    fn parse(row: &str, subjects: &mut Subjects) -> Option<Self> {
        // In the order of the statement above.
        let mut columns = row.split(',').map(|column| column.parse::<i64>().ok());
        let mut next = || columns.next().flatten();
        let (entry, answer, since_start_ns) = (next()?, next(), next()?);
        let (what, marks, method, name) = (ExchangeKind::of_code(next()?)?, next()?, next(), next());
        let (took_ns, failed, code, shape) = (next(), next()?, next(), next());
        Some(Self {
            subject: subjects.number(what, method, name),
            shape,
            call: Call {
                entry: uint(entry),
                answer: answer.map(uint),
                since_start_ns: uint(since_start_ns),
                what,
                by_client: marks & BY_CLIENT != 0,
                by_gateway: marks & BY_GATEWAY != 0,
                subject: Arc::default(),
                took_ns: took_ns.map(uint),
                failed: failed != 0,
                code,
                shape: None,
                asked_bytes: uint(next()?),
                answered_bytes: uint(next()?),
                answered_tokens: uint(next()?),
                asks: None,
                says: None,
            },
        })
    }
}

/// The distinct subjects of calls: the method, and for a tool its name.
#[derive(Default)]
struct Subjects {
    known: HashMap<(i64, Option<i64>, Option<i64>), usize>,
    all: Vec<(ExchangeKind, Option<i64>, Option<i64>)>,
}

impl Subjects {
    fn number(&mut self, what: ExchangeKind, method: Option<i64>, name: Option<i64>) -> usize {
        let all = &mut self.all;
        *self.known.entry((what.code(), method, name)).or_insert_with(|| {
            all.push((what, method, name));
            all.len() - 1
        })
    }
}

async fn name(
    connection: &mut AnyConnection,
    calls: Vec<Unnamed>,
    subjects: &Subjects,
) -> Result<Vec<Call>, sqlx::Error> {
    let numbers = subjects.all.iter().flat_map(|(_, method, name)| [*method, *name]);
    let texts = names(connection, numbers.chain(calls.iter().map(|call| call.shape))).await?;
    let text = |number: Option<i64>| number.and_then(|n| texts.get(&n)).map(String::as_str);
    // Equal subjects share one value, which makes them cheap to compare.
    let mut same: HashMap<String, Arc<str>> = HashMap::new();
    let names: Vec<Arc<str>> = subjects
        .all
        .iter()
        .map(|(what, method, name)| {
            let subject = match (text(*method), text(*name)) {
                (Some(method::TOOLS_CALL), Some(tool)) => format!("{} {tool}", method::TOOLS_CALL),
                (Some(method), _) => method.to_owned(),
                (None, _) => what.as_str().to_owned(),
            };
            Arc::clone(same.entry(subject).or_insert_with_key(|text| text.as_str().into()))
        })
        .collect();
    let shapes: HashMap<i64, Arc<str>> = texts.iter().map(|(n, text)| (*n, text.as_str().into())).collect();
    let named = |unnamed: Unnamed| Call {
        subject: Arc::clone(&names[unnamed.subject]),
        shape: unnamed.shape.and_then(|n| shapes.get(&n).cloned()),
        ..unnamed.call
    };
    Ok(calls.into_iter().map(named).collect())
}

async fn definitions(connection: &mut AnyConnection, number: i64) -> Result<Vec<Definition>, sqlx::Error> {
    let rows: Vec<(String, Option<String>, Vec<u8>, i64)> = sqlx::query_as(
        "SELECT t.name, v.name, d.hash, d.entry FROM definitions d JOIN names t ON t.id = d.tool \
         LEFT JOIN names v ON v.id = d.via WHERE d.tape = $1 ORDER BY d.entry, t.name, v.name, d.hash",
    )
    .bind(number)
    .fetch_all(connection)
    .await?;
    let definition = |(tool, via, hash, entry): (String, Option<String>, Vec<u8>, i64)| {
        Some(Definition { tool, via, hash: hash.try_into().ok()?, entry: uint(entry) })
    };
    Ok(rows.into_iter().filter_map(definition).collect())
}
