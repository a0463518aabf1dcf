//! `scrubjay tape ls`: the conversations, newest first, and their totals.

use std::process::ExitCode;

use clap::Args;
use scrubjay_core::glob::Glob;
use scrubjay_core::query::{DayEdge, TimeError, moment};
use scrubjay_core::stats::TapeMetadata;
use scrubjay_core::units::{self, counted};
use scrubjay_store::views;
use scrubjay_tape::catalog::{self, Overview};
use scrubjay_tape::clock;
use scrubjay_tape::format::header::{SessionRef, TapeKind};
use scrubjay_tape::format::reader::TapeState;
use scrubjay_tape::home::{Home, TapeFile};
use serde::Serialize;

use crate::cli::Global;
use crate::pager::Pager;
use crate::render::{Align, Table, local_time, print_json, zone};

/// List the conversations that were recorded, newest first
///
/// The tapes of backends and toolsets, of refused messages, and of clients that only greeted are counted with the
/// conversation they belong to, not listed. `latest` means the first of the list.
#[derive(Clone, Debug, Args)]
pub(crate) struct LsArgs {
    /// Only tapes with this name: a part of it, or a pattern in which * matches any text
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only conversations of this host: the client's name, the host's program, or its own id of the conversation
    #[arg(long, value_name = "PATTERN")]
    host: Option<String>,
    /// Only conversations of this session: its id, a prefix of it, the host's own id, or latest
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Show the host's own id of each conversation, which every command takes as the session's name
    #[arg(long)]
    host_ids: bool,
    /// Only tapes that began since then: 2d (two days ago), today, yesterday, 2026-11-01, 2026-11-01T14:30
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Only conversations in which something failed
    #[arg(long)]
    errors: bool,
    /// Also list the tapes that belong to conversations, and clients that only greeted
    #[arg(long)]
    all: bool,
    /// List at most this many; totals count all
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

fn since(text: &str) -> Result<u64, TimeError> {
    moment(text, clock::now().wall_ns, zone(), DayEdge::Start)
}

#[derive(Serialize)]
struct Row<'a> {
    id: String,
    name: &'a str,
    kind: TapeKind,
    session: SessionRef,
    started_wall_ns: u64,
    duration_ns: u64,
    state: TapeState,
    file_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<Host<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<&'a str>,
    /// The tapes that belong to this conversation and are not listed.
    folded: Folded,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<&'a str>,
    #[serde(flatten)]
    metadata: &'a TapeMetadata,
}

#[derive(Serialize)]
struct Host<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

/// The totals of tapes that are counted with a conversation instead of being listed.
#[derive(Clone, Copy, Default, Serialize)]
struct Folded {
    tapes: u64,
    backend_messages: u64,
    file_bytes: u64,
}

impl Folded {
    fn add(&mut self, tape: &Overview) {
        self.tapes += 1;
        self.backend_messages += tape.metadata.backend_messages;
        self.file_bytes += tape.file_bytes;
    }
}

