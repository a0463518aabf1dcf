//! How much is logged.

use std::fmt;

use clap::ValueEnum;

use super::setting::Choice;

/// How much is logged: everything from this level on.
#[expect(missing_docs, reason = "the names say it, and a doc comment would be printed by completions")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    Trace,
    Debug,
    #[default]
    Info,
    Warn,
    Error,
    /// The seeds' name for what is logged as an error.
    Fatal,
    /// Nothing.
    Silent,
}

impl Choice for LogLevel {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("trace", Self::Trace),
        ("debug", Self::Debug),
        ("info", Self::Info),
        ("warn", Self::Warn),
        ("error", Self::Error),
        ("fatal", Self::Fatal),
        ("silent", Self::Silent),
    ];
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
