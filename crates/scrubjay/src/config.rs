//! The configuration: layers of files, environment and flags, each value with its origin.
//!
//! In order, a later layer winning key by key: defaults, the user's file, the project's file, a client's
//! `initializationOptions`, the environment, flags. What was typed (`raw`) becomes what it means (`Loaded`)
//! here; the rooms get only the latter. `docs/CONFIG.md` is its manual.

mod agent_progress;
mod auth_tokens;
mod backends;
mod environment;
mod expand;
mod level;
mod loader;
pub(crate) mod mask;
mod node;
mod options;
mod place;
mod privacy;
mod problem;
pub(crate) mod project;
mod raw;
mod recorder;
mod resolve;
mod router;
mod rules;
pub(crate) mod secret_file;
mod selection;
mod setting;
pub(crate) mod toolset;
pub(crate) mod trust;
mod yaml;

use std::path::PathBuf;

use scrubjay_tape::home::Home;

pub(crate) use self::environment::Environment;
pub(crate) use self::level::LogLevel;
pub(crate) use self::node::{Node, Value};
pub(crate) use self::problem::{ConfigError, Problem};
pub(crate) use self::resolve::Loaded;
pub(crate) use self::setting::Shown;

use self::loader::Loader;
use self::trust::TrustStore;
use crate::cli::Global;

/// A value that a flag gives to a key.
#[derive(Clone, Debug)]
pub(crate) struct Flag {
    /// The flag, as it is typed: `--http`.
    pub(crate) name: &'static str,
    /// The key's path: `serve.http`.
    pub(crate) key: &'static str,
    /// What was typed behind it.
    pub(crate) value: String,
}

/// A configuration file that was looked for, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    #[serde(flatten)]
    pub(crate) state: FileState,
}

/// What became of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum FileState {
    /// It is not there.
    Absent,
    /// It is read.
    Read,
    /// Read without these keys, which only a trusted file may set.
    Untrusted { left_out: Vec<String> },
    /// Not read.
    Refused { why: String },
}

/// Everything a configuration is made from.
pub(crate) struct Sources {
    /// Where the project's file is looked for.
    pub(crate) directory: PathBuf,
    /// The process's variables.
    pub(crate) environment: Environment,
    /// The file that replaces the user's and the project's.
    pub(crate) config: Option<PathBuf>,
    /// The file with more variables.
    pub(crate) env_file: Option<PathBuf>,
    pub(crate) flags: Vec<Flag>,
}

/// Loads the configuration.
///
/// Nothing is printed: what a person should know is in `Loaded::notices`, for the caller to log.
///
/// # Errors
/// A file cannot be read, or something in it is wrong: a `ConfigError` with every problem.
pub(crate) fn load(global: &Global) -> anyhow::Result<Loaded> {
    load_with(global, Vec::new())
}

/// Loads the configuration without the file in the working directory.
///
/// # Errors
/// As `load`.
pub(crate) fn load_own(global: &Global) -> anyhow::Result<Loaded> {
    Loader::new(global.sources(Vec::new())?)?.without_project().load()
}

/// Loads the configuration with a command's own flags over it.
///
/// # Errors
/// As `load`.
pub(crate) fn load_with(global: &Global, flags: Vec<Flag>) -> anyhow::Result<Loaded> {
    Loader::new(global.sources(flags)?)?.load()
}

/// Finds the data directory, and nothing else: with a flag or a variable for it no file is read. One that others may
/// change is refused all the same.
///
/// What is wrong with a project file that may not set it does not matter here, so that no file that happens
/// to lie in the working directory keeps a recorder from starting.
///
/// # Errors
/// The user's own file is wrong, or no directory is known.
pub(crate) fn data(global: &Global, notices: &mut Vec<String>) -> anyhow::Result<Home> {
    Loader::new(global.sources(Vec::new())?)?.data(notices)
}

/// Opens the list of trusted files, where no project file can have put it.
///
/// # Errors
/// The user's own file is wrong, or no directory is known.
pub(crate) fn trust_store(global: &Global) -> anyhow::Result<TrustStore> {
    Loader::new(global.sources(Vec::new())?)?.trust_store()
}

#[cfg(test)]
pub(crate) mod tests;
