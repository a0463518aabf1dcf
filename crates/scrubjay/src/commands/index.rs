//! `scrubjay index …`: the search index of the recordings.

pub(crate) mod background;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Subcommand};
use scrubjay_config::Loaded;
use scrubjay_core::query::SearchQuery;
use scrubjay_core::units;
use scrubjay_store::index::{CaughtUp, Freshness, Index, IndexError, Progress, SearchResults};
use scrubjay_store::ledger::Storage;
use scrubjay_tape::clock;
use scrubjay_tape::home::Home;
use scrubjay_tape::recording::lower_thread_priority;
use tokio::runtime::Runtime;

use crate::cli::{Global, tell};
use crate::render::{Table, print_json};

/// Maintain the search index of the recordings
#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Rebuild the index from the recordings; nothing is lost, because it holds nothing else
    Rebuild,
    /// Bring the index up to date with the recordings; every search does so first
    CatchUp(CatchUpArgs),
}

/// Bring the index up to date with the recordings; every search does so first
#[derive(Debug, Args)]
pub(crate) struct CatchUpArgs {
    /// Stay while recordings grow, at the lowest priority; a second such process ends at once
    #[arg(long, hide = true)]
    background: bool,
}

pub(crate) fn run(global: &Global, command: &IndexCommand) -> anyhow::Result<ExitCode> {
    // Before anything is read: this process must not slow down a recorder.
    if matches!(command, IndexCommand::CatchUp(args) if args.background) {
        lower_thread_priority();
    }
    let (loaded, home) = global.load_with_home()?;
    let storage = loaded.storage()?;
    match command {
        IndexCommand::Rebuild => fill(global, &home, &storage, true),
        IndexCommand::CatchUp(args) if args.background => keep_current(&home, &storage),
        IndexCommand::CatchUp(_) => fill(global, &home, &storage, false),
    }
}

/// How long the background process waits for new recordings before it ends. A recorder with more to index starts another.
const QUIET_MAX: Duration = Duration::from_secs(10);

fn keep_current(home: &Home, storage: &Storage) -> anyhow::Result<ExitCode> {
    super::runtime()?.block_on(Index::keep_current(home, storage, QUIET_MAX))?;
    Ok(ExitCode::SUCCESS)
}

/// Fills the index: with what is new on the tapes, or from scratch.
fn fill(global: &Global, home: &Home, storage: &Storage, from_scratch: bool) -> anyhow::Result<ExitCode> {
    let began = clock::now().instant;
    let mut bar = ProgressBar::new(global);
    let (done, index_bytes) = super::runtime()?.block_on(async {
        let show = |progress| bar.show(progress);
        let (index, done) = if from_scratch {
            Index::rebuild(home, storage, show).await?
        } else {
            let index = Index::open(home, storage).await?;
            let done = index.catch_up(show).await?;
            (index, done)
        };
        index.close().await;
        anyhow::Ok((done, index.file_bytes()))
    })?;
    bar.clear();
    report(global, &done, index_bytes, began)
}

/// Removes from the index the tapes that were just removed.
pub(crate) fn forget_removed(global: &Global, loaded: &Loaded, home: &Home) -> anyhow::Result<()> {
    match super::runtime()?.block_on(Index::forget_removed(home, &loaded.storage()?)) {
        Err(IndexError::Busy(_)) => {
            tell(
                "another process is filling the index; words of the removed recordings stay in it until that is done",
            );
            background::start_at_end(global, loaded);
            Ok(())
        }
        forgotten => forgotten
            .map(drop)
            .context("the recordings are removed, but the index may still hold words of them"),
    }
}

fn report(
    global: &Global,
    done: &CaughtUp,
    index_bytes: Option<u64>,
    began: Instant,
) -> anyhow::Result<ExitCode> {
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
pub(crate) fn open_current(
    global: &Global,
    home: &Home,
    storage: &Storage,
) -> anyhow::Result<(Runtime, Index)> {
    let runtime = super::runtime()?;
    let mut bar = ProgressBar::new(global);
    let opened = Index::open_current(home, storage, |progress| bar.show(progress));
    let (index, freshness) = runtime.block_on(opened)?;
    bar.clear();
    if freshness == Freshness::Behind && !global.quiet {
        tell("another process is filling the index: recordings that it has not reached yet are missing here");
    }
    Ok((runtime, index))
}

/// Searches for a process that has no terminal; the index is filled first as far as possible.
pub(crate) fn search(home: &Home, storage: &Storage, query: &SearchQuery) -> anyhow::Result<SearchResults> {
    super::runtime()?.block_on(async {
        let (index, _) = Index::open_current(home, storage, |_| ()).await?;
        let found = index.search(query).await;
        // Closed before a failure is returned, too.
        index.close().await;
        Ok(found?)
    })
}

/// A progress bar on a terminal.
struct ProgressBar {
    is_wanted: bool,
    is_shown: bool,
}

/// How many characters the bar itself has.
const BAR_CHARS: u64 = 24;

impl ProgressBar {
    fn new(global: &Global) -> Self {
        Self { is_wanted: !global.quiet && std::io::stderr().is_terminal(), is_shown: false }
    }

    fn show(&mut self, progress: Progress) {
        if self.is_wanted {
            self.is_shown = true;
            // The old bar is erased, because it may be longer. A bar that cannot be written is not worth failing for.
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{}", bar(progress));
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

fn bar(progress: Progress) -> String {
    let Progress { entries, bytes, bytes_total } = progress;
    // With nothing to read, all of it is read. A live tape may grow meanwhile, so more than the total counts as all.
    let share = |of: u64| bytes.min(bytes_total).saturating_mul(of).checked_div(bytes_total).unwrap_or(of);
    let full = share(BAR_CHARS);
    format!(
        "indexing [{}{}] {:3} %  {} of {}, {entries} entries",
        "#".repeat(usize::try_from(full).unwrap_or(0)),
        " ".repeat(usize::try_from(BAR_CHARS - full).unwrap_or(0)),
        share(100),
        units::size(bytes),
        units::size(bytes_total),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_bar_shows_the_share_of_read_tapes() {
        let shown = |bytes, bytes_total| bar(Progress { entries: 7, bytes, bytes_total });
        assert_eq!(
            shown(25_000_000, 100_000_000),
            "indexing [######                  ]  25 %  25.0 MB of 100 MB, 7 entries"
        );
        assert!(shown(100, 100).contains("########################] 100 %"));
        assert!(shown(0, 0).contains("100 %"));
        assert!(shown(0, 9).contains("[                        ]   0 %"));
    }
}
