//! The content of a file at any of its revisions.

use std::fmt;

use scrubjay_core::diff;

use super::address::Side;
use super::budget::beginning;
use super::{ViewError, evolution};
use crate::ledger::blob::{self, Hash};
use crate::ledger::revision::{self, Revision};
use crate::ledger::session::Session;
use crate::ledger::{LedgerConnection, event, moves};

/// Names a state of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatePoint {
    /// The last known state.
    #[default]
    Newest,
    /// The state after a revision.
    Revision(i64),
    /// The state after an event.
    Event(i64),
    /// The state at a time, nanoseconds since the Unix epoch.
    Time(i64),
}

impl fmt::Display for StatePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("recorded state"),
            Self::Revision(id) => write!(f, "revision {id}"),
            Self::Event(id) => write!(f, "state that was recorded by event {id}"),
            Self::Time(at_ns) => write!(f, "state that was recorded by {}", super::iso(*at_ns)),
        }
    }
}

/// The content of a file at some revision.
#[derive(Clone, Debug)]
pub struct StoredContent {
    /// The revision.
    pub revision: Revision,
    /// Whether the content before or after it.
    pub side: Side,
    /// Its hash.
    pub hash: Hash,
    /// The whole content.
    pub bytes: Vec<u8>,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPiece<'a> {
    /// The part.
    pub text: &'a str,
    /// Its offset, in bytes.
    pub offset: usize,
    /// The offset of the next part; `None` if this is the last.
    pub next_offset: Option<usize>,
}

impl StoredContent {
    /// Returns it as text; `None` if it is binary.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        diff::as_text(&self.bytes)
    }

    /// Returns a part of it with at most `tokens_max` tokens; `None` if it is binary.
    #[must_use]
    pub fn piece(&self, offset: usize, tokens_max: usize) -> Option<TextPiece<'_>> {
        let text = self.as_text()?;
        // An offset within a character is moved to the character's beginning.
        let offset = (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at))?;
        let part = beginning(&text[offset..], tokens_max.max(1));
        let end = offset + part.len();
        Some(TextPiece { text: part, offset, next_offset: (end < text.len()).then_some(end) })
    }
}

/// Reads the content of a file, which a session changed, in some state.
///
/// # Errors
/// The session changed no such file, the file has no such state, or it did not exist then.
pub async fn read(
    on: &mut impl LedgerConnection,
    session: &Session,
    path: &str,
    at: StatePoint,
    side: Side,
) -> Result<StoredContent, ViewError> {
    let workspaces = evolution::workspaces(on, session, path).await?;
    // The session may have changed files of this path in several workspaces: the first with this state is taken.
    let mut found = None;
    for workspace in workspaces {
        found = find(on, &workspace, path, at).await?;
        if found.is_some() {
            break;
        }
    }
    let revision = found.ok_or_else(|| ViewError::NoRevision(path.to_owned(), at))?;
    let hash = match side {
        Side::After => revision.after,
        Side::Before => revision.before,
    };
    let Some(hash) = hash else {
        return Err(ViewError::NoContent { path: path.to_owned(), revision: revision.id, side });
    };
    let bytes = blob::get(on, &hash).await?;
    Ok(StoredContent { revision, side, hash, bytes })
}

async fn find(
    on: &mut impl LedgerConnection,
    workspace: &str,
    path: &str,
    at: StatePoint,
) -> Result<Option<Revision>, ViewError> {
    Ok(match at {
        StatePoint::Newest => revision::latest(on, workspace, path).await?,
        StatePoint::Event(event) => revision::as_of(on, workspace, path, event).await?,
        StatePoint::Time(at_ns) => {
            let event = event::last_at(on, at_ns).await?;
            revision::as_of(on, workspace, path, event).await?
        }
        StatePoint::Revision(id) => {
            // The number comes from the caller: it must not lead to a revision of another file or workspace.
            let roots = moves::roots(on, workspace).await?;
            let is_it = |r: &Revision| {
                r.path == path && roots.iter().any(|root| root.root == r.workspace && r.id <= root.up_to)
            };
            revision::get(on, id).await?.filter(is_it)
        }
    })
}
