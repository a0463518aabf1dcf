//! Answers a query: one page of hits, and facets over all matches.
//!
//! Conditions on rows are part of the SQL. Conditions on fields of messages (parameters, results) are checked on the
//! tapes, for the rows that match everything else. If that would take too long, or if a word is in almost every
//! message, only a limited number of rows is checked, and the answer says so.

mod facets;
mod name_lookup;
mod results;
mod row_conditions;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use scrubjay_core::delivery::UndeliveredSum;
use scrubjay_core::exchange::{ExchangeKind, searchable, searchable_marks};
use scrubjay_core::export::iso_time;
use scrubjay_core::query::{Conditions, MessageMember, SearchQuery, SortField, SortOrder};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use super::entry_lookup::{TapeKey, visit_entries};
use super::fill::{INTERCEPTED, ORIGINAL, RULE};
use super::snippet::cut;
use super::sql::{Sql, is_one_of};
use super::{Index, IndexError, uint};
use facets::Group;
use row_conditions::RowConditions;
use scrubjay_tape::delivery::LaterTapes;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::home::Home;

pub use facets::{Facet, Facets};
pub use results::{SearchResults, TapeHit, WhyBounded};

/// The most rows that are checked on tapes: about a second of work. The answer says if there were more.
const CANDIDATES_MAX: usize = 50_000;

/// The columns of a row of `exchanges` that filters and hits need.
#[derive(Clone, Copy, Debug)]
struct Row {
    id: i64,
    tape: i64,
    entry: u64,
    answer: Option<u64>,
    wall_ns: i64,
    what: i64,
    answered_with: Option<i64>,
    method: Option<i64>,
    name: Option<i64>,
    via: Option<i64>,
    took_ns: Option<i64>,
    failed: bool,
    code: Option<i64>,
    bytes: i64,
    tokens: i64,
    marks: i64,
    /// If fields are to be checked: a bit for each part of the query, set if the row matches that part without its
    /// fields.
    parts: i64,
}

const COLUMNS: &str = "e.id, e.entry, e.answer, e.wall_ns, e.what, e.answered_with, e.method, e.name, e.via, \
                       e.took_ns, e.failed, e.code, e.asked_bytes + e.answered_bytes, \
                       e.asked_tokens + e.answered_tokens, e.marks, e.tape";

impl Row {
    fn read(row: &AnyRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            entry: uint(row.try_get(1)?),
            answer: row.try_get::<Option<i64>, _>(2)?.map(uint),
            wall_ns: row.try_get(3)?,
            what: row.try_get(4)?,
            answered_with: row.try_get(5)?,
            method: row.try_get(6)?,
            name: row.try_get(7)?,
            via: row.try_get(8)?,
            took_ns: row.try_get(9)?,
            failed: row.try_get::<i64, _>(10)? != 0,
            code: row.try_get(11)?,
            bytes: row.try_get(12)?,
            tokens: row.try_get(13)?,
            marks: row.try_get(14)?,
            tape: row.try_get(15)?,
            parts: row.try_get(16)?,
        })
    }
}

/// A row of `tapes`.
#[derive(Clone, Debug)]
struct TapeRow {
    number: i64,
    id: String,
    server: String,
    session: String,
    started_ns: i64,
    /// The first and last id of its exchanges.
    first_id: i64,
    last_id: i64,
}

type Tapes = HashMap<i64, TapeRow>;

