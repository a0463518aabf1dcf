//! `scrubjay session timeline`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_core::shorten::shortened;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::event::EventKind;
use scrubjay_store::ledger::revision::RevisionState;
use scrubjay_store::views::budget::Window;
use scrubjay_store::views::timeline;

use super::open_session;
use crate::cli::Global;
use crate::commands::ledger;
use crate::render::{Align, Table, print_json};

/// The most characters of a step that are shown in its column.
const STEP_CHARS_MAX: usize = 24;

/// Show a session's events in order
#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    /// The session: its id, a prefix of it, the host's own id of the conversation, or latest
    session: String,
    /// Begin after this event, such as the last one shown
    #[arg(long, value_name = "EVENT", default_value_t = 0)]
    after: i64,
    /// Show at most this many events
    #[arg(long, default_value_t = 200)]
    limit: u32,
}

pub(crate) fn run(global: &Global, args: &TimelineArgs) -> anyhow::Result<ExitCode> {
    let timeline = ledger::within(global, async |ledger, loaded| {
        let (mut read, session) = open_session(ledger, loaded, &args.session).await?;
        let window = Window::items(args.after, args.limit.into());
        Ok(timeline::read(&mut read, &session, window).await?)
    })?;
    if global.json {
        print_json(&timeline)?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        ("EVENT", Align::Right),
        ("TIME", Align::Left),
        ("STEP", Align::Left),
        ("LINES", Align::Right),
        ("WHAT", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for event in &timeline.events {
        let is_open = event.outcome.is_some_and(|outcome| outcome != RevisionState::Done);
        let bad = event.kind == EventKind::FileRefused || is_open;
        // The time of day in `2026-11-17T08:00:00Z`; the date would take the room of the description.
        let time = event.at.get(11..19).unwrap_or(&event.at);
        let step = event.step.as_ref().map(|step| shortened(&step.to_string(), STEP_CHARS_MAX).into_owned());
        table.row(
            bad,
            &[
                &event.id.to_string(),
                time,
                step.as_deref().unwrap_or_default(),
                event.lines().as_deref().unwrap_or_default(),
                &event.summary,
            ],
        );
    }
    table.print()?;
    let steps = if timeline.steps.total > 0 { format!("; {}", timeline.steps) } else { String::new() };
    let total = counted(timeline.total, "event");
    Table::note().line(&match timeline.next_after {
        Some(next) => format!("{} of {total}; more with --after {next}{steps}", timeline.events.len()),
        None => format!("{total}{steps}"),
    })?;
    Ok(ExitCode::SUCCESS)
}
