//! `scrubjay record show`: one record with all its fields.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::ledger::records::{activation, citation, full};
use serde_json::json;

use super::{ProjectArg, json, read_records};
use crate::cli::Global;
use crate::render::{print_json, print_lines};

/// Show a record
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The record, such as R001
    id: String,
    /// Show this version instead of the newest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    version: Option<i64>,
    #[command(flatten)]
    whose: ProjectArg,
}

pub(super) fn run(global: &Global, args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let id = args.id.parse()?;
    let (record, holders, suspects) = read_records(global, &args.whose, async |read, collection| {
        let record = full(read, collection, id, args.version).await?;
        let holders = activation::active_sessions(read, collection, id).await?;
        let suspects = citation::suspects(read, collection, id).await?;
        Ok((record, holders, suspects))
    })?;
    if global.json {
        let mut value = json::whole(&record);
        let sessions: Vec<_> = holders.iter().map(|holder| &holder.session_id).collect();
        value["active_in"] = json!(sessions);
        let suspects: Vec<_> =
            suspects.iter().map(|s| json!({ "citation": s.citation, "diff": s.diff })).collect();
        value["suspects"] = json!(suspects);
        print_json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (now, content) = (&record.now, &record.content);
    let mut text = format!("{} [{}] {}: {}\n", now.id, content.state.name(), content.kind, content.title);
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            text += &format!("{name}: {value}\n");
        }
    };
    let ids = |ids: &[_]| ids.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ");
    fact("parent", ids(now.parent.as_slice()));
    fact("resolved by", ids(content.resolved_by.as_slice()));
    fact("related", ids(&content.related));
    fact("cites", content.citations.join(", "));
    fact("version", format!("{} of {}, {}", record.version, now.version, json::time(record.at_ns)));
    let sessions: Vec<_> = holders.iter().map(|holder| holder.session_id.as_str()).collect();
    fact("active in", sessions.join(", "));
    for suspect in &suspects {
        fact("suspect", format!("{} has changed since", suspect.citation));
        fact("", suspect.diff.clone().unwrap_or_default());
    }
    text += &format!("\n{}\n\n{}\n", content.summary, content.body);
    print_lines(&text)?;
    Ok(ExitCode::SUCCESS)
}
