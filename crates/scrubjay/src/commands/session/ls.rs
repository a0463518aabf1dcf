//! `scrubjay session ls`: every session, whether an agent worked with Scrubjay's tools in it or was only recorded.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::catalog;
use scrubjay_store::ledger::session;
use scrubjay_store::views::sessions::{self, Listed};

use crate::cli::Global;
use crate::commands::ledger;
use crate::pager::Pager;
use crate::render::{Align, Table, local_time, print_json};

/// List sessions, the most recently active first
///
/// A session is one agent's conversation: all servers that its host started for it, and what it did with Scrubjay's
/// own tools. The first one is what `latest` means.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Of this project alone
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Show the host's own id of each conversation, which every command takes as the session's name
    #[arg(long)]
    host_ids: bool,
    /// List no more than this
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

pub(crate) fn run(global: &Global, args: &LsArgs) -> anyhow::Result<ExitCode> {
    let mut all = every(global)?;
    if let Some(project) = &args.project {
        all.retain(|session| session.project_id.as_ref() == Some(project));
    }
    let shown = &all[..all.len().min(args.limit)];
    if global.json {
        print_json(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    if shown.is_empty() {
        Table::note().line(
            "no sessions yet: record one with `scrubjay wrap -- COMMAND`, or put `scrubjay serve` in a host's \
             configuration",
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let _pager = Pager::start(global);
    print(shown, args.host_ids)?;
    if shown.len() < all.len() {
        Table::note().line(&format!("{} of {} sessions shown (--limit)", shown.len(), all.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads all sessions of the ledger and of the tapes.
pub(super) fn every(global: &Global) -> anyhow::Result<Vec<Listed>> {
    ledger::within(global, async |ledger, loaded| {
        let home = loaded.home()?;
        let known = session::list(&mut ledger.read().await?, None, None, i64::MAX).await?;
        let tapes = catalog::read_all(&home, &home.list()?);
        Ok(sessions::listed(&known, &tapes))
    })
}

fn print(sessions: &[Listed], with_host_ids: bool) -> anyhow::Result<()> {
    let left = |name| (name, Align::Left);
    let mut columns =
        vec![left("SESSION"), left("LAST ACTIVE"), left("STATUS"), left("PROJECT"), left("AGENT")];
    columns.extend([("TAPES", Align::Right), ("MESSAGES", Align::Right), ("ERRORS", Align::Right)]);
    columns.extend(with_host_ids.then_some(left("HOST ID")));
    columns.push(left("TITLE"));
    let mut table = Table::filling(&columns);
    for session in sessions {
        let counts = [session.tapes, session.messages, session.errors].map(|count| count.to_string());
        let time = local_time(session.last_activity_ns.unsigned_abs());
        let project = session.project_id.as_deref().unwrap_or("-");
        let agent = session.agent.as_deref().unwrap_or("-");
        let mut row = vec![session.id.as_str(), &time, session.status, project, agent];
        row.extend(counts.iter().map(String::as_str));
        row.extend(with_host_ids.then(|| session.host_session.as_deref().unwrap_or("-")));
        let servers = session.servers.join(", ");
        row.push(session.title.as_deref().unwrap_or(&servers));
        table.row(session.errors > 0, &row);
    }
    table.print()
}
