//! `scrubjay record ls`: records as a table.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_store::ledger::records::RecordState;
use scrubjay_store::ledger::records::listing::{self, RecordFilter, TreePlace};
use scrubjay_store::views;

use super::{ProjectArg, json, read_records};
use crate::cli::Global;
use crate::render::{Align, Table, local_time, print_json};

/// List records
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    whose: ProjectArg,
    /// Only records in this state: open, later, resolved or discarded
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    state: Vec<RecordState>,
    /// Only records of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Vec<String>,
    /// Only records below this one
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// Only records that this session made or changed: its id, a prefix of it, the host's own id, or latest
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Begin after this record, such as the last one shown
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Show at most this many records
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

fn parse_state(text: &str) -> anyhow::Result<RecordState> {
    // The names are in capitals in tools and the ledger; on a command line small letters are easier to type.
    RecordState::from_name(&text.to_uppercase()).context("the states are open, later, resolved and discarded")
}

pub(super) fn run(global: &Global, args: &LsArgs) -> anyhow::Result<ExitCode> {
    let mut filter = RecordFilter {
        states: args.state.clone(),
        types: args.kind.clone(),
        place: match &args.parent {
            Some(id) => TreePlace::Below(id.parse()?, 1),
            None => TreePlace::Anywhere,
        },
        session: None,
        after: args.after.as_deref().map(str::parse).transpose()?,
        limit: args.limit,
    };
    let (records, total) = read_records(global, &args.whose, async |read, collection| {
        if let Some(name) = &args.session {
            filter.session = Some(views::find_session(read, name).await?.id);
        }
        Ok(listing::list(read, collection, &filter).await?)
    })?;
    if global.json {
        print_json(&records.iter().map(json::brief).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("TYPE", Align::Left),
        ("PARENT", Align::Left),
        ("OPEN", Align::Right),
        ("BELOW", Align::Right),
        ("MODIFIED", Align::Left),
        ("TITLE", Align::Left),
    ]);
    for now in &records {
        table.row(
            false,
            &[
                &now.id.to_string(),
                now.state.name(),
                &now.kind,
                &now.parent.map(|id| id.to_string()).unwrap_or_default(),
                &now.open_children.to_string(),
                &now.children.to_string(),
                &local_time(u64::try_from(now.modified_ns).unwrap_or(0)),
                &now.title,
            ],
        );
    }
    table.print()?;
    if total > records.len() as i64 {
        Table::note().line(&format!("{} of {total}; --limit shows more", records.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}
