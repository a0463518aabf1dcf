//! `scrubjay session rewind`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_core::diff;
use scrubjay_core::units::counted;
use scrubjay_store::files::moved;
use scrubjay_store::files::rewind::RewindStep;
use scrubjay_store::views;
use serde_json::json;

use super::{caller, files_of};
use crate::cli::Global;
use crate::commands::ledger;
use crate::render::{print_diff, print_json, print_lines};

const EXAMPLES: &str = "\
Examples:
  scrubjay session timeline latest          # lists the events and their numbers
  scrubjay session rewind latest --to 12    # shows what would change
  scrubjay session rewind latest --to 12 --file src/main.rs --yes";

/// Restore files to their state after an event
///
/// Shows what would change, and changes it only with --yes. What it restores is recorded as new changes, so that it can
/// be undone, too.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RewindArgs {
    /// The session: its id, a prefix of it, the host's own id of the conversation, or latest
    session: String,
    /// Restore the state after this event; 0 is the state before the first
    #[arg(long, value_name = "EVENT")]
    to: i64,
    /// Restore only this file
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// The directory of the workspace, if it was moved; remembered if the contents of its files match
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Make the changes
    #[arg(long)]
    yes: bool,
    /// Also overwrite changes that were not recorded; they are recorded first
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(global: &Global, args: &RewindArgs) -> anyhow::Result<ExitCode> {
    ledger::within(global, async |ledger, loaded| {
        let mut read = ledger.read().await?;
        let session = views::find_session(&mut read, &args.session).await?;
        // The recorded new place of a workspace that moved, else the place where the session began.
        let known = moved::workspace_of(&mut read, &session.id).await?.or_else(|| session.workspace.clone());
        drop(read);
        let root = match &args.workspace {
            Some(named) => std::path::absolute(named)?,
            None => known.context("this session has no workspace: it changed no files")?.into(),
        };
        let files = files_of(ledger, loaded, &session, &root).with_context(|| match args.workspace {
            Some(_) => String::from("cannot open the directory of --workspace"),
            None => {
                format!("cannot open {}; if it was moved, give its new path with --workspace", root.display())
            }
        })?;
        let caller = caller(&session, &files.root());
        let moved_from = match args.workspace {
            Some(_) => files.adopt_move(&caller, &session.id).await?,
            None => None,
        };
        if let (Some(from), false) = (&moved_from, global.json) {
            print_lines(&format!("the workspace moved from {from} to {}; recorded", files.root()))?;
        }
        // A change that a crash left open would otherwise be planned from a wrong state.
        files.settle(&caller).await?;
        let steps = files.plan_rewind(&session.id, args.to, args.file.as_deref()).await?;
        if !global.json {
            show(&steps)?;
        }
        let done = match args.yes {
            true => files.rewind(&caller, &session.id, args.to, steps.clone(), args.force).await?.len(),
            false => 0,
        };
        report(global, args, &session.id, &steps, done)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn show(steps: &[RewindStep]) -> anyhow::Result<()> {
    for step in steps.iter().filter(|step| step.changes()) {
        if step.unrecorded {
            print_lines(&format!("{} was changed by someone else since it was last recorded:", step.path))?;
        }
        let name =
            |there: &Option<Vec<u8>>| there.as_ref().map_or("/dev/null", |_| step.path.as_str()).to_owned();
        let text = |content: &Option<Vec<u8>>| content.clone().unwrap_or_default();
        let (now, then) = (text(&step.now), text(&step.then));
        print_diff(&diff::unified(&now, &then, &name(&step.now), &name(&step.then)))?;
    }
    Ok(())
}

fn report(
    global: &Global,
    args: &RewindArgs,
    session: &str,
    steps: &[RewindStep],
    done: usize,
) -> anyhow::Result<()> {
    let wanted: Vec<&RewindStep> = steps.iter().filter(|step| step.changes()).collect();
    if global.json {
        let files: Vec<_> = wanted
            .iter()
            .map(|s| json!({ "path": s.path, "unrecorded": s.unrecorded, "exists_then": s.then.is_some() }))
            .collect();
        return print_json(&json!({ "session": session, "to": args.to, "files": files, "changed": done }));
    }
    print_lines(&match (wanted.len(), args.yes) {
        (0, _) => format!("nothing to do: the files are in their state after event {}", args.to),
        (n, false) => format!("{} would change; --yes does it", counted(n, "file")),
        (_, true) => {
            format!("{} changed: all files are in their state after event {}", counted(done, "file"), args.to)
        }
    })
}
