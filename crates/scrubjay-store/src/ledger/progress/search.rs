//! Searches entries: by a part of their titles or by words, by tags, by time.
//!
//! Titles are scanned in an index of their own; entries behind the requested page are only counted. With tags, only the
//! entries of the rarest tag are scanned. Words use full-text search; if there are many matches, the newest are ranked.

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query as Statement;
use sqlx::{Any, AssertSqlSafe, Row};

use super::{read_tags, scope_of, text};
use crate::ledger::statement::select;
use crate::ledger::words::{Term, fold_case};
use crate::ledger::{LedgerConnection, LedgerError};

/// The most matches that are ranked, the newest: ranking reads every match.
const RANKED_MAX: i64 = 1_000;
/// The most tags of an entry, as the toolset limits them. A search for more of them matches nothing.
const TAGS_MAX: usize = 10;
/// The most entries of a tag that are counted to find the rarest tag: above this, all tags count as frequent.
const RARE_MAX: i64 = 1_000;
/// The most characters of a folded title. A search for a longer part matches nothing.
const TITLE_FOLDED_CHARS_MAX: usize = 300;

/// Which entries to find.
#[derive(Clone, Debug)]
pub struct EntrySearch<'a> {
    /// The project.
    pub project: &'a str,
    /// What the texts must contain.
    pub text: TextFilter<'a>,
    /// The tags that each entry must have.
    pub tags: &'a [String],
    /// The session in which they were logged.
    pub session: Option<&'a str>,
    /// The earliest time, microseconds since the Unix epoch; included.
    pub from_us: i64,
    /// The latest time, microseconds since the Unix epoch; included.
    pub until_us: i64,
    /// The most entries to return.
    pub limit: i64,
}

/// What the texts of an entry must contain.
#[derive(Clone, Debug)]
pub enum TextFilter<'a> {
    /// Anything.
    Anything,
    /// This text somewhere in the title, ignoring case.
    InTitle(&'a str),
    /// These words in the title or the content.
    Words(&'a [Term]),
}

/// An entry that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryHit {
    /// Its id.
    pub id: String,
    /// When it was logged, microseconds since the Unix epoch.
    pub at_us: i64,
    /// Its title.
    pub title: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The session in which it was logged.
    pub session_id: String,
    /// The host's own id of that conversation.
    pub host_session: Option<String>,
    /// Its content, if words were searched for.
    pub content: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntrySearchResults {
    /// The newest entries, or the best ones if words were searched for.
    pub hits: Vec<EntryHit>,
    /// How many entries match.
    pub total: i64,
}

/// Finds entries.
///
/// # Errors
/// The ledger failed.
pub async fn find(
    on: &mut impl LedgerConnection,
    search: &EntrySearch<'_>,
) -> Result<EntrySearchResults, LedgerError> {
    let mut tags: Vec<&str> = search.tags.iter().map(String::as_str).collect();
    // A tag that is given twice must not be a second condition.
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > TAGS_MAX {
        return Ok(EntrySearchResults::default());
    }
    let Some(scope) = scope_of(on, search.project).await? else { return Ok(EntrySearchResults::default()) };
    let pattern = match search.text {
        TextFilter::Words(terms) => {
            let query = text::query(on.dialect(), scope, terms, &tags);
            return ranked(on, search, scope, &query).await;
        }
        TextFilter::InTitle(part) if part.chars().count() > TITLE_FOLDED_CHARS_MAX => {
            return Ok(EntrySearchResults::default());
        }
        TextFilter::InTitle(part) if !part.is_empty() => Some(like(&fold_case(part))),
        TextFilter::InTitle(_) | TextFilter::Anything => None,
    };
    rarest_first(on, scope, &mut tags).await?;
    newest(on, search, scope, pattern.as_deref(), &tags).await
}

/// Moves the tag with the fewest entries to the front.
async fn rarest_first(
    on: &mut impl LedgerConnection,
    scope: i64,
    tags: &mut [&str],
) -> Result<(), LedgerError> {
    let mut fewest = i64::MAX;
    // A single tag needs no comparison.
    for n in 0..if tags.len() > 1 { tags.len() } else { 0 } {
        let row = select(
            "SELECT count(*) FROM (SELECT 1 FROM progress_tags WHERE scope = $1 AND tag = $2 LIMIT $3) t",
        )
        .bind(scope)
        .bind(tags[n].to_owned())
        .bind(RARE_MAX)
        .fetch_one(on.conn())
        .await?;
        let count: i64 = row.try_get(0)?;
        if count < fewest {
            fewest = count;
            tags.swap(0, n);
        }
    }
    Ok(())
}

/// The binds of a statement: the scope, the earliest and latest time, then texts.
struct SearchBinds<'a> {
    scope: i64,
    from_us: i64,
    until_us: i64,
    texts: Vec<&'a str>,
}

impl SearchBinds<'_> {
    fn bind(&self, sql: String) -> Statement<'static, Any, AnyArguments> {
        let statement = select(AssertSqlSafe(sql)).bind(self.scope).bind(self.from_us).bind(self.until_us);
        self.texts.iter().fold(statement, |statement, text| statement.bind((*text).to_owned()))
    }
}

