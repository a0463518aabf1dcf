//! `scrubjay tape follow`: watch a connection as it is recorded.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use scrubjay_core::entry::{End, EntryKind};
use scrubjay_core::export::entry_json;
use scrubjay_core::id::TapeId;
use scrubjay_tape::format::header::{Header, TapeKind};
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::home::Home;

use super::show;
use crate::cli::Global;
use crate::render::write_json;

/// How often a live tape is checked for new entries: often enough to look immediate.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Show entries as they are recorded, until the connection ends
#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// The tape: its id, a prefix of it, or `latest` [default: the newest conversation that is being recorded]
    id: Option<String>,
}

pub(crate) fn run(global: &Global, home: &Home, args: &FollowArgs) -> anyhow::Result<ExitCode> {
    let mut id = match &args.id {
        Some(name) => home.find(name)?.id,
        None => newest_live(home)?,
    };
    let mut first = true;
    // The last entry of a full tape names the tape on which the connection continues.
    while let Some(next) = follow(global, home, id.as_str(), first)? {
        id = next;
        first = false;
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds the newest conversation of a client that is still recorded, leaving out the tapes of backends.
fn newest_live(home: &Home) -> anyhow::Result<TapeId> {
    let goes_on = |tape: &Tape| {
        let kind = tape.header().map_or(TapeKind::Conversation, Header::kind);
        kind == TapeKind::Conversation && tape.state() == TapeState::Live
    };
    home.list()?
        .into_iter()
        .find(|file| home.open(file).is_ok_and(|tape| goes_on(&tape)))
        .map(|file| file.id)
        .context("no conversation is being recorded right now: `scrubjay tape ls` lists the earlier ones")
}

fn follow(global: &Global, home: &Home, id: &str, first: bool) -> anyhow::Result<Option<TapeId>> {
    let tape = show::reopen(home, id)?;
    let mut entries = tape.entries()?;
    let mut reader = home.reader(&tape)?;
    let mut rows = show::Rows::new();
    let widths = show::fixed_widths();
    // One heading for the whole connection, even if it continues on other tapes.
    let mut with_head = first && !global.json;
    let mut continues = None;
    loop {
        // Before reading: entries written until then are read below.
        let ended = tape.state() != TapeState::Live;
        while let Some((number, entry)) = entries.next()? {
            let reading = reader.read_numbered(number, &entry);
            if entry.kind == EntryKind::End {
                continues = serde_json::from_slice::<End>(entry.payload).ok().and_then(|e| e.continues_on);
            }
            if global.json {
                let mut out = std::io::stdout().lock();
                write_json(&mut out, &entry_json(number, &entry, &reading))?;
                writeln!(out)?;
                out.flush()?;
            } else {
                rows.add(number, &entry, &reading);
            }
        }
        rows.table.print_fresh(&widths, with_head)?;
        with_head = false;
        if ended {
            return Ok(continues);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
