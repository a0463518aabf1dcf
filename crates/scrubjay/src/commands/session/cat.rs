//! `scrubjay session cat`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use scrubjay_store::views::address::Side;
use scrubjay_store::views::content::{self, StatePoint};

use super::open_session;
use crate::cli::Global;
use crate::commands::ledger;

/// Print the content of a file at some point of a session, byte for byte
#[derive(Debug, Args)]
pub(crate) struct CatArgs {
    /// The session: its id, a prefix of it, the host's own id of the conversation, or latest
    session: String,
    /// The file, by its path in the workspace
    path: String,
    /// Print the content at this point: a revision's number, event:N for after that event, or a time such as
    /// 2026-11-17T08:00:00Z [default: the newest revision]
    #[arg(long, value_name = "REVISION|event:N|TIME", value_parser = parse_at, allow_hyphen_values = true)]
    at: Option<StatePoint>,
    /// Print the content before the revision instead of after it
    #[arg(long)]
    before: bool,
}

fn parse_at(text: &str) -> anyhow::Result<StatePoint> {
    if let Ok(revision) = text.parse() {
        return Ok(StatePoint::Revision(revision));
    }
    if let Some(event) = text.strip_prefix("event:") {
        let event = event.parse().with_context(|| format!("\"{event}\" is not an event's number"))?;
        return Ok(StatePoint::Event(event));
    }
    let time: Timestamp =
        text.parse().context("give a revision's number, event:N, or a time such as 2026-11-17T08:00:00Z")?;
    let at_ns = i64::try_from(time.as_nanosecond()).context("that time is not between 1677 and 2262")?;
    Ok(StatePoint::Time(at_ns))
}

pub(crate) fn run(global: &Global, args: &CatArgs) -> anyhow::Result<ExitCode> {
    let content = ledger::within(global, async |ledger, loaded| {
        let (mut read, session) = open_session(ledger, loaded, &args.session).await?;
        let side = if args.before { Side::Before } else { Side::After };
        Ok(content::read(&mut read, &session, &args.path, args.at.unwrap_or_default(), side).await?)
    })?;
    // Not made inert, even on a terminal: these are the bytes of a file, for other programs.
    let mut out = std::io::stdout().lock();
    out.write_all(&content.bytes)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_at_option_is_parsed() {
        assert_eq!(parse_at("41").unwrap(), StatePoint::Revision(41));
        assert_eq!(parse_at("event:7").unwrap(), StatePoint::Event(7));
        assert_eq!(parse_at("1970-01-01T00:00:01Z").unwrap(), StatePoint::Time(1_000_000_000));
        for wrong in ["event:x", "yesterday", "", "event:"] {
            assert!(parse_at(wrong).is_err(), "{wrong}");
        }
    }
}
