//! `scrubjay record diff`: two versions of a record.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::ledger::records::diff::of_bodies;
use scrubjay_store::ledger::records::full;
use serde_json::json;

use super::{ProjectArg, json, read_records};
use crate::cli::Global;
use crate::render::{print_json, print_lines};

/// Compare two versions of a record
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The record, such as R001
    id: String,
    /// The older version [default: the one before the newer]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    from: Option<i64>,
    /// The newer version [default: the newest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    to: Option<i64>,
    #[command(flatten)]
    whose: ProjectArg,
}

pub(super) fn run(global: &Global, args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let id = args.id.parse()?;
    let (old, new) = read_records(global, &args.whose, async |read, collection| {
        let new = full(read, collection, id, args.to).await?;
        let from = args.from.unwrap_or((new.version - 1).max(1));
        let old = full(read, collection, id, Some(from)).await?;
        Ok((old, new))
    })?;
    let (a, b) = (&old.content, &new.content);
    let body = of_bodies(id, (old.version, a), (new.version, b));
    let (a, b) = (json::content(a), json::content(b));
    let mut fields = serde_json::Map::new();
    for name in old.content.differences(&new.content).into_iter().filter(|name| *name != "body") {
        fields.insert(name.to_owned(), json!({ "old": a[name], "new": b[name] }));
    }
    if global.json {
        fields.insert("body".to_owned(), json!(body));
        let (from, to) = (old.version, new.version);
        print_json(&json!({ "id": id, "from_version": from, "to_version": to, "diff": fields }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = format!("{id}, version {} → {}\n", old.version, new.version);
    for (name, pair) in &fields {
        text += &format!("{name}: {} → {}\n", pair["old"], pair["new"]);
    }
    print_lines(&(text + &body))?;
    Ok(ExitCode::SUCCESS)
}
