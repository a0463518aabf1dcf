//! `scrubjay session rewind`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use scrubjay_core::diff;
use scrubjay_store::files::Files;
use scrubjay_store::files::rewind::Step;
use scrubjay_store::ledger::session::Caller;
use scrubjay_store::views;
use scrubjay_store::workspace::Workspace;
use serde_json::json;

use crate::cli::Global;
use crate::commands::ledger;
use crate::render::{print_diff, print_json, print_lines};

/// Take files back to what they were after an event
///
/// Shows what would change; --yes does it, as new recorded changes that can themselves be taken back.
#[derive(Debug, Args)]
pub(crate) struct RewindArgs {
    /// The session: the beginning of its id
    session: String,
    /// The event to go back to; 0 is before the first
    #[arg(long, value_name = "EVENT")]
    to: i64,
    /// This file alone
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Do it
    #[arg(long)]
    yes: bool,
    /// Overwrite changes that nobody recorded, too; they are recorded first
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(global: &Global, args: &RewindArgs) -> anyhow::Result<ExitCode> {
    ledger::within(global, async |ledger, loaded| {
        let session = views::find_session(&mut ledger.read().await?, &args.session).await?;
        let root = session.workspace.clone().context("this session has no workspace: it changed no files")?;
        let setup = loaded.toolset_setup(&PathBuf::from(&root), Some(&session.project_id))?;
        let workspace = Workspace::open(&setup.workspace)?.allow_vcs(setup.allow_vcs);
        let files = Arc::new(Files::new(ledger.clone(), workspace, setup.locks, setup.file_bytes_max));
        let caller = Caller {
            workspace: Some(root),
            ..Caller::command("scrubjay session rewind", &session.project_id)
        };
        files.settle(&caller).await?;
        let steps = files.plan_rewind(&session.id, args.to, args.file.as_deref()).await?;
        if !global.json {
            show(&steps)?;
        }
        let done = match args.yes {
            true => files.rewind(&caller, &session.id, args.to, steps.clone(), args.force).await?.len(),
            false => 0,
        };
        tell(global, args, &session.id, &steps, done)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn show(steps: &[Step]) -> anyhow::Result<()> {
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

fn tell(
    global: &Global,
    args: &RewindArgs,
    session: &str,
    steps: &[Step],
    done: usize,
) -> anyhow::Result<()> {
    let wanted: Vec<&Step> = steps.iter().filter(|step| step.changes()).collect();
    if global.json {
        let files: Vec<_> = wanted
            .iter()
            .map(|s| json!({ "path": s.path, "unrecorded": s.unrecorded, "exists_then": s.then.is_some() }))
            .collect();
        return print_json(&json!({ "session": session, "to": args.to, "files": files, "changed": done }));
    }
    print_lines(&match (wanted.len(), args.yes) {
        (0, _) => format!("nothing to do: the files are as they were after event {}", args.to),
        (1, false) => "1 file would change; --yes does it".to_owned(),
        (n, false) => format!("{n} files would change; --yes does it"),
        (_, true) => format!("{done} changed: all is as it was after event {}", args.to),
    })
}
