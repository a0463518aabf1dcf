//! Every key, section by section: what it is, and what it means for a room.

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

use scrubjay_gateway::config::Quarantine;
use scrubjay_gateway::relay::{Durability, OnRecordFailure};

use crate::level::LogLevel;
use crate::section::section;
use crate::setting::choice;

section! {
    /// The whole configuration.
    Settings {
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
        llm: llm::Llm;
        router: router::RouterSection;
        recorder: recorder::Recorder;
        index: storage::IndexSection;
        backends: Option<backends::Backends>;
    }
}

choice!(OnRecordFailure: "stop" = Stop, "forward" = Forward);
choice!(Durability: "process" = Process, "power" = Power);
choice!(Quarantine: "off" = Off, "changed" = Changed, "new" = New);
