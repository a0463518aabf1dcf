//! `scrubjay tape rm`.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::home::Home;
use scrubjay_store::tape::reader::State;

use crate::cli::Global;
use crate::render::{Table, print_json};

/// Remove recordings
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Which tapes: ids, or the beginnings of them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

pub(crate) fn run(global: &Global, home: &Home, args: &RmArgs) -> anyhow::Result<ExitCode> {
    // All names are looked up first: a wrong one removes nothing.
    let tapes = args.ids.iter().map(|id| home.find(id)).collect::<Result<Vec<_>, _>>()?;
    for file in &tapes {
        if home.open(file).is_ok_and(|tape| tape.state() == State::Live) {
            anyhow::bail!(
                "tape {} is being recorded: end its connection first; nothing was removed",
                file.id
            );
        }
    }
    for file in &tapes {
        home.remove(file)?;
    }
    crate::commands::index::forget_removed(global, home)?;
    let ids: Vec<String> = tapes.iter().map(|file| file.id.to_string()).collect();
    if global.json {
        print_json(&serde_json::json!({ "removed": ids }))?;
    } else if !global.quiet {
        Table::note().line(&format!("removed {}", ids.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
