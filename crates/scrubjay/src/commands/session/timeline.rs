//! `scrubjay session timeline`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::ledger::event::EventKind;
use scrubjay_store::ledger::revision::State;
use scrubjay_store::views::{self, timeline};

use crate::cli::Global;
use crate::commands::ledger;
use crate::render::{Align, Table, print_json};

/// Show a session's events in order
#[derive(Debug, Args)]
pub(crate) struct TimelineArgs {
    /// The session: the beginning of its id
    session: String,
    /// Begin after this event
    #[arg(long, value_name = "EVENT", default_value_t = 0)]
    after: i64,
    /// At most so many
    #[arg(long, default_value_t = 200)]
    limit: u32,
}

pub(crate) fn run(global: &Global, args: &TimelineArgs) -> anyhow::Result<ExitCode> {
    let timeline = ledger::within(global, async |ledger, _| {
        let mut read = ledger.read().await?;
        let session = views::find_session(&mut read, &args.session).await?;
        Ok(timeline::read(&mut read, &session, args.after, args.limit.into()).await?)
    })?;
    if global.json {
        print_json(&timeline)?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [("EVENT", Align::Right), ("TIME", Align::Left), ("WHAT", Align::Left), ("", Align::Left)];
    let mut table = Table::new(&columns);
    for event in &timeline.events {
        let outcome = match event.outcome {
            None | Some(State::Done) => "",
            Some(State::Pending) => " (outcome not known yet)",
            Some(State::Failed) => " (not done)",
            Some(State::Changed) => " (changed by someone else)",
        };
        let bad = event.kind == EventKind::FileRefused || !outcome.is_empty();
        let time = event.at.get(11..19).unwrap_or(&event.at);
        let summary = format!("{}{outcome}", event.summary);
        table.row(bad, &[&event.id.to_string(), time, &event.kind.name(), &summary]);
    }
    table.print()?;
    if let Some(next) = timeline.next_after {
        let shown = timeline.events.len();
        Table::note().line(&format!("{shown} of {} events; more with --after {next}", timeline.total))?;
    }
    Ok(ExitCode::SUCCESS)
}
