//! Evolutions: the files that a session changed, and a file's revisions with their diffs, across moves of its
//! workspace.

use std::collections::BTreeMap;

use scrubjay_core::diff;
use scrubjay_core::tokens::estimate_tokens;
use scrubjay_core::units::counted;
use serde::Serialize;
use sqlx::Row;

use super::address::{self, Side};
use super::budget::{self, Window};
use super::steps::{self, StepView};
use super::{SessionView, ViewError, iso};
use crate::ledger::blob::{self, Hash, hex};
use crate::ledger::revision::{self, Revision, RevisionSource, RevisionState};
use crate::ledger::session::Session;
use crate::ledger::statement::select;
use crate::ledger::{LedgerConnection, LedgerError, moves};

/// The fewest tokens that a cut diff or content keeps, even if the view then exceeds its limit.
const CUT_TOKENS_MIN: usize = 50;

/// The files a session changed.
#[derive(Clone, Debug, Serialize)]
pub struct ChangedFiles {
    /// The session.
    pub session: SessionView,
    /// The files.
    pub files: Vec<FileView>,
    /// How many there are in all.
    pub total: i64,
}

/// What is shown of a changed file.
#[derive(Clone, Debug, Serialize)]
pub struct FileView {
    /// The path in the workspace.
    pub path: String,
    /// The root of the workspace, where it is now.
    pub workspace: String,
    /// How many revisions the session made or found.
    pub revisions: i64,
    /// How many lines were added.
    pub added: i64,
    /// How many were removed.
    pub removed: i64,
}

/// A page of a file's revisions.
#[derive(Clone, Debug, Serialize)]
pub struct Evolution {
    /// The path in the workspace.
    pub path: String,
    /// The root of the workspace, where it is now.
    pub workspace: String,
    /// Where the workspace was before it moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved_from: Vec<String>,
    /// Its revisions, of this session and of others.
    pub revisions: Vec<RevisionView>,
    /// The revision after which the next page begins; `None` if this is the last.
    pub next_after: Option<i64>,
    /// How many there are in all.
    pub total: i64,
}

