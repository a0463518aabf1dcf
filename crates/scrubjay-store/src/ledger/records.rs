//! Records: pieces of design reasoning in a tree, shared by many sessions. Every version is stored whole.
//!
//! A session activates a record to reason with it and to change it. A change is checked against the version that the
//! session has seen, never against a clock. A project's records are one
//! [`RecordCollection`](collection::RecordCollection), numbered from 1. The toolset decides what agents see of this,
//! and how it is phrased.

pub mod activation;
pub mod activity;
pub mod bundle;
pub mod citation;
pub mod collection;
mod content;
mod create;
pub mod diff;
pub mod error;
pub mod history;
pub mod listing;
mod row;
pub mod saving;
mod scope;
pub mod search;
pub mod sync;
mod text_index;
mod transition;
mod update;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::names::{name_of, value_of};

pub use create::{NewRecord, create};
pub use error::RecordError;
pub use row::{full, require};
pub use scope::{Scope, current, enter, project};
pub use transition::{Transition, TransitionResult, transition};
pub use update::{OnConflict, RecordChanges, UpdateOutcome, UpdateResult, update};

/// The greatest depth of a record; a root has depth 1. Limited because a record's path holds a number for each level.
pub const DEPTH_MAX: i64 = 32;

/// A record's number within its project, written `R001`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub i64);

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{:03}", self.0)
    }
}

impl FromStr for RecordId {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let digits = text.trim().strip_prefix(['R', 'r']).unwrap_or_default();
        // 12 digits always fit into an i64; `parse` alone would also accept a sign.
        let valid = !digits.is_empty() && digits.len() <= 12 && digits.bytes().all(|b| b.is_ascii_digit());
        let number = valid.then(|| digits.parse().ok()).flatten().filter(|number| *number > 0);
        number.map(Self).ok_or_else(|| RecordError::NotFound(text.to_owned()))
    }
}

impl Serialize for RecordId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The workflow state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordState {
    /// Being worked on.
    Open,
    /// Postponed.
    Later,
    /// Answered by another record.
    Resolved,
    /// Given up.
    Discarded,
}

const STATES: [(RecordState, &str); 4] = [
    (RecordState::Open, "OPEN"),
    (RecordState::Later, "LATER"),
    (RecordState::Resolved, "RESOLVED"),
    (RecordState::Discarded, "DISCARDED"),
];

impl RecordState {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&STATES, &self)
    }

    /// Returns the state with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        value_of(&STATES, name)
    }

    /// Returns the states that a record may change to.
    #[must_use]
    pub fn next(self) -> &'static [Self] {
        match self {
            Self::Open => &[Self::Later, Self::Resolved, Self::Discarded],
            Self::Later => &[Self::Open, Self::Discarded],
            Self::Resolved | Self::Discarded => &[Self::Open],
        }
    }
}

/// What lists show of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRef {
    /// Its id.
    pub id: RecordId,
    /// What kind of thought it is, in words of the user's choice.
    pub kind: String,
    /// What it is about.
    pub title: String,
    /// The gist.
    pub summary: String,
    /// Its workflow state.
    pub state: RecordState,
    /// Its parent.
    pub parent: Option<RecordId>,
    /// How many children it has.
    pub children: i64,
    /// How many of those are open.
    pub open_children: i64,
    /// Its depth; a root has 1.
    pub depth: i64,
    /// Its newest version.
    pub version: i64,
    /// The project's tick when that version was written.
    pub tick: i64,
    /// How many passages of code it cites.
    pub cited: i64,
    /// When it was created.
    pub created_ns: i64,
    /// When it was last changed.
    pub modified_ns: i64,
    /// Its path in the tree: the numbers of its ancestors and its own.
    pub(crate) path: String,
}

/// The content of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordContent {
    /// What kind of thought it is.
    pub kind: String,
    /// What it is about.
    pub title: String,
    /// The gist.
    pub summary: String,
    /// All of it.
    pub body: String,
    /// Its workflow state.
    pub state: RecordState,
    /// The record that answered it.
    pub resolved_by: Option<RecordId>,
    /// Related records, beyond the tree.
    pub related: Vec<RecordId>,
    /// Further data of the user's.
    pub metadata: Map<String, Value>,
    /// The code it cites, as `path#L1-L9`.
    pub citations: Vec<String>,
}

/// A whole record in one of its versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What lists show of it, as it is now.
    pub now: RecordRef,
    /// The version.
    pub version: i64,
    /// When this version was written.
    pub at_ns: i64,
    /// The version's content.
    pub content: RecordContent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_people_write_them() {
        let read = |text: &str| text.parse::<RecordId>().ok().map(|id| id.to_string());
        assert_eq!(read("R001").as_deref(), Some("R001"));
        assert_eq!(read(" r7 ").as_deref(), Some("R007"));
        assert_eq!(read("R12345").as_deref(), Some("R12345"));
        for wrong in ["", "R", "7", "R-1", "R0", "R1x", "R+1", "R9999999999999", "RR1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
