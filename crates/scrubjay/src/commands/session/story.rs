//! `scrubjay session story`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::views::story;

use super::open_session;
use crate::cli::Global;
use crate::commands::ledger;
use crate::render::{print_json, print_lines};

/// Show what a session did, grouped by the steps of its plan
#[derive(Debug, Args)]
pub(crate) struct StoryArgs {
    /// The session: its id, a prefix of it, the host's own id of the conversation, or latest
    session: String,
}

pub(crate) fn run(global: &Global, args: &StoryArgs) -> anyhow::Result<ExitCode> {
    let story = ledger::within(global, async |ledger, loaded| {
        let (mut read, session) = open_session(ledger, loaded, &args.session).await?;
        Ok(story::read(&mut read, &session).await?)
    })?;
    match global.json {
        true => print_json(&story)?,
        false => print_lines(story.markdown().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}
