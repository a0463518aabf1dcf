//! The configuration: layers of files, environment and flags, each value with its origin.
//!
//! In order, a later layer winning key by key: defaults, the user's file, the project's file, a client's
//! `initializationOptions`, the environment, flags. `sections` has the tables of keys, each with what it means for a
//! crate; `loader` reads the layers in order, `trust` knows which project files count. `docs/CONFIG.md` is the manual.

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

pub use self::environment::Environment;
pub use self::layer::FileTree;
pub use self::loaded::Loaded;
pub use self::loader::Loader;
pub use self::node::{Node, Value};
pub use self::problem::{ConfigError, Problem};
pub use self::sections::LogLevel;
pub use self::sections::privacy::KeyError;
pub use self::sections::serve::Toolset;
pub use self::setting::ShownSetting;
pub use self::trust::TrustStore;

/// A flag of the command line that sets a key.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The flag as it is typed: `--http`.
    pub name: &'static str,
    /// The path of the key: `serve.http`.
    pub key: &'static str,
    /// The value.
    pub value: String,
}

/// A configuration file that was looked for, and whether it is used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SourceFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether it is used.
    #[serde(flatten)]
    pub state: FileState,
}

/// Whether a configuration file is used.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum FileState {
    /// It does not exist.
    Absent,
    /// It is used as a whole.
    Read,
    /// It is used without the keys that only a trusted file may set.
    Untrusted {
        /// Those keys.
        left_out: Vec<String>,
    },
    /// It is not used.
    Refused {
        /// The reason, for a person.
        why: String,
    },
}

/// What a configuration is made from.
pub struct Sources {
    /// The working directory, in which the project's file is looked for.
    pub directory: PathBuf,
    /// The variables of the process.
    pub environment: Environment,
    /// The file that replaces the user's and the project's: `--config`.
    pub config: Option<PathBuf>,
    /// A file with more variables: `--env-file`.
    pub env_file: Option<PathBuf>,
    /// The flags that were typed.
    pub flags: Vec<Flag>,
    /// Prints a notice for a person: a data directory that was open to others has been closed.
    pub tell: fn(&str),
}

#[cfg(test)]
mod tests;
