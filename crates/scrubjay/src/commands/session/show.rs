//! `scrubjay session show`: the facts about one session, and its tapes.

use std::process::ExitCode;

use clap::Args;
use scrubjay_core::units;
use scrubjay_store::views::sessions::SessionSummary;
use scrubjay_tape::catalog::Overview;
use serde_json::json;

use super::ls::{self, Matching};
use crate::cli::Global;
use crate::render::{Align, Table, local_time, print_json};

/// Show the facts about a session: agent, title, status, tapes
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The session: its id, a prefix of it, the host's own id of the conversation, or latest
    session: String,
}

pub(crate) fn run(global: &Global, args: &ShowArgs) -> anyhow::Result<ExitCode> {
    // Not looked up in the ledger alone: a session that called no toolset is only on tapes.
    let Matching { sessions, mut tapes, .. } =
        ls::matching(global, |session| may_be_meant(session, &args.session), usize::MAX)?;
    let session = find(sessions, &args.session)?;
    tapes.retain(|tape| tape.session().id == session.id);
    if global.json {
        let tapes: Vec<_> = tapes.iter().map(|tape| tape.file.id.to_string()).collect();
        let mut value = serde_json::to_value(&session)?;
        value["tape_ids"] = json!(tapes);
        print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    describe(&session)?;
    if tapes.is_empty() {
        Table::note().line("no tapes")?;
    } else {
        list(&tapes)?;
    }
    // A session without a project is only on tapes, so it has no events.
    if session.project_id.is_some() {
        Table::note().line(&format!("what was done: scrubjay session timeline {}", session.id))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells whether a name or a prefix may mean a session.
fn may_be_meant(session: &SessionSummary, name: &str) -> bool {
    name == scrubjay_store::views::LATEST
        || session.host_session.as_deref() == Some(name)
        || (!name.is_empty() && session.id.starts_with(name))
}

/// Chooses the session that a name means among those that it may mean: an exact match before a prefix.
fn find(all: Vec<SessionSummary>, name: &str) -> anyhow::Result<SessionSummary> {
    // The list begins with the session that was active last.
    if name == scrubjay_store::views::LATEST
        && let Some(newest) = all.first()
    {
        return Ok(newest.clone());
    }
    let is_it =
        |session: &&SessionSummary| session.id == name || session.host_session.as_deref() == Some(name);
    if let Some(session) = all.iter().find(is_it) {
        return Ok(session.clone());
    }
    match all.as_slice() {
        [one] => Ok(one.clone()),
        [] => anyhow::bail!("there is no session \"{name}\": `scrubjay session ls` lists the sessions"),
        several => {
            let ids: Vec<&str> = several.iter().take(4).map(|session| session.id.as_str()).collect();
            anyhow::bail!(
                "\"{name}\" is a prefix of several sessions ({}): give more characters",
                ids.join(", ")
            )
        }
    }
}

fn describe(session: &SessionSummary) -> anyhow::Result<()> {
    let mut note = Table::note();
    let mut line = |name: &str, value: Option<&str>| match value {
        Some(value) => note.line(&format!("{name:<12} {value}")),
        None => Ok(()),
    };
    line("session", Some(&session.id))?;
    line("host's id", session.host_session.as_deref())?;
    line("title", session.title.as_deref())?;
    line("status", Some(session.status))?;
    line("project", session.project_id.as_deref())?;
    line("agent", session.agent.as_deref())?;
    line("workspace", session.workspace.as_deref())?;
    line("steps", session.steps.as_ref().map(ToString::to_string).as_deref())?;
    line("found by", Some(&session.told_by))?;
    line("began", Some(&session.created))?;
    line("last active", Some(&session.last_activity))?;
    line("ended", session.ended.as_deref())
}

fn list(tapes: &[Overview]) -> anyhow::Result<()> {
    let columns = [
        ("TAPE", Align::Left),
        ("STARTED", Align::Left),
        ("NAME", Align::Left),
        ("DURATION", Align::Right),
        ("MESSAGES", Align::Right),
        ("ERRORS", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for tape in tapes {
        table.row(
            tape.metadata.total_errors > 0,
            &[
                tape.file.id.short(),
                &local_time(tape.started_wall_ns()),
                tape.header.as_ref().map_or("", |header| &header.name),
                &units::duration(tape.duration_ns),
                &tape.metadata.total_messages.to_string(),
                &tape.metadata.total_errors.to_string(),
            ],
        );
    }
    table.print()
}
