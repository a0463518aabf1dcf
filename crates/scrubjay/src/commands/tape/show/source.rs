//! Finds the tape to show: a tape of the data directory, a file, or standard input.
//!
//! An export is converted to a tape in a private temporary directory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::Context;
use scrubjay_tape::format::header::MAGIC;
use scrubjay_tape::format::reader::Tape;
use scrubjay_tape::home::{FindError, Home};
use tempfile::TempDir;

use super::super::import;
use crate::cli::Global;

/// An open tape, and the temporary directory that must exist while it is read.
pub(super) struct Source {
    pub(super) tape: Tape,
    _scratch: Option<TempDir>,
}

impl Source {
    /// Opens what a person named: `-`, a file, or a tape of the data directory.
    pub(super) fn open(global: &Global, home: &Home, name: &str) -> anyhow::Result<Self> {
        if name == "-" {
            return copied(global, io::stdin().lock(), "standard input");
        }
        let path = Path::new(name);
        // Ids have neither dots nor slashes.
        if name.contains(['/', '.']) && !path.is_dir() {
            return of_file(global, path);
        }
        match home.find(name) {
            Err(FindError::Unknown(_) | FindError::NoTapes(_) | FindError::TooShort(_)) if path.is_file() => {
                of_file(global, path)
            }
            found => {
                let file = found?;
                let tape = home.open(&file).with_context(|| format!("tape {}", file.id))?;
                Ok(Self { tape, _scratch: None })
            }
        }
    }
}

fn of_file(global: &Global, path: &Path) -> anyhow::Result<Source> {
    let cannot = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(cannot)?;
    // A pipe is read only once.
    if file.metadata().with_context(cannot)?.is_file() {
        let mut start = Vec::new();
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start).with_context(cannot)?;
        if start == MAGIC {
            return Ok(Source { tape: Tape::open(path)?, _scratch: None });
        }
        file = File::open(path).with_context(cannot)?;
    }
    copied(global, file, &path.display().to_string())
}

/// Opens a copy of the input: a tape unchanged, an export converted as `tape import` does it.
fn copied(global: &Global, mut from: impl Read, name: &str) -> anyhow::Result<Source> {
    let cannot = || format!("cannot read {name}");
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mut start = Vec::new();
    from.by_ref().take(MAGIC.len() as u64).read_to_end(&mut start).with_context(cannot)?;
    let is_tape = start == MAGIC;
    let mut whole = start.chain(from);
    if is_tape {
        let path = scratch.path().join("shown.tape");
        io::copy(&mut whole, &mut File::create(&path)?).with_context(cannot)?;
        return Ok(Source { tape: Tape::open(&path).with_context(cannot)?, _scratch: Some(scratch) });
    }
    let home = Home::new(scratch.path().to_owned());
    home.create()?;
    // An export may hold secrets, and this writes it to a disk. The configuration is loaded only here, so that a tape can be
    // shown even if something in the configuration is wrong.
    let redactor = global.load()?.redactor(None)?;
    import::import_lines(&home, io::BufReader::new(whole), name, &redactor)?;
    let file = home.find("latest")?;
    Ok(Source { tape: home.open(&file)?, _scratch: Some(scratch) })
}
