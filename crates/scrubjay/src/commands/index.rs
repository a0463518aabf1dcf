//! `scrubjay index …`: the tables by which recordings are searched.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Subcommand;
use scrubjay_core::query::SearchQuery;
use scrubjay_core::units;
use scrubjay_store::clock;
use scrubjay_store::home::Home;
use scrubjay_store::index::{Found, Index, IndexError};
use scrubjay_store::ledger::Storage;
use tokio::runtime::Runtime;

use crate::cli::{Global, tell};
use crate::config;
use crate::render::{Table, print_json};

/// Look after the tables by which recordings are searched
#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Make them anew from the recordings; they hold nothing that is not on a tape
    Rebuild,
}

pub(crate) fn run(global: &Global, command: &IndexCommand) -> anyhow::Result<ExitCode> {
    let home = global.home()?;
    match command {
        IndexCommand::Rebuild => rebuild(global, &home),
    }
}

fn rebuild(global: &Global, home: &Home) -> anyhow::Result<ExitCode> {
    let began = clock::now().instant;
    let storage = config::load(global)?.storage()?;
    let mut progress = Progress::new(global);
    let (done, index_bytes) = super::runtime()?.block_on(async {
        let (index, done) = Index::rebuild(home, &storage, |entries| progress.show(entries)).await?;
        index.close().await;
        anyhow::Ok((done, index.file_bytes()))
    })?;
    progress.clear();
    let took_ns = clock::saturate(clock::now().instant.saturating_duration_since(began));
    if global.json {
        print_json(&serde_json::json!({
            "tapes": done.tapes, "entries": done.entries, "took_ns": took_ns, "index_bytes": index_bytes,
        }))?;
    } else if !global.quiet {
        Table::note().line(&format!(
            "{} of {} in {}{}",
            units::counted(done.entries, "entry"),
            units::counted(done.tapes, "tape"),
            units::duration(took_ns),
            index_bytes.map(|bytes| format!("; the index has {}", units::size(bytes))).unwrap_or_default(),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the index, and catches up with the tapes.
pub(crate) fn open_current(global: &Global, home: &Home) -> anyhow::Result<(Runtime, Index)> {
    let storage = config::load(global)?.storage()?;
    let runtime = super::runtime()?;
    let mut progress = Progress::new(global);
    let index = runtime.block_on(async {
        let index = Index::open(home, &storage).await?;
        match index.catch_up(|entries| progress.show(entries)).await {
            Err(IndexError::Busy(_)) if !global.quiet => {
                tell("another process is filling the index: what it has not come to yet is missing here");
            }
            Ok(_) | Err(IndexError::Busy(_)) => {}
            Err(e) => return Err(e.into()),
        }
        anyhow::Ok(index)
    })?;
    progress.clear();
    Ok((runtime, index))
}

/// Searches in a process that does other things: as far as the index can be filled.
pub(crate) fn search(home: &Home, storage: &Storage, query: &SearchQuery) -> anyhow::Result<Found> {
    super::runtime()?.block_on(async {
        let index = Index::open(home, storage).await?;
        let filled = match index.catch_up(|_| ()).await {
            // Another process is at it; what it has come to can be found.
            Ok(_) | Err(IndexError::Busy(_)) => index.search(query).await,
            Err(e) => Err(e),
        };
        index.close().await;
        Ok(filled?)
    })
}

/// A line on a terminal that says how far it is.
struct Progress {
    is_wanted: bool,
    is_shown: bool,
}

impl Progress {
    fn new(global: &Global) -> Self {
        Self { is_wanted: !global.quiet && std::io::stderr().is_terminal(), is_shown: false }
    }

    fn show(&mut self, entries: u64) {
        if self.is_wanted {
            self.is_shown = true;
            // Whether anybody sees it changes nothing.
            let _ = write!(std::io::stderr(), "\rindexing: {entries} entries");
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
