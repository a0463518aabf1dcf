//! `scrubjay tape rm`.

use std::collections::HashSet;
use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use scrubjay_core::id::TapeId;
use scrubjay_core::inert::inert;
use scrubjay_core::units::{self, counted};
use scrubjay_tape::catalog::{self, Overview};
use scrubjay_tape::clock;
use scrubjay_tape::clock_trust::ClockReading;
use scrubjay_tape::format::reader::TapeState;
use scrubjay_tape::home::Home;
use scrubjay_tape::removed::RemovedBy;
use scrubjay_tape::retention;

use crate::cli::Global;
use crate::render::{Table, local_time, print_json};

/// Remove recordings
///
/// Removes the tapes that belong to a conversation alone with it, such as those of its backends. Asks first on a
/// terminal; elsewhere `--yes` is required. Each removal is noted in the data directory, so that `tape verify` can tell a
/// removed tape from a missing one.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// The tapes: ids, prefixes of them, or `latest`
    #[arg(required_unless_present = "older_than", value_name = "ID")]
    ids: Vec<String>,
    /// Remove every tape that ended longer ago than this: 30d, 12h
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, conflicts_with = "ids")]
    older_than: Option<Duration>,
    /// Trust the clock of this machine even if it jumped ahead, and the times of tapes recorded while it was behind
    #[arg(long, requires = "older_than")]
    trust_clock: bool,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(crate) fn run(global: &Global, args: &RmArgs) -> anyhow::Result<ExitCode> {
    // Before anything is removed, because without the configuration the index cannot be cleaned.
    let (loaded, home) = global.load_with_home()?;
    let all = catalog::read_all(&home, &home.list()?);
    let (wanted, in_doubt) = match args.older_than {
        Some(age) => {
            check_clock(&home, args, age)?;
            ended_before(&all, age, args.trust_clock)
        }
        None => (named(&home, &all, &args.ids)?, Vec::new()),
    };
    if !in_doubt.is_empty() && !global.json && !global.quiet {
        tell_of_doubt(&in_doubt)?;
    }
    let in_doubt: Vec<String> = in_doubt.iter().map(|tape| tape.file.id.to_string()).collect();
    let bytes: u64 = wanted.iter().map(|tape| tape.file_bytes).sum();
    let ids: Vec<String> = wanted.iter().map(|tape| tape.file.id.to_string()).collect();
    if args.dry_run {
        if global.json {
            print_json(&serde_json::json!({ "would_remove": ids, "bytes": bytes, "in_doubt": in_doubt }))?;
        } else {
            wanted.iter().try_for_each(|tape| Table::note().line(&describe(tape)))?;
            Table::note().line(&format!("would remove {}", amount(wanted.len(), bytes)))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && !wanted.is_empty() && !agreed(&wanted, bytes)? {
        Table::note().line("nothing was removed")?;
        return Ok(ExitCode::FAILURE);
    }
    for tape in &wanted {
        home.remove(&tape.file, RemovedBy::Person)?;
    }
    home.forget_ends()?;
    crate::commands::index::forget_removed(global, &loaded, &home)?;
    if global.json {
        print_json(&serde_json::json!({ "removed": ids, "in_doubt": in_doubt }))?;
    } else if !global.quiet {
        let text = match ids.len() {
            0 => "nothing to remove".to_owned(),
            1..=10 => format!("removed {}", ids.join(", ")),
            _ => format!("removed {}", amount(ids.len(), bytes)),
        };
        Table::note().line(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to trust a clock that jumped ahead, unless `--trust-clock` is given.
fn check_clock(home: &Home, args: &RmArgs, age: Duration) -> anyhow::Result<()> {
    let now = ClockReading::take(home);
    if args.trust_clock {
        // A dry run changes nothing, the stored time included.
        if !args.dry_run {
            home.trust_clock(&now)?;
        }
        return Ok(());
    }
    if let Some(doubt) = home.check_clock(&now, Some(age))? {
        anyhow::bail!(
            "cannot tell how old tapes are: {}; nothing was removed. Set the clock right, or, if it is right (the \
             machine may have been off for long), repeat this with --trust-clock",
            doubt.words()
        );
    }
    Ok(())
}

/// Finds the tapes that ended longer ago than `age`, and separately those whose times say so but cannot be trusted. A tape
/// that is being written, or waits to be sealed, has not ended; tapes of a conversation that goes on are kept with it.
fn ended_before(all: &[Overview], age: Duration, trust_clock: bool) -> (Vec<&Overview>, Vec<&Overview>) {
    let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    let before = clock::now().wall_ns.saturating_sub(age_ns);
    let running = retention::of_running_sessions(all);
    let is_old = |tape: &Overview| tape.state == TapeState::Sealed && is_dated_before(tape, before);
    let goes = |(at, tape): &(usize, &Overview)| is_old(tape) && !running.contains(at);
    let dated = all.iter().enumerate().filter(goes).map(|(_, tape)| tape);
    dated.partition(|tape| trust_clock || tape.is_surely_before(before))
}

/// Says which tapes stay although their times say that they are old.
fn tell_of_doubt(tapes: &[&Overview]) -> anyhow::Result<()> {
    let mut note = Table::note();
    for tape in tapes.iter().take(10) {
        note.line(&describe(tape))?;
    }
    note.line(&format!(
        "left: {}. The clock was behind when they were recorded, or their files are newer than they say; remove them by \
         their ids, or with --trust-clock if their times are right",
        counted(tapes.len() as u64, "tape")
    ))?;
    Ok(())
}

/// Tells whether a tape is known to have ended before a moment: one without a header is not.
fn is_dated_before(tape: &Overview, wall_ns: u64) -> bool {
    tape.header.is_some() && tape.ended_wall_ns() < wall_ns
}

/// Finds the tapes with these names, and those that belong to nothing else.
fn named<'a>(home: &Home, all: &'a [Overview], names: &[String]) -> anyhow::Result<Vec<&'a Overview>> {
    // All names are looked up before anything is removed, so that after a wrong one nothing is missing.
    let named = names.iter().map(|name| home.find(name).map(|file| file.id));
    let named: HashSet<TapeId> = named.collect::<Result<_, _>>()?;
    if let Some(live) = all.iter().find(|tape| named.contains(&tape.file.id) && tape.state == TapeState::Live)
    {
        anyhow::bail!(
            "tape {} is being recorded: end its connection first; nothing was removed",
            live.file.id
        );
    }
    let shared = catalog::shared_by(all);
    let goes = |at: usize, tape: &Overview| {
        // A backend's tape may belong to several conversations: it is removed with the last of them.
        let is_left_alone = || {
            let of = &shared[at];
            !of.is_empty() && of.iter().all(|conversation| named.contains(&all[*conversation].file.id))
        };
        named.contains(&tape.file.id) || (tape.state != TapeState::Live && is_left_alone())
    };
    Ok(all.iter().enumerate().filter(|(at, tape)| goes(*at, tape)).map(|(_, tape)| tape).collect())
}

fn describe(tape: &Overview) -> String {
    let name = tape.header.as_ref().map_or("", |header| header.name.as_str());
    let began = local_time(tape.started_wall_ns());
    format!("{}  {began}  {name}  {}", tape.file.id.short(), units::size(tape.file_bytes))
}

fn amount(tapes: usize, bytes: u64) -> String {
    format!("{}, {}", counted(tapes as u64, "tape"), units::size(bytes))
}

/// Asks whether the tapes may be removed.
fn agreed(tapes: &[&Overview], bytes: u64) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        anyhow::bail!(
            "this would remove {}: add --yes to do it, or --dry-run to see which; nothing was removed",
            amount(tapes.len(), bytes)
        );
    }
    // On standard error, because standard output is for the result.
    let mut out = std::io::stderr();
    for tape in tapes.iter().take(10) {
        writeln!(out, "{}", inert(&describe(tape)))?;
    }
    if tapes.len() > 10 {
        writeln!(out, "and {} more", tapes.len() - 10)?;
    }
    write!(out, "Remove {}? [y/N] ", amount(tapes.len(), bytes))?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
