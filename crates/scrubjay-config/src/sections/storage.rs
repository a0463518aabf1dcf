//! `data`, `storage`, `files`, `records` and `index`: where the data directory and the ledger are, and what uses them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use scrubjay_gateway::config::QuarantineModes;
use scrubjay_gateway::definitions::Definitions;
use scrubjay_store::ledger::Storage;
use scrubjay_store::ledger::project::DEFAULT_PROJECT;
use scrubjay_tape::home::Home;
use scrubjay_tape::private::CheckDepth;
use scrubjay_tools::Setup;

use super::limits::GIB;
use super::recorder::StorageBackend;
use crate::loaded::{BasePaths, Loaded};
use crate::node::Origin;
use crate::section::section;
use crate::setting::{Count, Size, WrongValue, check_tilde};

section! {
    /// `files`: what agents may do to files with `file_op`.
    struct Files {
        max_size: Size<1024, GIB> = "10MiB";
        allow_vcs: bool = "false";
    }
}

section! {
    /// `records`: design reasoning that agents share.
    struct Records {
        stale_after: Count<1, 1_000_000, i64> = "20", free;
    }
}

section! {
    /// `index`: the tables in which recordings are searched.
    struct IndexSection {
        background: bool = "true";
    }
}

impl Loaded {
    /// Returns the data directory.
    ///
    /// # Errors
    /// No directory is known, or it cannot be made private.
    pub fn home(&self) -> anyhow::Result<Home> {
        self.base.home(self.settings.data.clone())
    }

    /// Returns where the ledger is: a PostgreSQL database, or a file.
    ///
    /// # Errors
    /// No data directory is known, or `recorder.storage.backend` is of another kind.
    pub fn storage(&self) -> anyhow::Result<Storage> {
        let storage = self.named_storage()?;
        let wrong = match (self.settings.recorder.storage.backend, &storage) {
            (Some(StorageBackend::Sqlite), Storage::Postgres(_)) => {
                "says sqlite, but storage names a PostgreSQL database"
            }
            (Some(StorageBackend::Postgres), Storage::File(_)) => {
                "says postgres, but storage names none: set it to an address like postgres://user@host/name"
            }
            _ => return Ok(storage),
        };
        Err(self.wrong("recorder.storage.backend", wrong).into())
    }

    fn named_storage(&self) -> anyhow::Result<Storage> {
        let Some(text) = &self.settings.storage else { return Ok(Storage::File(self.home()?.ledger())) };
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Storage::Postgres(text.clone()));
        }
        let path = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")).unwrap_or(text);
        check_path(path, self.origin("storage")).map_err(|wrong| self.wrong("storage", wrong))?;
        Ok(Storage::File(std::path::absolute(self.base.directory.join(path))?))
    }

    /// Returns how the toolsets are set up for a workspace.
    ///
    /// # Errors
    /// No data directory is known.
    pub fn toolset_setup(&self, workspace: &Path, project: Option<&str>) -> anyhow::Result<Setup> {
        let settings = &self.settings;
        let project = project.or(settings.serve.project.as_deref());
        let home = self.home()?;
        Ok(Setup {
            storage: self.storage()?,
            redactor: self.redactor(Some(&home))?,
            project: project.map_or_else(|| repository_name(workspace), str::to_owned),
            workspace: workspace.to_owned(),
            allow_vcs: settings.files.allow_vcs,
            file_bytes_max: settings.files.max_size,
            locks: home.locks(),
            home,
            llm: Some(self.llm_config()?),
            stale_after_ticks: settings.records.stale_after,
        })
    }

    /// Returns where the definitions are stored that backends gave of their tools.
    ///
    /// # Errors
    /// No data directory is known, or a key is unusable.
    pub fn definitions(&self) -> anyhow::Result<Definitions> {
        let home = self.home()?;
        let key = home.hash_key().context("cannot read the key for hashes")?;
        Ok(Definitions::new(home.definitions(), self.redactor(Some(&home))?, key))
    }

    /// Returns which definitions of which backend are held back until a person approves them.
    pub fn quarantine(&self) -> QuarantineModes {
        let backends = self.settings.backends.as_ref();
        let backends = backends.map(|backends| backends.quarantine.clone()).unwrap_or_default();
        QuarantineModes { all: self.settings.quarantine, backends }
    }

    /// Tells whether recorders start a background process that keeps the index current.
    pub fn indexes_in_background(&self) -> bool {
        self.settings.index.background
    }
}

impl BasePaths {
    /// Returns the data directory: the one that was given, else the usual one.
    pub(crate) fn home(&self, given: Option<PathBuf>) -> anyhow::Result<Home> {
        let root = given.or_else(|| self.default_data.clone());
        let root = root.context("no home directory is known: name one with --data DIR")?;
        let home = Home::new(std::path::absolute(self.directory.join(root))?);
        // Before any file in it is read: otherwise another user could have written the list of trusted files, for example.
        for mended in home.make_private(CheckDepth::Top)? {
            (self.tell)(&mended.to_string());
        }
        Ok(home)
    }
}

/// Refuses a text that is not the path of a database.
fn check_path(path: &str, origin: &Origin) -> Result<(), WrongValue> {
    if let Some(rest) = path.strip_prefix("file:") {
        let path = rest.strip_prefix("//localhost").or_else(|| rest.strip_prefix("//")).unwrap_or(rest);
        let path = if path.is_empty() { "/…" } else { path };
        return Err(WrongValue::new(format_args!("must be a path, not a file: URL: write {path}")));
    }
    if path.is_empty() {
        return Err("names no file: write a path behind sqlite:".into());
    }
    check_tilde(path, origin)?;
    if path.contains("://") {
        return Err("must be a path, or a URL that begins with postgres://".into());
    }
    Ok(())
}

/// Returns the project of a workspace: the name of its repository, if it is in one.
fn repository_name(workspace: &Path) -> String {
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let repository = workspace.ancestors().find(|directory| directory.join(".git").exists());
    let name = repository.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| DEFAULT_PROJECT.to_owned())
}
