//! Progress entries: "what I did and how I did it". Each belongs to a project, and is an event of its session.
//!
//! An entry never changes, except that it gets a summary when one is first requested. Its primary key is the
//! microsecond of its creation, made unique, so that the order of keys is the order of time. A project has a short
//! number, its scope, which is the first column of the indexes.

pub mod claim;
pub mod search;
mod text;

use serde_json::json;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::event::{self, EventKind, NewEvent};
use super::session::{Caller, Session};
use super::statement::{Key, SearchWords, change, select};
use super::words::{Folding, fold_case};
use super::{LedgerConnection, LedgerError, Write, project};
use scrubjay_core::id::TapeId;
use scrubjay_core::redact::RedactedText;

/// How titles, contents and queries are cut into words. It cannot change, because the words of every entry are stored.
pub const FOLDING: Folding = Folding::KeepAccents;
/// The length of an id: short enough to type; an id that is taken already is drawn again.
pub const ID_CHARS: usize = 12;

/// An entry to be logged.
#[derive(Clone, Copy, Debug)]
pub struct NewProgressEntry<'a> {
    /// The project; it is created if needed.
    pub project: &'a str,
    /// What was done, in a few words.
    pub title: &'a str,
    /// What was done and how.
    pub content: &'a str,
    /// What it is filed under.
    pub tags: &'a [String],
    /// Who did it, as they call themselves.
    pub agent_id: Option<&'a str>,
}

/// A progress entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressEntry {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project_id: String,
    /// When it was logged, microseconds since the Unix epoch.
    pub at_us: i64,
    /// What was done, in a few words.
    pub title: String,
    /// What was done and how.
    pub content: String,
    /// What it is filed under.
    pub tags: Vec<String>,
    /// Who did it, as they call themselves.
    pub agent_id: Option<String>,
    /// Its summary, once one was requested.
    pub summary: Option<String>,
    /// The session it was logged in.
    pub session_id: String,
    /// The event that records it.
    pub event_id: i64,
}

const SELECT: &str = "SELECT e.id, s.project_id, e.at_us, e.title, e.content, e.tags, e.agent_id, e.summary,
    e.session_id, e.event_id FROM progress_entries e JOIN progress_scopes s ON s.number = e.scope";

impl ProgressEntry {
    fn of(row: &AnyRow) -> Result<Self, LedgerError> {
        Ok(Self {
            id: row.try_get(0)?,
            project_id: row.try_get(1)?,
            at_us: row.try_get(2)?,
            title: row.try_get(3)?,
            content: row.try_get(4)?,
            tags: read_tags(&row.try_get::<String, _>(5)?)?,
            agent_id: row.try_get(6)?,
            summary: row.try_get(7)?,
            session_id: row.try_get(8)?,
            event_id: row.try_get(9)?,
        })
    }
}

fn read_tags(text: &str) -> Result<Vec<String>, LedgerError> {
    serde_json::from_str(text).map_err(|e| LedgerError::Damaged(format!("an entry's tags: {e}")))
}

/// Logs an entry, and creates its project if needed.
///
/// # Errors
/// The ledger failed.
pub async fn log(
    write: &mut Write,
    caller: &Caller,
    session: &Session,
    new: NewProgressEntry<'_>,
) -> Result<ProgressEntry, LedgerError> {
    let scope = ensure_scope(write, new.project).await?;
    // Both are looked up and used in one mutation, so no other writer can take them in between.
    let id = unused_id(write).await?;
    let at_us = unused_time_us(write).await?;
    let details = json!({
        "project_id": new.project, "id": id, "title": new.title, "tags": new.tags, "agent_id": new.agent_id,
    });
    let event = NewEvent::new(EventKind::Progress, new.title).about(&id).with(details);
    let event_id = event::append(write, session, caller, event).await?;
    let texts = EntryTexts {
        title: write.clean(new.title),
        content: write.clean(new.content),
        tags: new.tags.iter().map(|tag| write.clean(tag)).collect(),
        agent_id: new.agent_id.map(|agent| write.clean(agent)),
    };
    let entry = ProgressEntry {
        id,
        project_id: new.project.to_owned(),
        at_us,
        title: texts.title.to_string(),
        content: texts.content.to_string(),
        tags: texts.tags.iter().map(ToString::to_string).collect(),
        agent_id: texts.agent_id.as_ref().map(ToString::to_string),
        summary: None,
        session_id: session.id.clone(),
        event_id,
    };
    insert(write, scope, &entry, &texts).await?;
    text::index(write, scope, at_us, &texts).await?;
    Ok(entry)
}

/// The redacted texts of an entry.
struct EntryTexts {
    title: RedactedText,
    content: RedactedText,
    tags: Vec<RedactedText>,
    agent_id: Option<RedactedText>,
}

