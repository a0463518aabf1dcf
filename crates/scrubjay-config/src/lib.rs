//! The configuration: layers of files, environment and flags, each value with its origin.
//!
//! In order, a later layer winning key by key: defaults, the user's file, the project's file, a client's
//! `initializationOptions`, the environment, flags. `section` makes tables of keys, `sections` has them, each with what
//! it means for a room; `layers` reads and orders, `trust` withholds. `docs/CONFIG.md` is the manual.

mod agent_progress;
mod cursor;
mod environment;
mod layer;
mod loaded;
mod loader;
pub mod mask;
mod node;
mod options;
pub mod owned_file;
mod problem;
pub mod project;
mod section;
mod sections;
mod setting;
mod trust;
mod yaml;

use std::path::PathBuf;

use scrubjay_tape::home::Home;

pub use self::environment::Environment;
pub use self::layer::FileTree;
pub use self::loaded::Loaded;
pub use self::node::{Node, Value};
pub use self::problem::{ConfigError, Problem};
pub use self::sections::LogLevel;
pub use self::sections::serve::Toolset;
pub use self::setting::Shown;
pub use self::trust::TrustStore;

use self::loader::Loader;

/// A value that a flag gives to a key.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag, as it is typed: `--http`.
    pub name: &'static str,
    /// The key's path: `serve.http`.
    pub key: &'static str,
    /// Its value.
    pub value: String,
}

/// A configuration file that was looked for, and whether it is used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SourceFile {
    /// Where it was looked for.
    pub path: PathBuf,
    #[serde(flatten)]
    /// Whether it is used.
    pub state: FileState,
}

/// Whether a configuration file is used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum FileState {
    /// It is not there.
    Absent,
    /// It is read.
    Read,
    /// Read without these keys, which only a trusted file may set.
    Untrusted {
        /// The keys.
        left_out: Vec<String>,
    },
    /// Not read.
    Refused {
        /// Why, in words.
        why: String,
    },
}

/// Everything a configuration is made from.
pub struct Sources {
    /// Where the project's file is looked for.
    pub directory: PathBuf,
    /// The process's variables.
    pub environment: Environment,
    /// The file that replaces the user's and the project's: `--config`.
    pub config: Option<PathBuf>,
    /// The file with more variables: `--env-file`.
    pub env_file: Option<PathBuf>,
    /// What was typed.
    pub flags: Vec<Flag>,
    /// Tells a person that a data directory others could use was closed to them.
    pub tell: fn(&str),
}

impl Sources {
    /// Loads the configuration. Prints nothing: `Loaded::notices` has what the caller should log.
    ///
    /// # Errors
    /// A file cannot be read, or something in it is wrong: a `ConfigError` with every problem.
    pub fn load(self) -> anyhow::Result<Loaded> {
        let with_project = self.config.is_none();
        Loader::new(self)?.load(with_project)
    }

    /// Loads the configuration without the file in the working directory.
    ///
    /// # Errors
    /// As `load`.
    pub fn load_own(self) -> anyhow::Result<Loaded> {
        Loader::new(self)?.load(false)
    }

    /// Finds the data directory, and nothing else: with a flag or a variable for it no file is read. One that others may
    /// change is refused all the same.
    ///
    /// What is wrong with a project file that may not set it does not matter here, so that no file that happens
    /// to lie in the working directory keeps a recorder from starting.
    ///
    /// # Errors
    /// The user's own file is wrong, or no directory is known.
    pub fn data(self, notices: &mut Vec<String>) -> anyhow::Result<Home> {
        Loader::new(self)?.data(notices)
    }

    /// Opens the list of trusted files, where no project file can have put it.
    ///
    /// # Errors
    /// The user's own file is wrong, or no directory is known.
    pub fn trust_store(self) -> anyhow::Result<TrustStore> {
        Loader::new(self)?.trust_store()
    }
}

#[cfg(test)]
mod tests;