/// What is shown of a revision.
#[derive(Clone, Debug, Serialize)]
pub struct RevisionView {
    /// Its number.
    pub id: i64,
    /// The event that records it.
    pub event_id: i64,
    /// When it was recorded.
    pub at: String,
    /// The session that recorded it.
    pub session_id: String,
    /// The plan step it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepView>,
    /// Where the workspace was then, if it moved since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Whether Scrubjay made the change, an agent reported it, or it was observed.
    pub source: RevisionSource,
    /// Whether it happened.
    pub state: RevisionState,
    /// The hash of the content; `None` if the file was deleted.
    pub hash: Option<String>,
    /// The URI of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// The hash of the content before.
    pub before_hash: Option<String>,
    /// Its URI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_uri: Option<String>,
    /// The size of the content in bytes.
    pub size: i64,
    /// The number of its lines.
    pub lines: i64,
    /// How many lines were added.
    pub added: i64,
    /// How many were removed.
    pub removed: i64,
    /// For a file's first revision: the text from before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_content: Option<String>,
    /// What changed, as a unified diff.
    pub diff: String,
    /// A note that the content or the diff was cut, and how to read all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// Lists the files that a session changed, up to a number of tokens.
///
/// # Errors
/// The ledger failed.
pub async fn files(
    on: &mut impl LedgerConnection,
    session: &Session,
    tokens_max: Option<usize>,
) -> Result<ChangedFiles, LedgerError> {
    // A file before and after a move of its workspace is one file.
    let mut found: BTreeMap<(String, String), FileView> = BTreeMap::new();
    for t in revision::touched(on, &session.id).await? {
        let workspace = moves::current_root(on, &t.workspace, t.first).await?;
        let file = found.entry((workspace.clone(), t.path.clone())).or_insert_with(|| FileView {
            path: t.path,
            workspace,
            revisions: 0,
            added: 0,
            removed: 0,
        });
        file.revisions += t.revisions;
        file.added += t.added;
        file.removed += t.removed;
    }
    let (session, total) = (SessionView::new(session), found.len() as i64);
    let used = budget::tokens_of(&session);
    let (files, _) = budget::take_within(found.into_values().collect(), tokens_max, used, budget::tokens_of);
    Ok(ChangedFiles { session, files, total })
}

/// Returns the current roots of the workspaces in which a session changed a file.
pub(super) async fn workspaces(
    on: &mut impl LedgerConnection,
    session: &Session,
    path: &str,
) -> Result<Vec<String>, ViewError> {
    let mut workspaces = Vec::new();
    for t in revision::touched(on, &session.id).await?.into_iter().filter(|t| t.path == path) {
        let workspace = moves::current_root(on, &t.workspace, t.first).await?;
        if !workspaces.contains(&workspace) {
            workspaces.push(workspace);
        }
    }
    if workspaces.is_empty() {
        return Err(ViewError::NoFile(session.id.clone(), path.to_owned()));
    }
    Ok(workspaces)
}

/// Reads a page of the revisions of a file that a session changed.
///
/// # Errors
/// The session changed no such file, or the ledger failed.
pub async fn read(
    on: &mut impl LedgerConnection,
    session: &Session,
    path: &str,
    window: Window,
) -> Result<Evolution, ViewError> {
    let workspace = workspaces(on, session, path).await?.swap_remove(0);
    let mut revisions = revision::page(on, &workspace, path, window.after, window.items_read()).await?;
    let mut more = revisions.len() as i64 > window.items_shown();
    revisions.truncate(usize::try_from(window.items_shown()).unwrap_or(0));
    let total = revision::count(on, &workspace, path).await?;
    // Only the first revision shows the text from before: later ones begin with the content of the previous one.
    let first = revision::page(on, &workspace, path, 0, 1).await?.first().map(|first| first.id);
    let mut seen = LastContent::default();
    let (mut views, mut left): (Vec<RevisionView>, _) = (Vec::new(), window.tokens_max);
    for revision in revisions {
        let is_first = Some(revision.id) == first;
        let mut view = view(on, session, &workspace, revision, is_first, &mut seen).await?;
        if let Some(room) = left {
            let cost = budget::tokens_of(&view);
            if cost > room && !views.is_empty() {
                more = true;
                break;
            }
            // Only the first view can exceed the limit here: it must be cut, because a page holds at least one.
            view.shorten_to(room);
            left = Some(room.saturating_sub(cost));
        }
        views.push(view);
    }
    let next_after = if more { views.last().map(|revision| revision.id) } else { None };
    let roots = moves::roots(on, &workspace).await?;
    let moved_from = roots.into_iter().skip(1).map(|root| root.root).collect();
    Ok(Evolution { path: path.to_owned(), workspace, moved_from, revisions: views, next_after, total })
}

/// The content that was read last, because the content after one revision is usually the content before the next.
#[derive(Default)]
struct LastContent(Option<(Hash, Vec<u8>)>);

impl LastContent {
    async fn content(
        &mut self,
        on: &mut impl LedgerConnection,
        hash: Option<Hash>,
    ) -> Result<Vec<u8>, LedgerError> {
        let Some(hash) = hash else { return Ok(Vec::new()) };
        if let Some((seen, bytes)) = &self.0
            && *seen == hash
        {
            return Ok(bytes.clone());
        }
        blob::get(on, &hash).await
    }
}

async fn view(
    on: &mut impl LedgerConnection,
    session: &Session,
    workspace: &str,
    revision: Revision,
    is_first: bool,
    seen: &mut LastContent,
) -> Result<RevisionView, LedgerError> {
    let before = seen.content(on, revision.before).await?;
    let after = seen.content(on, revision.after).await?;
    let name = |there: bool, side: &str| match there {
        true => format!("{side}/{}", revision.path),
        false => "/dev/null".to_owned(),
    };
    let diff = diff::unified(
        &before,
        &after,
        &name(revision.before.is_some(), "a"),
        &name(revision.after.is_some(), "b"),
    );
    let initial = revision.before.filter(|_| is_first).and_then(|_| diff::as_text(&before));
    let initial_content = initial.map(str::to_owned);
    if let Some(hash) = revision.after {
        seen.0 = Some((hash, after));
    }
    let uri = |hash: Option<Hash>, side| {
        hash.map(|_| address::content(&session.id, &revision.path, revision.id, side))
    };
    let (at_ns, session_id, step) = event_of_revision(on, revision.event_id).await?;
    Ok(RevisionView {
        id: revision.id,
        event_id: revision.event_id,
        at: iso(at_ns),
        session_id,
        step,
        source: revision.source,
        state: revision.state,
        hash: revision.after.as_ref().map(hex),
        uri: uri(revision.after, Side::After),
        before_hash: revision.before.as_ref().map(hex),
        before_uri: uri(revision.before, Side::Before),
        workspace: Some(revision.workspace).filter(|root| root != workspace),
        size: revision.size,
        lines: revision.lines,
        added: revision.added,
        removed: revision.removed,
        initial_content,
        diff,
        cut: None,
    })
}

/// Returns the time, the session and the step of a revision's event.
async fn event_of_revision(
    on: &mut impl LedgerConnection,
    event: i64,
) -> Result<(i64, String, Option<StepView>), LedgerError> {
    let row = select(
        "SELECT e.at_ns, e.session_id, p.plan, p.position, p.text
         FROM events e LEFT JOIN plan_steps p ON p.id = e.step WHERE e.id = $1",
    )
    .bind(event)
    .fetch_one(on.conn())
    .await?;
    let step = match (row.try_get::<Option<i64>, _>(2)?, row.try_get::<Option<i64>, _>(3)?) {
        (Some(plan), Some(index)) => Some(steps::shown(plan, index, row.try_get::<String, _>(4)?.as_str())),
        _ => None,
    };
    Ok((row.try_get(0)?, row.try_get(1)?, step))
}

impl RevisionView {
    /// Cuts content and diff until the view has at most `tokens_max` tokens, or cannot be cut further.
    fn shorten_to(&mut self, tokens_max: usize) {
        let whole = budget::tokens_of(self);
        if whole <= tokens_max {
            return;
        }
        let uris: Vec<&str> =
            [self.before_uri.as_deref(), self.uri.as_deref()].into_iter().flatten().collect();
        self.cut = Some(format!(
            "cut; all of it has about {}: read the contents at {}, or with get_evolution and revision {}",
            counted(whole, "token"),
            uris.join(" and "),
            self.id
        ));
        // Taken out before the measurement, so that what is left is the size of everything that cannot be cut.
        let (content, diff) = (self.initial_content.take(), std::mem::take(&mut self.diff));
        let mut room = tokens_max.saturating_sub(budget::tokens_of(self)).max(CUT_TOKENS_MIN);
        // JSON escapes line ends and quotes, so a text has more tokens within JSON than by itself: try smaller ones.
        loop {
            self.initial_content =
                content.as_deref().map(|content| budget::beginning(content, room).to_owned());
            let left = room.saturating_sub(self.initial_content.as_deref().map_or(0, estimate_tokens));
            self.diff = budget::beginning(&diff, left).to_owned();
            if budget::tokens_of(self) <= tokens_max || room <= CUT_TOKENS_MIN {
                return;
            }
            room = (room * 4 / 5).max(CUT_TOKENS_MIN);
        }
    }
}