async fn insert(
    write: &mut Write,
    scope: i64,
    entry: &ProgressEntry,
    texts: &EntryTexts,
) -> Result<(), LedgerError> {
    // Stored folded, because LIKE ignores the case of ASCII letters only, and on PostgreSQL of none.
    let title_folded = SearchWords::cut_from(&[&texts.title], fold_case(texts.title.as_str()));
    change(
        "INSERT INTO progress_entries (at_us, scope, id, session_id, event_id, agent_id, title, title_folded,
             tags, content) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    )
    .bind(entry.at_us)
    .bind(scope)
    .bind(Key::known(&entry.id))
    .bind(Key::known(&entry.session_id))
    .bind(entry.event_id)
    .bind(texts.agent_id.clone())
    .bind(&texts.title)
    .bind(title_folded.clone())
    .bind(RedactedText::json_list(&texts.tags))
    .bind(&texts.content)
    .execute(write)
    .await?;
    for tag in &texts.tags {
        // With time and title, so that a search by tags filters without reading entries. The same tag twice is one tag.
        change(
            "INSERT INTO progress_tags (scope, tag, at_us, title_folded) VALUES ($1, $2, $3, $4)
             ON CONFLICT (scope, tag, at_us, title_folded) DO NOTHING",
        )
        .bind(scope)
        .bind(tag)
        .bind(entry.at_us)
        .bind(title_folded.clone())
        .execute(write)
        .await?;
    }
    Ok(())
}

/// Returns a project's scope, if it has entries.
async fn scope_of(on: &mut impl LedgerConnection, project: &str) -> Result<Option<i64>, LedgerError> {
    let row = select("SELECT number FROM progress_scopes WHERE project_id = $1")
        .bind(project)
        .fetch_optional(on.conn())
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

async fn ensure_scope(write: &mut Write, project: &str) -> Result<i64, LedgerError> {
    if let Some(scope) = scope_of(write, project).await? {
        return Ok(scope);
    }
    project::ensure(write, project).await?;
    let row = change("INSERT INTO progress_scopes (project_id) VALUES ($1) RETURNING number")
        .bind(Key::known(project))
        .fetch_one(write)
        .await?;
    Ok(row.try_get(0)?)
}

async fn unused_id(write: &mut Write) -> Result<String, LedgerError> {
    loop {
        let mut random = [0; 10];
        getrandom::fill(&mut random).expect("the system has a source of randomness");
        let id = TapeId::from_random(random).as_str()[..ID_CHARS].to_owned();
        let taken = select("SELECT 1 FROM progress_entries WHERE id = $1")
            .bind(&id)
            .fetch_optional(write.conn())
            .await?;
        if taken.is_none() {
            return Ok(id);
        }
    }
}

/// Returns this microsecond, or the next one that no entry has: the clock may have been set back.
async fn unused_time_us(write: &mut Write) -> Result<i64, LedgerError> {
    let now_us = write.at_ns() / 1000;
    // NULL if nobody has this microsecond, which is the usual case; otherwise the end of the run of taken ones.
    let row = select(
        "SELECT min(e.at_us) + 1 FROM progress_entries e
         WHERE e.at_us >= $1 AND EXISTS (SELECT 1 FROM progress_entries f WHERE f.at_us = $1)
           AND NOT EXISTS (SELECT 1 FROM progress_entries n WHERE n.at_us = e.at_us + 1)",
    )
    .bind(now_us)
    .fetch_one(write.conn())
    .await?;
    Ok(row.try_get::<Option<i64>, _>(0)?.unwrap_or(now_us))
}

/// Returns an entry of a project.
///
/// # Errors
/// The ledger failed.
pub async fn get(
    on: &mut impl LedgerConnection,
    project: &str,
    id: &str,
) -> Result<Option<ProgressEntry>, LedgerError> {
    let row = select(sqlx::AssertSqlSafe(format!("{SELECT} WHERE e.id = $2 AND s.project_id = $1")))
        .bind(project)
        .bind(id)
        .fetch_optional(on.conn())
        .await?;
    row.as_ref().map(ProgressEntry::of).transpose()
}

/// Returns the newest entries of a project between two moments, both included, newest first.
///
/// # Errors
/// The ledger failed.
pub async fn between(
    on: &mut impl LedgerConnection,
    project: &str,
    from_us: i64,
    until_us: i64,
    limit: i64,
) -> Result<Vec<ProgressEntry>, LedgerError> {
    let rows = select(sqlx::AssertSqlSafe(format!(
        "{SELECT} WHERE s.project_id = $1 AND e.at_us BETWEEN $2 AND $3 ORDER BY e.at_us DESC LIMIT $4"
    )))
    .bind(project)
    .bind(from_us)
    .bind(until_us)
    .bind(limit)
    .fetch_all(on.conn())
    .await?;
    rows.iter().map(ProgressEntry::of).collect()
}

/// Stores an entry's summary unless it has one; returns the stored one.
///
/// # Errors
/// The ledger failed, or there is no such entry.
pub async fn store_summary(
    write: &mut Write,
    id: &str,
    summary: &str,
    model: &str,
) -> Result<String, LedgerError> {
    // The first summary stays, so that all readers see the same one, even if two models were asked.
    let row = change(
        "UPDATE progress_entries SET summary = coalesce(summary, $2), summary_model = coalesce(summary_model, $3)
         WHERE id = $1 RETURNING summary",
    )
    .bind(Key::known(id))
    .bind(write.clean(summary))
    .bind(write.clean(model))
    .fetch_one(write)
    .await?;
    Ok(row.try_get(0)?)
}
