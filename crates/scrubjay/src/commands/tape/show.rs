//! `scrubjay tape show`: a tape as a network panel.

mod one;
mod rows;
mod source;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_core::export::entry_json;
use scrubjay_core::reading::EntryReader;
use scrubjay_core::stats::TapeMetadata;
use scrubjay_core::units;
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::home::Home;

use self::one::Form;
pub(super) use self::rows::{Rows, fixed_widths};
use self::source::Source;
use crate::cli::Global;
use crate::pager::Pager;
use crate::render::{Table, local_time, write_json};

const EXAMPLES: &str = "\
Examples:
  scrubjay tape show                           # the newest conversation
  scrubjay tape show latest --entry 3          # one message in full
  scrubjay tape show latest --entry 3 --raw    # only its bytes, for another program";

/// Show the entries of a recording: requests, responses, failures
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The tape: its id, a prefix of it, `latest` (the newest conversation), a file (a tape or an export of
    /// one), or - for standard input
    #[arg(default_value = "latest")]
    id: String,
    /// Show this one entry in full: time, pair, rules, redactions and the message itself
    #[arg(long, value_name = "N")]
    entry: Option<u64>,
    /// With --entry: print only the recorded bytes
    #[arg(long, requires = "entry", conflicts_with = "json")]
    raw: bool,
    /// Begin with this entry
    #[arg(long, default_value_t = 0, value_name = "N")]
    from: u64,
    /// Show at most this many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

pub(crate) fn run(global: &Global, home: &Home, args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let source = Source::open(global, home, &args.id)?;
    let tape = &source.tape;
    if let Some(number) = args.entry {
        let form = if args.raw { Form::Raw } else { Form::Read };
        // No pager for --raw, because bytes are for programs.
        let _pager = if args.raw { None } else { Pager::start(global) };
        one::show(global, home, tape, number, form)?;
    } else if global.json {
        print_json_entries(home, tape, args)?;
    } else {
        let _pager = Pager::start(global);
        print_heading(tape)?;
        print_tape(home, tape, args.from, args.limit.unwrap_or(u64::MAX))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_json_entries(home: &Home, tape: &Tape, args: &ShowArgs) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut reader = home.reader(tape)?;
    let mut entries = tape.entries()?;
    // Written entry by entry, so that memory does not grow with the tape.
    write!(out, "[")?;
    let mut shown = 0;
    while shown < args.limit.unwrap_or(u64::MAX)
        && let Some((number, entry)) = entries.next()?
    {
        let reading = reader.read_numbered(number, &entry);
        if number >= args.from {
            write!(out, "{}", if shown == 0 { "\n" } else { ",\n" })?;
            write_json(&mut out, &entry_json(number, &entry, &reading))?;
            shown += 1;
        }
    }
    writeln!(out, "\n]")?;
    Ok(out.flush()?)
}

/// Prints which tape this is, and when it began: the times of the rows count from then.
fn print_heading(tape: &Tape) -> anyhow::Result<()> {
    let Some(header) = tape.header() else { return Ok(()) };
    let state = match tape.state() {
        TapeState::Live => ", being recorded",
        TapeState::Abandoned => ", not sealed",
        TapeState::Sealed => "",
    };
    let part = if header.part > 1 { format!(", part {}", header.part) } else { String::new() };
    let began = local_time(header.started_wall_ns);
    Table::note().line(&format!("tape {}  {}  {began}{part}{state}", header.id.short(), header.name))
}

/// Prints a tape as a table, with a line of totals.
pub(crate) fn print_tape(home: &Home, tape: &Tape, from: u64, limit: u64) -> anyhow::Result<()> {
    let undelivered = home.undelivered(tape)?;
    let undelivered_messages = undelivered.messages;
    let mut reader = EntryReader::with_undelivered(undelivered);
    let mut entries = tape.entries()?;
    let mut rows = Rows::new();
    let (mut shown, mut more) = (0, 0);
    while let Some((number, entry)) = entries.next()? {
        let reading = reader.read_numbered(number, &entry);
        if number >= from && shown < limit {
            rows.add(number, &entry, &reading);
            shown += 1;
        } else {
            // Read all the same: it may answer an entry that is shown, and the totals are about the whole tape.
            rows.pass(&reading);
            more += u64::from(number >= from);
        }
    }
    rows.mark_unanswered(tape.state() == TapeState::Live);
    rows.table.print()?;
    let sums = reader.finish();
    let mut text = totals(&sums, undelivered_messages);
    if more > 0 {
        text += &format!("; {more} more entries: --from {} or --limit", from + shown);
    }
    let mut note = Table::note();
    note.line(&text)?;
    if let Some(footnote) = rows.footnote() {
        note.line(footnote)?;
    }
    if !sums.left_out.is_nothing() {
        note.line(&sums.left_out.describe())?;
    }
    for damage in entries.damage() {
        note.line(&format!("damaged: {}", damage.what))?;
    }
    Ok(())
}

fn totals(sums: &TapeMetadata, undelivered: u64) -> String {
    let mut text = format!(
        "{}, {} sent, {} received, {} failed, {} unanswered; response time p50 {}, p99 {}",
        units::counted(sums.total_messages, "message"),
        units::size(sums.total_bytes_sent),
        units::size(sums.total_bytes_received),
        sums.total_errors,
        sums.unanswered,
        units::duration(sums.p50_response_time_ns),
        units::duration(sums.p99_response_time_ns),
    );
    if sums.intercepted > 0 {
        text += &format!("; {} intercepted by rules", sums.intercepted);
    }
    if undelivered > 0 {
        text += &format!("; {undelivered} undelivered");
    }
    if sums.backends_ended > 0 {
        text += &format!("; backends ended: {}", sums.backends_ended);
    }
    text
}

/// Opens a tape again, under its new name once it is sealed.
pub(super) fn reopen(home: &Home, id: &str) -> anyhow::Result<Tape> {
    super::open(home, id).context("the tape was removed")
}
