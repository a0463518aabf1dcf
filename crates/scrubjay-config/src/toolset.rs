//! Scrubjay's own toolsets, by name.

use clap::ValueEnum;

/// A toolset of Scrubjay's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Toolset {
    /// Sessions, plans and file changes, recorded first and then done
    Recorder,
    /// What was done and how: logged, summarised, found again
    Progress,
    /// Design reasoning that outlives a conversation
    Records,
    /// What was recorded: searched and analysed
    Tapes,
    /// The tool for a task in plain words: found, or called
    Router,
    /// A few sample tools
    Sample,
}

impl Toolset {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorder => "recorder",
            Self::Progress => "progress",
            Self::Records => "records",
            Self::Tapes => "tapes",
            Self::Router => "router",
            Self::Sample => "sample",
        }
    }
}
