//! `scrubjay tape du`: disk space by name or session.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use scrubjay_core::units;
use scrubjay_tape::catalog::{self, Overview};
use scrubjay_tape::format::reader::TapeState;
use scrubjay_tape::home::Home;
use serde::Serialize;

use crate::cli::Global;
use crate::pager::Pager;
use crate::render::{Align, Table, print_json};

/// Show how much disk space recordings, index and ledger use
#[derive(Debug, Args)]
pub(crate) struct DuArgs {
    /// Group tapes by this
    #[arg(long, value_enum, default_value_t)]
    by: GroupBy,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum GroupBy {
    /// The name of the connection
    #[default]
    Name,
    /// The session it belongs to
    Session,
}

/// The disk space of the tapes of one name or session.
#[derive(Debug, Default, Serialize)]
struct TapeUsage {
    tapes: u64,
    messages: u64,
    sealed_bytes: u64,
    /// Being written, or left by a crash: not compressed yet.
    live_bytes: u64,
}

#[derive(Serialize)]
struct DiskUsage {
    tapes: BTreeMap<String, TapeUsage>,
    tapes_bytes: u64,
    /// Live files that were damaged before they could be sealed, and files that are being sealed.
    other_tape_files_bytes: u64,
    index_bytes: u64,
    ledger_bytes: u64,
    backends_bytes: u64,
    other_bytes: u64,
    total_bytes: u64,
}

pub(crate) fn run(global: &Global, home: &Home, args: &DuArgs) -> anyhow::Result<ExitCode> {
    let tapes = catalog::read_all(home, &home.list()?);
    let room = measure(home, &tapes, args.by);
    if global.json {
        print_json(&room)?;
    } else {
        let _pager = Pager::start(global);
        print(&room, args.by)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(home: &Home, tapes: &[Overview], by: GroupBy) -> DiskUsage {
    let mut taken: BTreeMap<String, TapeUsage> = BTreeMap::new();
    for tape in tapes {
        let key = tape.header.as_ref().map(|header| match by {
            GroupBy::Name => header.name.clone(),
            GroupBy::Session => header.session.id.clone(),
        });
        let one = taken.entry(key.unwrap_or_default()).or_default();
        one.tapes += 1;
        one.messages += tape.metadata.total_messages + tape.metadata.backend_messages;
        match tape.state {
            TapeState::Sealed => one.sealed_bytes += tape.file_bytes,
            TapeState::Live | TapeState::Abandoned => one.live_bytes += tape.file_bytes,
        }
    }
    let tapes_bytes = tapes.iter().map(|tape| tape.file_bytes).sum();
    let (index_bytes, ledger_bytes) = (with_companions(&home.index()), with_companions(&home.ledger()));
    let backends_bytes = size_of(&home.backends());
    let total_bytes = size_of(home.root());
    let known = size_of(&home.tapes()) + index_bytes + ledger_bytes + backends_bytes;
    DiskUsage {
        tapes: taken,
        tapes_bytes,
        other_tape_files_bytes: size_of(&home.tapes()).saturating_sub(tapes_bytes),
        index_bytes,
        ledger_bytes,
        backends_bytes,
        other_bytes: total_bytes.saturating_sub(known),
        total_bytes,
    }
}

/// Returns the size of a database with the files that belong to it: `index.db`, `index.db-wal`.
fn with_companions(path: &Path) -> u64 {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return 0 };
    let name = name.to_string_lossy();
    // SQLite keeps its log and its shared memory in files whose names begin with that of the database.
    let beside = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let beside = beside.filter(|entry| entry.file_name().to_string_lossy().starts_with(&*name));
    beside.map(|entry| size_of(&entry.path())).sum()
}

/// Returns the size of a file or directory tree; links are not followed, unreadable files count as empty.
fn size_of(path: &Path) -> u64 {
    let mut waiting = vec![path.to_owned()];
    let mut bytes = 0;
    while let Some(path) = waiting.pop() {
        let Ok(facts) = std::fs::symlink_metadata(&path) else { continue };
        if facts.is_dir() {
            waiting
                .extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else {
            bytes += facts.len();
        }
    }
    bytes
}

fn print(room: &DiskUsage, by: GroupBy) -> anyhow::Result<()> {
    let key = match by {
        GroupBy::Name => "NAME",
        GroupBy::Session => "SESSION",
    };
    let mut table = Table::new(&[
        (key, Align::Left),
        ("TAPES", Align::Right),
        ("MESSAGES", Align::Right),
        ("SEALED", Align::Right),
        ("LIVE", Align::Right),
    ]);
    let some = |bytes: u64| if bytes > 0 { units::size(bytes) } else { String::new() };
    let mut largest: Vec<_> = room.tapes.iter().collect();
    largest.sort_by_key(|(_, taken)| std::cmp::Reverse(taken.sealed_bytes + taken.live_bytes));
    for (name, taken) in largest {
        let (tapes, messages) = (taken.tapes.to_string(), taken.messages.to_string());
        table.row(false, &[name, &tapes, &messages, &some(taken.sealed_bytes), &some(taken.live_bytes)]);
    }
    if !room.tapes.is_empty() {
        table.print()?;
        Table::note().line("")?;
    }
    let parts = [
        ("tapes", room.tapes_bytes),
        ("damaged and unfinished", room.other_tape_files_bytes),
        ("index", room.index_bytes),
        ("ledger", room.ledger_bytes),
        ("what backends offered", room.backends_bytes),
        ("other", room.other_bytes),
        ("all", room.total_bytes),
    ];
    let mut table = Table::new(&[("WHAT", Align::Left), ("SIZE", Align::Right)]);
    for (what, bytes) in parts.iter().filter(|(what, bytes)| *bytes > 0 || *what == "all") {
        table.row(false, &[what, &units::size(*bytes)]);
    }
    table.print()
}
