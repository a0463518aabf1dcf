//! The tables of all keys, section by section, each with what it means for a crate.

pub(crate) mod backends;
pub(crate) mod limits;
pub(crate) mod llm;
pub(crate) mod privacy;
pub(crate) mod recorder;
pub(crate) mod router;
pub(crate) mod rules;
pub(crate) mod selection;
pub(crate) mod serve;
pub(crate) mod storage;

use std::fmt;

use clap::ValueEnum;
use scrubjay_gateway::config::Quarantine;
use scrubjay_gateway::relay::{Durability, OnRecordFailure};

use crate::section::section;
use crate::setting::{Choice, choice};

section! {
    /// The whole configuration.
    struct Settings {
        log_level: LogLevel = "info";
        data: Option<std::path::PathBuf>;
        storage: Option<String>;
        on_record_failure: OnRecordFailure = "stop";
        durability: Durability = "process";
        quarantine: Quarantine = "off";
        limits: limits::Limits;
        serve: serve::Serve;
        files: storage::Files;
        records: storage::Records;
        llm: scrubjay_llm::LlmConfig;
        router: router::RouterSection;
        recorder: recorder::Recorder;
        index: storage::IndexSection;
        backends: Option<backends::Backends>;
    }
}

choice!(OnRecordFailure: "stop" = Stop, "forward" = Forward);
choice!(Durability: "process" = Process, "power" = Power);
choice!(Quarantine: "off" = Off, "changed" = Changed, "new" = New);

/// The lowest level that is logged.
#[expect(missing_docs, reason = "the names say it, and a doc comment would be printed by completions")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    Trace,
    Debug,
    #[default]
    Info,
    Warn,
    Error,
    /// The specifications' name for errors.
    Fatal,
    /// Nothing.
    Silent,
}

choice!(LogLevel: "trace" = Trace, "debug" = Debug, "info" = Info, "warn" = Warn, "error" = Error, "fatal" = Fatal,
    "silent" = Silent);

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
