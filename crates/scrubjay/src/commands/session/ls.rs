//! `scrubjay session ls`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::ledger::session;
use scrubjay_store::views::SessionView;

use crate::cli::Global;
use crate::commands::ledger;
use crate::render::{Align, Table, local_time, print_json};

/// List sessions, the most recently active first
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Of this project alone
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
}

pub(crate) fn run(global: &Global, args: &LsArgs) -> anyhow::Result<ExitCode> {
    let sessions = ledger::within(global, async |ledger, _| {
        let mut read = ledger.read().await?;
        Ok(session::list(&mut read, args.project.as_deref(), None, args.limit.into()).await?)
    })?;
    if global.json {
        print_json(&sessions.iter().map(SessionView::new).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if sessions.is_empty() {
        Table::note().line(
            "no sessions yet: an agent begins one with its first call to a toolset of `scrubjay serve`",
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = ["SESSION", "LAST ACTIVE", "STATUS", "PROJECT", "AGENT", "TITLE"];
    let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
    for session in &sessions {
        let view = SessionView::new(session);
        table.row(
            false,
            &[
                &view.id,
                &local_time(session.last_activity_ns.unsigned_abs()),
                view.status,
                &view.project_id,
                view.agent.as_deref().unwrap_or("-"),
                view.title.as_deref().unwrap_or("-"),
            ],
        );
    }
    table.print()?;
    Ok(ExitCode::SUCCESS)
}
