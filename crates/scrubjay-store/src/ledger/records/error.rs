//! Why something cannot be done with records.

use thiserror::Error;

use super::{Record, RecordId, RecordState};
use crate::ledger::LedgerError;
use crate::ledger::session::SessionError;

/// Something cannot be done with records.
#[derive(Debug, Error)]
pub enum RecordError {
    /// No record has that id.
    #[error("no record has the id \"{0}\"")]
    NotFound(String),
    /// The session has not activated it.
    #[error("record {0} is not activated in this session")]
    NotActivated(RecordId),
    /// The session has not activated the parent of a new one.
    #[error("the parent {0} is not activated in this session")]
    ParentNotActivated(RecordId),
    /// A record cannot go there from where it is.
    #[error("record {id} cannot go from {} to {}", from.name(), to.name())]
    InvalidTransition {
        /// Which.
        id: RecordId,
        /// Where it is.
        from: RecordState,
        /// Where it was to go.
        to: RecordState,
    },
    /// A transition lacks what its target needs.
    #[error("{} needs {needs}", to.name())]
    Incomplete {
        /// Where it was to go.
        to: RecordState,
        /// What is missing.
        needs: &'static str,
    },
    /// Another session changed it since it was activated.
    #[error("record {} was changed by session {by} since this session activated it", other.now.id)]
    Conflict {
        /// Who did.
        by: String,
        /// The version this session activated.
        activated: i64,
        /// What it is now.
        other: Box<Record>,
    },
    /// The tree would be too deep.
    #[error("a child of {parent} would lie {depth} levels deep; {max} are allowed", max = super::DEPTH_MAX)]
    TooDeep {
        /// The parent.
        parent: RecordId,
        /// How deep the child would lie.
        depth: i64,
    },
    /// What was given is not a record.
    #[error("{0}")]
    Invalid(String),
    /// No version is meant by that.
    #[error("record {id} has no version at \"{wanted}\"")]
    NoVersion {
        /// Which record.
        id: RecordId,
        /// What was asked for.
        wanted: String,
    },
    /// There is no such project.
    #[error("no project has the id \"{0}\"")]
    NoProject(String),
    /// The session cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for RecordError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}
