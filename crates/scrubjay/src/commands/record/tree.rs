//! `scrubjay record tree`: records below their parents.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::ledger::records::RecordRef;
use scrubjay_store::ledger::records::listing::{self, RecordFilter, TreePlace};
use scrubjay_store::ledger::records::require;

use super::{ProjectArg, json, read_records};
use crate::cli::Global;
use crate::render::{print_json, print_lines};

/// Show records as a tree
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// Begin with this record [default: all roots]
    id: Option<String>,
    /// Show this many levels
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(i64).range(1..=64))]
    depth: i64,
    /// Show at most this many records
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    #[command(flatten)]
    whose: ProjectArg,
}

pub(super) fn run(global: &Global, args: &TreeArgs) -> anyhow::Result<ExitCode> {
    let top = args.id.as_deref().map(str::parse).transpose()?;
    let place = top.map_or(TreePlace::Roots(args.depth), |id| TreePlace::Below(id, args.depth));
    let filter = RecordFilter { place, limit: args.limit, ..RecordFilter::default() };
    let (records, total) = read_records(global, &args.whose, async |read, collection| {
        let mut records: Vec<RecordRef> = Vec::new();
        if let Some(id) = top {
            records.push(require(read, collection, id).await?);
        }
        let (below, total) = listing::list(read, collection, &filter).await?;
        records.extend(below);
        Ok((records, total + i64::from(top.is_some())))
    })?;
    if global.json {
        print_json(&records.iter().map(json::brief).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let first = records.first().map_or(1, |record| record.depth);
    let mut text = String::new();
    for now in &records {
        let indent = "  ".repeat(usize::try_from(now.depth - first).unwrap_or(0));
        // On the last level that was read, the records below are only counted.
        let hidden = now.children > 0 && now.depth - first + i64::from(top.is_none()) >= args.depth;
        let more = if hidden { format!(" (+{})", now.children) } else { String::new() };
        text += &format!("{indent}{} [{}] {}: ", now.id, now.state.name(), now.kind);
        // On one line, because the indentation shows where a record belongs.
        text += &format!("{}{more}\n", now.title.replace('\n', " "));
    }
    if total > records.len() as i64 {
        text += &format!("{} of {total}; --limit shows more\n", records.len());
    }
    print_lines(&text)?;
    Ok(ExitCode::SUCCESS)
}
