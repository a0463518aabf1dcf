//! `scrubjay tape ls`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_core::reading::Reader;
use scrubjay_core::stats::TapeMetadata;
use scrubjay_core::units;
use scrubjay_store::home::{Home, TapeFile};
use scrubjay_store::tape::header::{SessionRef, ToldBy};
use scrubjay_store::tape::reader::{State, Tape};
use serde::Serialize;

use crate::cli::Global;
use crate::render::{Align, Table, local_time, print_json};

/// List recordings, newest first
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Also list connections on which nothing but a look who is there was said
    #[arg(long)]
    all: bool,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

#[derive(Serialize)]
struct Row {
    id: String,
    name: String,
    session: SessionRef,
    started_wall_ns: u64,
    duration_ns: u64,
    state: State,
    file_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
    #[serde(flatten)]
    metadata: TapeMetadata,
}

pub(crate) fn run(global: &Global, home: &Home, args: &LsArgs) -> anyhow::Result<ExitCode> {
    let tapes = home.list()?;
    let mut rows = Vec::new();
    for file in &tapes {
        if rows.len() >= args.limit {
            break;
        }
        let row = row(home, file);
        if args.all || !row.metadata.probe {
            rows.push(row);
        }
    }
    if global.json {
        print_json(&rows)?;
    } else if rows.is_empty() {
        let hidden = if tapes.is_empty() { "" } else { " (only probes: --all lists them)" };
        let mut table = Table::note();
        table.line(&format!("no tapes in {}{hidden}", home.root().display()))?;
    } else {
        print(&rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(home: &Home, file: &TapeFile) -> Row {
    let mut row = Row {
        id: file.id.to_string(),
        name: String::new(),
        session: SessionRef::default(),
        started_wall_ns: 0,
        duration_ns: 0,
        state: State::Sealed,
        file_bytes: 0,
        damaged: None,
        metadata: TapeMetadata::default(),
    };
    if let Err(e) = home.open(file).map_err(anyhow::Error::from).and_then(|tape| fill(&mut row, &tape)) {
        row.damaged = Some(e.to_string());
    }
    if let Some(id) = row.metadata.session.clone() {
        row.session = SessionRef { id, told_by: ToldBy::Agent };
    }
    row
}

/// Returns what a tape adds up to.
pub(super) fn metadata(home: &Home, file: &TapeFile) -> TapeMetadata {
    row(home, file).metadata
}

fn fill(row: &mut Row, tape: &Tape) -> anyhow::Result<()> {
    row.state = tape.state();
    row.file_bytes = tape.file_bytes()?;
    if let Some(header) = tape.header() {
        row.name.clone_from(&header.name);
        row.session.clone_from(&header.session);
        row.started_wall_ns = header.started_wall_ns;
    }
    if let Some(footer) = tape.footer() {
        row.duration_ns = footer.duration_ns;
        row.metadata = footer.metadata.clone();
        row.damaged = footer.damage.first().map(|d| d.what.clone());
        return Ok(());
    }
    // No footer: a live tape, one left by a crash, or a damaged one. Add it up.
    let mut reader = Reader::default();
    let mut entries = tape.entries()?;
    while let Some((_, entry)) = entries.next()? {
        row.duration_ns = row.duration_ns.max(entry.since_start_ns);
        reader.read(&entry);
    }
    row.damaged = entries.damage().first().map(|d| d.what.clone());
    row.metadata = reader.finish();
    Ok(())
}

fn print(rows: &[Row]) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STARTED", Align::Left),
        ("NAME", Align::Left),
        ("SESSION", Align::Left),
        ("DURATION", Align::Right),
        ("MESSAGES", Align::Right),
        ("ERRORS", Align::Right),
        ("P50", Align::Right),
        ("SIZE", Align::Right),
        ("STATE", Align::Left),
    ]);
    for row in rows {
        let sums = &row.metadata;
        let state = match (row.state, &row.damaged) {
            (_, Some(_)) => "damaged",
            (State::Live, _) => "live",
            (State::Abandoned, _) => "not sealed",
            (State::Sealed, _) => "sealed",
        };
        table.row(
            sums.total_errors > 0 || row.damaged.is_some(),
            &[
                &row.id[..6],
                &local_time(row.started_wall_ns),
                &row.name,
                row.session.id.get(..6).unwrap_or_default(),
                &units::duration(row.duration_ns),
                &sums.total_messages.to_string(),
                &sums.total_errors.to_string(),
                &if sums.p50_response_time_ns > 0 {
                    units::duration(sums.p50_response_time_ns)
                } else {
                    String::new()
                },
                &units::size(row.file_bytes),
                if sums.probe { "probe" } else { state },
            ],
        );
    }
    table.print()
}
