//! Citations of code in records, and whether the cited lines have changed since.
//!
//! A citation stores the cited lines, if the ledger has the file. It is suspect once the newest revision of that file
//! has other lines there. The workspace itself is never read.

use scrubjay_core::diff;
use sqlx::Row;

use super::collection::RecordCollection;
use super::scope::Scope;
use super::{RecordError, RecordId};
use crate::ledger::blob::{self, Hash};
use crate::ledger::statement::{change, select};
use crate::ledger::{LedgerConnection, LedgerError, Write, moves, revision};

/// The most citations of a record: each stores its lines and is compared when the record is activated.
const CITATIONS_MAX: usize = 20;
/// The longest path, in characters.
const PATH_CHARS_MAX: usize = 1_000;

/// Some lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Citation {
    /// The file, relative to the workspace.
    path: String,
    /// The first line, from 1.
    first: i64,
    /// The last line.
    last: i64,
}

/// A citation whose lines have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspectCitation {
    /// The citing record.
    pub id: RecordId,
    /// The citation, as `path#L1-L9`.
    pub citation: String,
    /// What changed, as a unified diff; `None` if the file is gone.
    pub diff: Option<String>,
}

/// Reads `path#L3-L9` or `path#L3`.
fn parse(text: &str) -> Option<Citation> {
    let (path, lines) = text.rsplit_once("#L")?;
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0).map(i64::from);
    let (first, last) = (number(first)?, number(last.strip_prefix('L').unwrap_or(last))?);
    let valid = first <= last
        && !path.is_empty()
        && path.chars().count() <= PATH_CHARS_MAX
        && !path.chars().any(char::is_control);
    valid.then(|| Citation { path: path.to_owned(), first, last })
}

impl Citation {
    fn lines_of(&self, text: &str) -> String {
        let (skipped, count) = ((self.first - 1) as usize, (self.last - self.first + 1) as usize);
        text.split_inclusive('\n').skip(skipped).take(count).collect()
    }
}

/// Checks that citations are valid.
pub(super) fn check(citations: &[String]) -> Result<(), RecordError> {
    if citations.len() > CITATIONS_MAX {
        return Err(RecordError::Invalid(format!("a record has at most {CITATIONS_MAX} citations")));
    }
    match citations.iter().find(|text| parse(text).is_none()) {
        Some(wrong) => Err(RecordError::Invalid(format!(
            "\"{wrong}\" is not a citation: write it like src/main.rs#L10-L20"
        ))),
        None => Ok(()),
    }
}

/// Replaces the citations of a record, and stores the cited lines as they are now.
pub(super) async fn store(
    write: &mut Write,
    scope: &Scope,
    id: RecordId,
    citations: &[String],
) -> Result<(), LedgerError> {
    change("DELETE FROM record_citations WHERE book = $1 AND number = $2")
        .bind(scope.collection.id)
        .bind(id.0)
        .execute(write)
        .await?;
    // Without a workspace a path names no file of the ledger.
    let Some(workspace) = scope.session.workspace.as_deref().or(scope.caller.workspace.as_deref()) else {
        return Ok(());
    };
    for (position, citation) in citations.iter().filter_map(|text| parse(text)).enumerate() {
        let newest = revision::latest(write, workspace, &citation.path).await?;
        let content = match newest.as_ref().and_then(|revision| revision.after) {
            Some(hash) => match lines(write, &hash, &citation).await? {
                Some(lines) => Some(blob::put(write, lines.as_bytes()).await?),
                None => None,
            },
            None => None,
        };
        change(
            "INSERT INTO record_citations (book, number, place, workspace, path, first_line, last_line,
                 revision, content) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        )
        .bind(scope.collection.id)
        .bind(id.0)
        .bind(position as i64)
        .bind(write.clean(workspace))
        .bind(write.clean(&citation.path))
        .bind(citation.first)
        .bind(citation.last)
        .bind(newest.map_or(0, |revision| revision.id))
        .bind(content)
        .execute(write)
        .await?;
    }
    Ok(())
}

/// Returns the citations of a record whose lines have changed.
///
/// # Errors
/// The ledger failed.
pub async fn suspects(
    on: &mut impl LedgerConnection,
    collection: &RecordCollection,
    id: RecordId,
) -> Result<Vec<SuspectCitation>, LedgerError> {
    let rows = select(
        "SELECT workspace, path, first_line, last_line, revision, content FROM record_citations
         WHERE book = $1 AND number = $2 ORDER BY place",
    )
    .bind(collection.id)
    .bind(id.0)
    .fetch_all(on.conn())
    .await?;
    let mut suspects = Vec::new();
    for row in &rows {
        let (workspace, cited): (String, i64) = (row.try_get(0)?, row.try_get(4)?);
        let citation = Citation { path: row.try_get(1)?, first: row.try_get(2)?, last: row.try_get(3)? };
        // The workspace may have moved since; the newest revision is then under its new root.
        let workspace = moves::current_root(on, &workspace, cited).await?;
        // A file that was never recorded cannot be compared, so it is not suspect.
        let Some(newest) = revision::latest(on, &workspace, &citation.path).await? else { continue };
        if newest.id == cited {
            continue;
        }
        let stored = row.try_get::<Option<Vec<u8>>, _>(5)?.map(blob::from_column).transpose()?;
        let then = match stored {
            Some(hash) => text(on, &hash).await?,
            // The ledger did not have the file when it was cited. The first later revision names the content before it,
            // which is what was cited.
            None => match revision::first_after(on, &workspace, &citation.path, cited)
                .await?
                .and_then(|r| r.before)
            {
                Some(hash) => lines(on, &hash, &citation).await?,
                None => None,
            },
        };
        let Some(then) = then else { continue };
        let now = match newest.after {
            Some(hash) => lines(on, &hash, &citation).await?,
            None => None,
        };
        if now.as_ref() != Some(&then) {
            let written = format!("{}#L{}-L{}", citation.path, citation.first, citation.last);
            let diff = now.map(|now| diff::unified(then.as_bytes(), now.as_bytes(), &written, &written));
            suspects.push(SuspectCitation { id, citation: written, diff });
        }
    }
    Ok(suspects)
}

async fn text(on: &mut impl LedgerConnection, hash: &Hash) -> Result<Option<String>, LedgerError> {
    let bytes = blob::get(on, hash).await?;
    Ok(diff::as_text(&bytes).map(str::to_owned))
}

/// Returns the cited lines of a content; `None` if it is not text.
async fn lines(
    on: &mut impl LedgerConnection,
    hash: &Hash,
    citation: &Citation,
) -> Result<Option<String>, LedgerError> {
    Ok(text(on, hash).await?.map(|text| citation.lines_of(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn citations_are_read_as_people_write_them() {
        let lines = |text: &str| parse(text).map(|c| (c.path, c.first, c.last));
        assert_eq!(lines("src/a.rs#L3-L9"), Some(("src/a.rs".to_owned(), 3, 9)));
        assert_eq!(lines("a#b.rs#L3-9"), Some(("a#b.rs".to_owned(), 3, 9)));
        assert_eq!(lines("a.rs#L3"), Some(("a.rs".to_owned(), 3, 3)));
        for wrong in ["", "a.rs", "a.rs#3", "#L1", "a.rs#L0", "a.rs#L9-L3", "a.rs#L1-", "a\n#L1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let cited = Citation { path: String::new(), first: 2, last: 3 };
        assert_eq!(cited.lines_of("a\nb\nc\nd"), "b\nc\n");
        assert_eq!(cited.lines_of("a\nb"), "b");
    }
}