impl Index {
    /// Searches what is indexed so far; [`Index::refresh`] updates it.
    ///
    /// # Errors
    /// The database failed.
    pub async fn search(&self, query: &SearchQuery) -> Result<SearchResults, IndexError> {
        // One transaction, so that hits, facets and total agree.
        let mut tx = self.read().await?;
        let tapes = load_tapes(&mut tx).await?;
        let (query, tapes) = self.with_ids(query, tapes).await;
        let query = &query;
        let mut conditions = RowConditions::new(&mut tx, self.dialect(), &query.conditions, &tapes).await?;
        let is_frequent = conditions.bound_text(&mut tx, self.frequent_max).await?;
        let mut bounded = is_frequent.then_some((self.frequent_max, WhyBounded::FrequentWords));
        let (rows, facets) = if query.conditions.fields().is_empty() {
            let facets = facets::count(&mut tx, &conditions, &tapes).await?;
            (fetch(&mut tx, query, &conditions, query.limit, query.offset).await?, facets)
        } else {
            // One more than is checked, to find out whether there are more.
            let candidates = fetch(&mut tx, query, &conditions, CANDIDATES_MAX + 1, 0).await?;
            if candidates.len() > CANDIDATES_MAX {
                bounded = Some((CANDIDATES_MAX, WhyBounded::Fields));
            }
            let matching = self.filter(&query.conditions, &tapes, candidates).await;
            let facets = facets::sum_groups(&mut tx, matching.iter().map(Group::of), &tapes).await?;
            (matching.into_iter().skip(query.offset).take(query.limit).collect(), facets)
        };
        let names = names_of(&mut tx, &rows).await?;
        let applied = applied_rules(&mut tx, &rows).await?;
        tx.commit().await?;
        let hits = self.hits(query, tapes, rows, names, applied).await;
        Ok(SearchResults {
            total: facets.total,
            total_is_exact: bounded.is_none(),
            looked_at_only: bounded.map(|(count, _)| count as u64),
            why_bounded: bounded.map(|(_, why)| why),
            hits,
            facets,
        })
    }

    /// Replaces names of tapes and sessions in the query by ids.
    async fn with_ids(&self, query: &SearchQuery, tapes: Tapes) -> (SearchQuery, Tapes) {
        let mut query = query.clone();
        if !name_lookup::is_needed(&query.conditions, &tapes) {
            return (query, tapes);
        }
        let (home, given) = (self.home.clone(), query.clone());
        let looking = tokio::task::spawn_blocking(move || {
            name_lookup::resolve(&home, &mut query.conditions, &tapes);
            (query, tapes)
        });
        // The lookup fails only by a panic. Without tapes nothing matches, which is better than a wrong tape.
        looking.await.unwrap_or_else(|_| (given, Tapes::new()))
    }

    /// Keeps the candidates whose messages match the query's fields.
    async fn filter(&self, query: &Conditions, tapes: &Tapes, mut candidates: Vec<Row>) -> Vec<Row> {
        candidates.truncate(CANDIDATES_MAX);
        let wanted = entries_of(tapes, &candidates);
        let (home, query) = (self.home.clone(), query.clone());
        let filtering = move || {
            let fields = query.fields();
            let mut matches: HashMap<(i64, u64), Vec<bool>> = HashMap::new();
            visit_entries(&home, &wanted, |key, number, entry| {
                let message = serde_json::from_slice(entry.payload).unwrap_or_default();
                let matching =
                    fields.iter().map(|(member, filter)| filter.holds(&message, *member)).collect();
                matches.insert((key.number, number), matching);
            });
            candidates.retain(|row| {
                let field = |at: usize| {
                    // An answer whose request is not on the tape is a row of its own.
                    let number = match fields[at].0 {
                        MessageMember::Params => row.entry,
                        MessageMember::Result | MessageMember::Error => row.answer.unwrap_or(row.entry),
                    };
                    matches.get(&(row.tape, number)).is_some_and(|matching| matching[at])
                };
                // Part 0 is the query itself, which matches every candidate except for its fields.
                let part = |at: usize| at.checked_sub(1).is_none_or(|bit| row.parts >> bit & 1 == 1);
                query.hold(part, field)
            });
            candidates
        };
        tokio::task::spawn_blocking(filtering).await.unwrap_or_default()
    }