/// Finds entries by title, tags and time, the newest first.
async fn newest(
    on: &mut impl LedgerConnection,
    search: &EntrySearch<'_>,
    scope: i64,
    pattern: Option<&str>,
    tags: &[&str],
) -> Result<EntrySearchResults, LedgerError> {
    let texts: Vec<&str> = tags.iter().copied().chain(pattern).chain(search.session).collect();
    let mut binds = SearchBinds { scope, from_us: search.from_us, until_us: search.until_us, texts };
    // The rows of a tag have time and title, too, so entries without the tag are not read.
    let table = if tags.is_empty() { "progress_entries" } else { "progress_tags" };
    let mut from = format!("FROM {table} e WHERE e.scope = $1 AND e.at_us BETWEEN $2 AND $3");
    for n in 0..tags.len() {
        from += &match n {
            0 => " AND e.tag = $4".to_owned(),
            n => format!(
                " AND EXISTS (SELECT 1 FROM progress_tags t WHERE t.scope = $1 AND t.at_us = e.at_us \
                 AND t.tag = ${})",
                4 + n
            ),
        };
    }
    if pattern.is_some() {
        from += &format!(" AND e.title_folded LIKE ${} ESCAPE '\\'", 4 + tags.len());
    }
    if search.session.is_some() {
        from += &of_session("e.at_us", 3 + binds.texts.len());
    }
    let page = format!(
        "SELECT {HIT} FROM (SELECT e.at_us {from} ORDER BY e.at_us DESC LIMIT {}) p
         JOIN progress_entries x ON x.at_us = p.at_us JOIN sessions s ON s.id = x.session_id
         ORDER BY x.at_us DESC",
        search.limit
    );
    let rows = binds.bind(page).fetch_all(on.conn()).await?;
    let hits = rows.iter().map(|row| EntryHit::of(row, None)).collect::<Result<Vec<_>, _>>()?;
    let mut total = hits.len() as i64;
    // A page that is not full holds all matches. Otherwise only entries behind the page are left to count.
    if let Some(last) = hits.last().filter(|_| total >= search.limit) {
        binds.until_us = last.at_us - 1;
        let row = binds.bind(format!("SELECT count(*) {from}")).fetch_one(on.conn()).await?;
        total += row.try_get::<i64, _>(0)?;
    }
    Ok(EntrySearchResults { hits, total })
}

/// Finds entries by words, the best first.
async fn ranked(
    on: &mut impl LedgerConnection,
    search: &EntrySearch<'_>,
    scope: i64,
    query: &str,
) -> Result<EntrySearchResults, LedgerError> {
    let texts: Vec<&str> = std::iter::once(query).chain(search.session).collect();
    let binds = SearchBinds { scope, from_us: search.from_us, until_us: search.until_us, texts };
    let sql = text::search_sql(on.dialect());
    let (key, rank) = (sql.key, sql.rank);
    // The scope is part of every word. It is used as a bind anyway, so that all statements have the same binds.
    let mut from = format!("FROM progress_text WHERE {} AND {key} BETWEEN $2 AND $3 AND $1 > 0", sql.matches);
    if search.session.is_some() {
        from += &of_session(key, 5);
    }
    let page = format!(
        "SELECT {HIT}, x.content FROM
             (SELECT at_us, rank_of FROM
                 (SELECT {key} AS at_us, {rank} AS rank_of {from} ORDER BY {key} DESC LIMIT {RANKED_MAX}) r
              ORDER BY rank_of, at_us DESC LIMIT {}) p
         JOIN progress_entries x ON x.at_us = p.at_us JOIN sessions s ON s.id = x.session_id
         ORDER BY p.rank_of, x.at_us DESC",
        search.limit
    );
    let rows = binds.bind(page).fetch_all(on.conn()).await?;
    let hits = rows.iter().map(|row| EntryHit::of(row, Some(6))).collect::<Result<Vec<_>, _>>()?;
    let mut total = hits.len() as i64;
    if total >= search.limit {
        let row = binds.bind(format!("SELECT count(*) {from}")).fetch_one(on.conn()).await?;
        total = row.try_get(0)?;
    }
    Ok(EntrySearchResults { hits, total })
}

/// The columns of a hit.
const HIT: &str = "x.id, x.at_us, x.title, x.tags, s.id, s.host_session";

impl EntryHit {
    fn of(row: &AnyRow, content: Option<usize>) -> Result<Self, LedgerError> {
        Ok(Self {
            id: row.try_get(0)?,
            at_us: row.try_get(1)?,
            title: row.try_get(2)?,
            tags: read_tags(&row.try_get::<String, _>(3)?)?,
            session_id: row.try_get(4)?,
            host_session: row.try_get(5)?,
            content: content.map(|column| row.try_get(column)).transpose()?,
        })
    }
}

/// Returns the condition that the entry of a time was logged in the session of a bind.
fn of_session(at_us: &str, bind: usize) -> String {
    format!(
        " AND EXISTS (SELECT 1 FROM progress_entries q WHERE q.at_us = {at_us} AND q.session_id = ${bind})"
    )
}

/// Returns the LIKE pattern of the texts that contain a part.
fn like(part: &str) -> String {
    let mut pattern = "%".to_owned();
    for c in part.chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}
