//! `scrubjay session ls`: lists sessions, those in the ledger and those that are only on tapes.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::ledger::session;
use scrubjay_store::views::sessions::{self, SessionSummary};
use scrubjay_tape::catalog::{self, Overview};

use crate::cli::Global;
use crate::commands::ledger;
use crate::pager::Pager;
use crate::render::{Align, Table, local_time, print_json};

/// List sessions, the most recently active first
///
/// A session is one conversation of an agent, with all servers that its host started for it. Commands take a session's
/// id, a prefix of it, the host's own id, or `latest`, which is the first of this list.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only sessions of this project
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Show the host's own id of each conversation
    #[arg(long)]
    host_ids: bool,
    /// List at most this many
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

pub(crate) fn run(global: &Global, args: &LsArgs) -> anyhow::Result<ExitCode> {
    let wanted = |session: &SessionSummary| {
        args.project.is_none() || session.project_id.as_ref() == args.project.as_ref()
    };
    let Matching { sessions: shown, total, .. } = matching(global, wanted, args.limit)?;
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
    print(&shown, args.host_ids)?;
    if shown.len() < total {
        Table::note().line(&format!("{} of {total} sessions shown (--limit)", shown.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The sessions that match, and the tapes that were read to find them.
pub(super) struct Matching {
    /// The first of them.
    pub(super) sessions: Vec<SessionSummary>,
    /// How many there are in all.
    total: usize,
    /// The tapes of all sessions.
    pub(super) tapes: Vec<Overview>,
}

/// Finds the first sessions that match, in the ledger and on the tapes.
pub(super) fn matching(
    global: &Global,
    wanted: impl Fn(&SessionSummary) -> bool,
    limit: usize,
) -> anyhow::Result<Matching> {
    ledger::within(global, async |ledger, loaded| {
        let home = loaded.home()?;
        let mut read = ledger.read().await?;
        // All of both, because the limit applies to the merged list.
        let known = session::list(&mut read, None, None, i64::MAX).await?;
        let tapes = catalog::read_all(&home, &home.list()?);
        let mut all = sessions::list(&known, &tapes);
        all.retain(wanted);
        let total = all.len();
        all.truncate(limit);
        sessions::count_steps(&mut read, &mut all).await?;
        Ok(Matching { sessions: all, total, tapes })
    })
}

fn print(sessions: &[SessionSummary], with_host_ids: bool) -> anyhow::Result<()> {
    let left = |name| (name, Align::Left);
    let mut columns =
        vec![left("SESSION"), left("LAST ACTIVE"), left("STATUS"), left("PROJECT"), left("AGENT")];
    columns.extend([("TAPES", Align::Right), ("MESSAGES", Align::Right), ("ERRORS", Align::Right)]);
    columns.push(left("STEPS"));
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
        let steps = session.steps.as_ref().map(ToString::to_string).unwrap_or_default();
        row.push(&steps);
        row.extend(with_host_ids.then(|| session.host_session.as_deref().unwrap_or("-")));
        let servers = session.servers.join(", ");
        row.push(session.title.as_deref().unwrap_or(&servers));
        table.row(session.errors > 0, &row);
    }
    table.print()
}
