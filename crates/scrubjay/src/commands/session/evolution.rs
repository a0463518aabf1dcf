//! `scrubjay session evolution`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_core::units::counted;
use scrubjay_store::ledger::revision::RevisionState;
use scrubjay_store::views::budget::Window;
use scrubjay_store::views::evolution;

use super::open_session;
use crate::cli::Global;
use crate::commands::ledger;
use crate::render::{Align, Table, print_diff, print_json, print_lines};

/// Show which files a session changed, or the revisions of one file with their differences
#[derive(Debug, Args)]
pub(crate) struct EvolutionArgs {
    /// The session: its id, a prefix of it, the host's own id of the conversation, or latest
    session: String,
    /// Show the revisions of this file, given by its path in the workspace
    path: Option<String>,
    /// Begin after this revision
    #[arg(long, value_name = "REVISION", default_value_t = 0)]
    after: i64,
    /// Show at most this many revisions
    #[arg(long, default_value_t = 50)]
    limit: u32,
}

pub(crate) fn run(global: &Global, args: &EvolutionArgs) -> anyhow::Result<ExitCode> {
    ledger::within(global, async |ledger, loaded| {
        let (mut read, session) = open_session(ledger, loaded, &args.session).await?;
        match &args.path {
            None => show_files(global, &evolution::files(&mut read, &session, None).await?),
            Some(path) => {
                let window = Window::items(args.after, args.limit.into());
                let page = evolution::read(&mut read, &session, path, window);
                show_revisions(global, &page.await?)
            }
        }
    })
}

fn show_files(global: &Global, files: &evolution::ChangedFiles) -> anyhow::Result<ExitCode> {
    if global.json {
        print_json(files)?;
        return Ok(ExitCode::SUCCESS);
    }
    if files.files.is_empty() {
        Table::note().line("this session changed no files")?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        ("REVISIONS", Align::Right),
        ("ADDED", Align::Right),
        ("REMOVED", Align::Right),
        ("FILE", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for file in &files.files {
        let numbers = [file.revisions, file.added, file.removed].map(|n| n.to_string());
        table.row(false, &[&numbers[0], &numbers[1], &numbers[2], &file.path]);
    }
    table.print()?;
    Ok(ExitCode::SUCCESS)
}

fn show_revisions(global: &Global, page: &evolution::Evolution) -> anyhow::Result<ExitCode> {
    if global.json {
        print_json(page)?;
        return Ok(ExitCode::SUCCESS);
    }
    for revision in &page.revisions {
        print_lines(&heading(revision))?;
        if let Some(content) = &revision.initial_content {
            // Without it the first difference could not be understood: the file existed before the session.
            print_lines("the content before:")?;
            print_lines(content)?;
        }
        if !revision.diff.is_empty() {
            print_diff(&revision.diff)?;
        }
        print_lines("")?;
    }
    if let Some(next) = page.next_after {
        let total = counted(page.total, "revision");
        print_lines(&format!("{} of {total}; more with --after {next}", page.revisions.len()))?;
    }
    for place in &page.moved_from {
        print_lines(&format!("the workspace was {place} before it moved to {}", page.workspace))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn heading(revision: &evolution::RevisionView) -> String {
    let state = match revision.state {
        RevisionState::Done => String::new(),
        other => format!(", {}", other.name()),
    };
    let step = revision.step.as_ref().map(|step| format!(" · {step}")).unwrap_or_default();
    let place = revision.workspace.as_ref().map(|root| format!(" · in {root}")).unwrap_or_default();
    format!(
        "revision {} · event {} · {} · {}{state} · {} B, {}{step}{place}",
        revision.id,
        revision.event_id,
        revision.at,
        revision.source.name(),
        revision.size,
        counted(revision.lines, "line")
    )
}
