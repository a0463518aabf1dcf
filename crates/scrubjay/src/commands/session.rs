//! `scrubjay session`: what agents did, from the ledger.

mod cat;
mod evolution;
mod ls;
mod rewind;
mod show;
mod story;
mod timeline;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use scrubjay_config::Loaded;
use scrubjay_store::files::Files;
use scrubjay_store::ledger::session::{Caller, Session};
use scrubjay_store::ledger::{Ledger, Read, revision};
use scrubjay_store::views;
use scrubjay_store::workspace::Workspace;

use crate::cli::Global;

/// Show what agents did in their sessions, and undo changes of files
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    Ls(ls::LsArgs),
    Show(show::ShowArgs),
    Timeline(timeline::TimelineArgs),
    Story(story::StoryArgs),
    Evolution(evolution::EvolutionArgs),
    Cat(cat::CatArgs),
    Rewind(rewind::RewindArgs),
}

pub(crate) fn run(global: &Global, command: &SessionCommand) -> anyhow::Result<ExitCode> {
    match command {
        SessionCommand::Ls(args) => ls::run(global, args),
        SessionCommand::Show(args) => show::run(global, args),
        SessionCommand::Timeline(args) => timeline::run(global, args),
        SessionCommand::Story(args) => story::run(global, args),
        SessionCommand::Evolution(args) => evolution::run(global, args),
        SessionCommand::Cat(args) => cat::run(global, args),
        SessionCommand::Rewind(args) => rewind::run(global, args),
    }
}

/// Opens a session for reading, after changes of its files that a crash left open are settled.
async fn open_session(ledger: &Ledger, loaded: &Loaded, named: &str) -> anyhow::Result<(Read, Session)> {
    let mut read = ledger.read().await?;
    let session = views::find_session(&mut read, named).await?;
    let unsettled = revision::unsettled(&mut read, &session.id).await?;
    if unsettled.is_empty() {
        return Ok((read, session));
    }
    // Settling writes, and this snapshot would not show the result.
    drop(read);
    for root in unsettled {
        // The history must be readable even if the workspace no longer exists: its changes stay open, and the views say so.
        let Ok(files) = files_of(ledger, loaded, &session, Path::new(&root)) else { continue };
        files.settle(&caller(&session, &root)).await?;
    }
    Ok((ledger.read().await?, session))
}

/// Opens the files of a session's workspace.
fn files_of(ledger: &Ledger, loaded: &Loaded, session: &Session, root: &Path) -> anyhow::Result<Arc<Files>> {
    let setup = loaded.toolset_setup(root, Some(&session.project_id))?;
    let workspace = Workspace::open(&setup.workspace)?.allow_vcs(setup.allow_vcs);
    Ok(Arc::new(Files::new(ledger.clone(), workspace, setup.locks, setup.file_bytes_max)))
}

/// Returns the caller that is recorded for changes by this command.
fn caller(session: &Session, root: &str) -> Caller {
    Caller { workspace: Some(root.to_owned()), ..Caller::command("scrubjay session", &session.project_id) }
}
