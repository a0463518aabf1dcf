//! The errors of record operations.

use thiserror::Error;

use super::{Record, RecordId, RecordState};
use crate::ledger::LedgerError;
use crate::ledger::session::SessionError;

/// Why a record operation failed.
#[derive(Debug, Error)]
pub enum RecordError {
    /// No record has that id.
    #[error("no record has the id \"{0}\"")]
    NotFound(String),
    /// The session has not activated the record.
    #[error("record {0} is not activated in this session")]
    NotActivated(RecordId),
    /// The session has not activated the parent of a new record.
    #[error("the parent {0} is not activated in this session")]
    ParentNotActivated(RecordId),
    /// A record cannot change to this state from its current one.
    #[error("record {id} cannot go from {} to {}", from.name(), to.name())]
    InvalidTransition {
        /// The record.
        id: RecordId,
        /// Its current state.
        from: RecordState,
        /// The requested state.
        to: RecordState,
    },
    /// A transition lacks an argument that its target state requires.
    #[error("{} needs {needs}", to.name())]
    Incomplete {
        /// The requested state.
        to: RecordState,
        /// What is missing.
        needs: &'static str,
    },
    /// Another session changed it since it was activated.
    #[error("record {} was changed by session {by} since this session activated it", other.now.id)]
    Conflict {
        /// The other session.
        by: String,
        /// The version this session activated.
        activated: i64,
        /// The record as it is now.
        other: Box<Record>,
    },
    /// The tree would be too deep.
    #[error("a child of {parent} would be {depth} levels deep; {max} are allowed", max = super::DEPTH_MAX)]
    TooDeep {
        /// The parent.
        parent: RecordId,
        /// The depth that the child would have.
        depth: i64,
    },
    /// An argument is invalid.
    #[error("{0}")]
    Invalid(String),
    /// There is no such version.
    #[error("record {id} has no version at \"{wanted}\"")]
    NoVersion {
        /// The record.
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