    async fn hits(
        &self,
        query: &SearchQuery,
        tapes: Tapes,
        rows: Vec<Row>,
        names: HashMap<i64, String>,
        mut applied: HashMap<i64, AppliedRules>,
    ) -> Vec<TapeHit> {
        let (home, terms) = (self.home.clone(), query.conditions.wanted_text());
        let work = move || {
            let texts = texts_of(&home, &entries_of(&tapes, &rows));
            let undelivered = undelivered_of(&home, &tapes, &rows);
            let mut hit = |row: &Row| {
                let (applied_rules, tags) = applied.remove(&row.id).unwrap_or_default();
                let tape = tapes.get(&row.tape);
                let name = |number: Option<i64>| number.and_then(|n| names.get(&n).cloned());
                let text: Vec<&str> = [Some(row.entry), row.answer]
                    .into_iter()
                    .flatten()
                    .filter_map(|number| texts.get(&(row.tape, number)))
                    .map(String::as_str)
                    .collect();
                TapeHit {
                    tape: tape.map(|t| t.id.clone()).unwrap_or_default(),
                    server: tape.map(|t| t.server.clone()).unwrap_or_default(),
                    session: tape.map(|t| t.session.clone()).unwrap_or_default(),
                    entry: row.entry,
                    answer: row.answer,
                    time: iso_time(uint(row.wall_ns)),
                    wall_ns: uint(row.wall_ns),
                    what: ExchangeKind::of_code(row.what).unwrap_or(ExchangeKind::Opaque),
                    answered_with: row.answered_with.and_then(ExchangeKind::of_code),
                    method: name(row.method),
                    name: name(row.name),
                    via: name(row.via),
                    response_time_ns: row.took_ns.map(uint),
                    failed: row.failed,
                    error_code: row.code,
                    size_bytes: uint(row.bytes),
                    tokens: uint(row.tokens),
                    undelivered: undelivered.get(&row.tape).and_then(|sum| {
                        let why = sum.why(row.entry).or_else(|| sum.why(row.answer?));
                        why.map(str::to_owned)
                    }),
                    intercepted: row.marks & INTERCEPTED != 0,
                    has_original: row.marks & ORIGINAL != 0,
                    applied_rules,
                    tags,
                    snippet: cut(&text.join("\n"), &terms),
                }
            };
            rows.iter().map(&mut hit).collect()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_default()
    }
}

/// Reads from the tapes which entries were not delivered. It is not in the index, because it may be noted long after
/// the entry was indexed.
fn undelivered_of(home: &Home, tapes: &Tapes, rows: &[Row]) -> HashMap<i64, UndeliveredSum> {
    let numbers: BTreeSet<i64> = rows.iter().map(|row| row.tape).collect();
    let open = |number: i64| home.open(&home.find(&tapes.get(&number)?.id).ok()?).ok();
    let opened: Vec<_> = numbers.into_iter().filter_map(|number| Some((number, open(number)?))).collect();
    let mut later = LaterTapes::of(home, opened.iter().map(|(_, tape)| tape));
    let sum = |(number, tape): &(i64, Tape)| Some((*number, later.undelivered(home, tape).ok()?));
    opened.iter().filter_map(sum).collect()
}

async fn load_tapes(connection: &mut AnyConnection) -> Result<Tapes, sqlx::Error> {
    let rows: Vec<(i64, String, String, String, i64, i64, i64)> =
        sqlx::query_as("SELECT number, id, server, session, started_ns, first_id, last_id FROM tapes")
            .fetch_all(connection)
            .await?;
    let tape = |(number, id, server, session, started_ns, first_id, last_id)| {
        (number, TapeRow { number, id, server, session, started_ns, first_id, last_id })
    };
    Ok(rows.into_iter().map(tape).collect())
}

async fn fetch(
    connection: &mut AnyConnection,
    query: &SearchQuery,
    conditions: &RowConditions,
    limit: usize,
    offset: usize,
) -> Result<Vec<Row>, sqlx::Error> {
    let mut sql = Sql::new(format!("SELECT {COLUMNS}, "));
    if query.conditions.fields().is_empty() {
        sql.push("CAST(0 AS BIGINT)");
    } else {
        conditions.push_parts(&mut sql);
    }
    sql.push(" ");
    conditions.push(&mut sql);
    let direction = match query.order {
        SortOrder::Descending => "DESC",
        SortOrder::Ascending => "ASC",
    };
    let by = match query.sort {
        SortField::Time => String::new(),
        SortField::Took => format!("e.took_ns IS NULL, e.took_ns {direction}, "),
        SortField::Size => format!("e.asked_bytes + e.answered_bytes {direction}, "),
        SortField::Tokens => format!("e.asked_tokens + e.answered_tokens {direction}, "),
    };
    // Ordered by tape id and not by the index's own numbers, because a rebuilt index may number tapes differently.
    sql.push(&format!(
        " ORDER BY {by}e.wall_ns {direction}, (SELECT id FROM tapes WHERE number = e.tape) {direction}, \
         e.place {direction} LIMIT {} OFFSET {}",
        i64::try_from(limit).unwrap_or(i64::MAX),
        i64::try_from(offset).unwrap_or(i64::MAX)
    ));
    let rows = sql.fetch(connection).await?;
    rows.iter().map(Row::read).collect()
}

async fn names_of(connection: &mut AnyConnection, rows: &[Row]) -> Result<HashMap<i64, String>, sqlx::Error> {
    names(connection, rows.iter().flat_map(|row| [row.method, row.name, row.via])).await
}

/// Looks up names by their numbers.
pub(super) async fn names(
    connection: &mut AnyConnection,
    numbers: impl Iterator<Item = Option<i64>>,
) -> Result<HashMap<i64, String>, sqlx::Error> {
    let mut numbers: Vec<i64> = numbers.flatten().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let rows = Sql::new(format!("SELECT id, name FROM names WHERE {}", is_one_of("id", &numbers)))
        .fetch(connection)
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Returns the entries of rows, by tape.
fn entries_of(tapes: &Tapes, rows: &[Row]) -> BTreeMap<TapeKey, Vec<u64>> {
    let mut wanted: BTreeMap<TapeKey, Vec<u64>> = BTreeMap::new();
    for row in rows {
        let Some(tape) = tapes.get(&row.tape) else { continue };
        let key = TapeKey { number: tape.number, id: tape.id.clone(), started_ns: uint(tape.started_ns) };
        wanted.entry(key).or_default().extend([Some(row.entry), row.answer].into_iter().flatten());
    }
    for entries in wanted.values_mut() {
        entries.sort_unstable();
        entries.dedup();
    }
    wanted
}

/// The rules that applied to an exchange, and the tags they gave.
type AppliedRules = (BTreeSet<String>, BTreeSet<String>);

/// Looks up which rules applied to rows, and which tags they gave.
async fn applied_rules(
    connection: &mut AnyConnection,
    rows: &[Row],
) -> Result<HashMap<i64, AppliedRules>, sqlx::Error> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let found = Sql::new(format!(
        "SELECT j.exchange, j.kind, n.name FROM judged j JOIN names n ON n.id = j.name WHERE {}",
        is_one_of("j.exchange", &ids)
    ));
    let mut applied: HashMap<i64, AppliedRules> = HashMap::new();
    for row in found.fetch(connection).await? {
        let (rules, tags) = applied.entry(row.try_get(0)?).or_default();
        let names = if row.try_get::<i64, _>(1)? == RULE { rules } else { tags };
        names.insert(row.try_get(2)?);
    }
    Ok(applied)
}

/// Reads the searchable text of entries.
fn texts_of(home: &Home, wanted: &BTreeMap<TapeKey, Vec<u64>>) -> HashMap<(i64, u64), String> {
    let mut seen = HashMap::new();
    visit_entries(home, wanted, |key, number, entry| {
        let mut text = String::new();
        searchable(entry.payload, &mut text);
        searchable_marks(entry.rule_marks, &mut text);
        seen.insert((key.number, number), text);
    });
    seen
}
