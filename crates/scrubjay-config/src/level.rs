//! The level of the logs.

use std::fmt;

use clap::ValueEnum;

use crate::setting::{Choice, choice};

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
