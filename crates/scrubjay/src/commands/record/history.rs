//! `scrubjay record history`: a record's versions, the newest first.

use std::process::ExitCode;

use clap::Args;
use scrubjay_store::ledger::records::diff::of_bodies;
use scrubjay_store::ledger::records::history::{self, Version};
use scrubjay_store::ledger::session;

use super::{ProjectArg, json, read_records};
use crate::cli::Global;
use crate::render::{print_json, print_lines};

/// Show the versions of a record
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The record, such as R001
    id: String,
    /// Show at most this many versions
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=1_000))]
    limit: i64,
    #[command(flatten)]
    whose: ProjectArg,
}

pub(super) fn run(global: &Global, args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let id = args.id.parse()?;
    // One more, because each version is compared with the one before it.
    let (versions, hosts) = read_records(global, &args.whose, async |read, collection| {
        let versions = history::versions(read, collection, id, 0, i64::MAX, args.limit + 1).await?;
        let hosts = session::host_ids(read, versions.iter().map(|v| v.session_id.as_str())).await?;
        Ok((versions, hosts))
    })?;
    let shown = versions.len().min(usize::try_from(args.limit).unwrap_or(usize::MAX));
    if global.json {
        let version = |version: &Version| {
            let mut value = json::version(version);
            value["host_session"] = hosts.get(&version.session_id).cloned().into();
            value
        };
        print_json(&versions[..shown].iter().map(version).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for (n, version) in versions[..shown].iter().enumerate() {
        text += &format!(
            "version {}  tick {}  {}  session {}{}  {}",
            version.version,
            version.tick,
            json::time(version.at_ns),
            version.session_id,
            hosts.get(&version.session_id).map(|id| format!(" (host's id {id})")).unwrap_or_default(),
            version.change.name()
        );
        text += &version.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        text.push('\n');
        if let Some(old) = versions.get(n + 1) {
            let fields = old.content.differences(&version.content);
            text += &format!("  changed: {}\n", fields.join(", "));
            text += &of_bodies(id, (old.version, &old.content), (version.version, &version.content));
        }
    }
    print_lines(&text)?;
    Ok(ExitCode::SUCCESS)
}