pub(crate) fn run(global: &Global, home: &Home, args: &LsArgs) -> anyhow::Result<ExitCode> {
    let tapes = catalog::read_all(home, &home.list()?);
    let args = &args.with_id(&tapes);
    // Before the list is narrowed: the tapes of backends have other names and hosts than their conversation.
    let mut folded = vec![Folded::default(); tapes.len()];
    if !args.all {
        for (tape, owner) in tapes.iter().zip(catalog::owners(&tapes)) {
            if let Some(owner) = owner {
                folded[owner].add(tape);
            }
        }
    }
    let chosen: Vec<(&Overview, Folded)> = tapes
        .iter()
        .zip(folded)
        .filter(|(tape, _)| (args.all || tape.is_conversation()) && args.wants(tape))
        .collect();
    let shown = &chosen[..chosen.len().min(args.limit)];
    if global.json {
        print_json(&shown.iter().map(|(tape, folded)| row(tape, *folded)).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let _pager = Pager::start(global);
    if shown.is_empty() {
        Table::note().line(&nothing(home, &tapes, args))?;
    } else {
        print(shown, args.host_ids)?;
        Table::note().line(&totals(&tapes, &chosen, shown.len(), args.all))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl LsArgs {
    /// Puts the id of the newest conversation's session in place of `latest`.
    fn with_id(&self, tapes: &[Overview]) -> Self {
        let mut args = self.clone();
        if args.session.as_deref() == Some(views::LATEST) {
            args.session = tapes.iter().find(|tape| tape.is_conversation()).map(|tape| tape.session().id);
        }
        args
    }

    fn wants(&self, tape: &Overview) -> bool {
        let header = tape.header.as_ref();
        let name = header.map_or("", |header| header.name.as_str());
        let client = tape.metadata.client_info.as_ref().and_then(|info| info["name"].as_str());
        let origin = header.map(|header| &header.origin);
        let hosts = [
            client,
            origin.and_then(|origin| origin.host_program.as_deref()),
            origin.and_then(|origin| origin.host_session.as_deref()),
        ];
        self.name.as_deref().is_none_or(|wanted| fits(wanted, name))
            && self.host.as_deref().is_none_or(|wanted| hosts.iter().flatten().any(|host| fits(wanted, host)))
            && self.since.is_none_or(|since| tape.started_wall_ns() >= since)
            && self.session.as_deref().is_none_or(|wanted| tape.is_of_session(wanted))
            && (!self.errors || tape.metadata.total_errors > 0 || tape.damage.is_some())
    }

    fn is_narrow(&self) -> bool {
        self.name.is_some()
            || self.host.is_some()
            || self.since.is_some()
            || self.errors
            || self.session.is_some()
    }
}

/// Shortens the id of a session; the rest is not needed to name it.
fn short(id: &str) -> String {
    id.chars().take(6).collect()
}

/// Tells whether a name matches what a person typed: a pattern if it has a `*`, else a part of the name. Case does not
/// matter.
fn fits(wanted: &str, name: &str) -> bool {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    if wanted.contains('*') { Glob::new(&wanted).matches(&name) } else { name.contains(&wanted) }
}

/// Returns the totals of a tape.
pub(super) fn metadata(home: &Home, file: &TapeFile) -> TapeMetadata {
    Overview::read(home, file).metadata
}

fn row(tape: &Overview, folded: Folded) -> Row<'_> {
    let header = tape.header.as_ref();
    let origin = header.map(|header| &header.origin);
    let host = Host {
        program: origin.and_then(|origin| origin.host_program.as_deref()),
        session: origin.and_then(|origin| origin.host_session.as_deref()),
    };
    Row {
        id: tape.file.id.to_string(),
        name: header.map_or("", |header| header.name.as_str()),
        kind: tape.kind(),
        session: tape.session(),
        started_wall_ns: tape.started_wall_ns(),
        duration_ns: tape.duration_ns,
        state: tape.state,
        file_bytes: tape.file_bytes,
        host: (host.program.is_some() || host.session.is_some()).then_some(host),
        gateway: header.and_then(|header| header.gateway.as_deref()),
        folded,
        damaged: tape.damage.as_deref(),
        metadata: &tape.metadata,
    }
}

fn print(rows: &[(&Overview, Folded)], with_host_ids: bool) -> anyhow::Result<()> {
    let mut columns = vec![
        ("ID", Align::Left),
        ("STARTED", Align::Left),
        ("NAME", Align::Left),
        ("SESSION", Align::Left),
        ("DURATION", Align::Right),
        ("MESSAGES", Align::Right),
        ("BACKEND", Align::Right),
        ("ERRORS", Align::Right),
        ("P50", Align::Right),
        ("SIZE", Align::Right),
        ("STATE", Align::Left),
    ];
    columns.extend(with_host_ids.then_some(("HOST ID", Align::Left)));
    let mut table = Table::new(&columns);
    for (tape, folded) in rows {
        let sums = &tape.metadata;
        let header = tape.header.as_ref();
        let backend = sums.backend_messages + folded.backend_messages;
        let some = |count: u64, text: String| if count > 0 { text } else { String::new() };
        let mut cells = vec![
            tape.file.id.short().to_owned(),
            local_time(tape.started_wall_ns()),
            header.map_or_else(String::new, |header| header.name.clone()),
            short(&tape.session().id),
            units::duration(tape.duration_ns),
            sums.total_messages.to_string(),
            some(backend, backend.to_string()),
            sums.total_errors.to_string(),
            some(sums.p50_response_time_ns, units::duration(sums.p50_response_time_ns)),
            units::size(tape.file_bytes),
            state(tape).to_owned(),
        ];
        cells.extend(with_host_ids.then(|| tape.host_session().unwrap_or("-").to_owned()));
        let is_bad = sums.total_errors > 0 || tape.damage.is_some();
        table.row(is_bad, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    table.print()
}

fn state(tape: &Overview) -> &'static str {
    match (tape.state, tape.kind()) {
        // First, because damage matters more than the kind of a tape.
        _ if tape.damage.is_some() => "damaged",
        (TapeState::Live, _) => "live",
        (TapeState::Abandoned, _) => "not sealed",
        (_, TapeKind::Backend) => "backend",
        (_, TapeKind::Refused) => "refused",
        (_, TapeKind::Late) => "late",
        _ if tape.metadata.probe => "probe",
        _ => "sealed",
    }
}

/// Describes the totals of the chosen tapes, how many of them are shown, and how many others are not listed.
fn totals(all: &[Overview], chosen: &[(&Overview, Folded)], shown: usize, lists_all: bool) -> String {
    let sum = |of: fn(&Overview) -> u64| chosen.iter().map(|(tape, _)| of(tape)).sum::<u64>();
    let folded: u64 = chosen.iter().map(|(_, folded)| folded.file_bytes).sum();
    let what = if lists_all { "tape" } else { "conversation" };
    let mut text = format!(
        "{}, {}, {}, {}",
        counted(chosen.len() as u64, what),
        counted(sum(|tape| tape.metadata.total_messages), "message"),
        counted(sum(|tape| tape.metadata.total_errors), "error"),
        units::size(sum(|tape| tape.file_bytes) + folded),
    );
    if shown < chosen.len() {
        text = format!("{shown} of {} shown (--limit); {text}", chosen.len());
    }
    if !lists_all && let Some(hidden) = hidden(all) {
        text += &format!("; not listed: {hidden} (--all)");
    }
    text
}

/// Counts the tapes that are no conversations, by kind; `None` if there are none.
fn hidden(all: &[Overview]) -> Option<String> {
    let count =
        |kind: TapeKind| all.iter().filter(|tape| !tape.is_conversation() && tape.kind() == kind).count();
    let words = [
        (count(TapeKind::Backend), "of backends"),
        // A client's tape that is not a conversation has nothing but a greeting or a probe on it.
        (count(TapeKind::Conversation), "of greetings and probes"),
        (count(TapeKind::Refused), "of refusals"),
        (count(TapeKind::Late), "of what came late"),
    ];
    let words: Vec<String> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn nothing(home: &Home, all: &[Overview], args: &LsArgs) -> String {
    let root = home.root().display();
    if args.is_narrow() && !all.is_empty() {
        return format!("none of the {} tapes in {root} matches", all.len());
    }
    match hidden(all) {
        Some(hidden) => format!("no conversations in {root}; not listed: {hidden} (--all)"),
        None => format!("no tapes in {root}"),
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn names_match_by_substring_or_pattern() {
        assert!(fits("file", "My Files") && fits("my f", "My Files") && fits("", "x"));
        assert!(fits("my*", "My Files") && fits("*s", "My Files") && fits("M*F*", "My Files"));
        assert!(!fits("y*", "My Files") && !fits("filed", "My Files"));
    }
}
