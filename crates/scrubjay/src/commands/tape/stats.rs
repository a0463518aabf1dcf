//! `scrubjay tape stats`: the analysis of a tape.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_core::analysis::{Analysis, analyse};
use scrubjay_core::selection::LeftOut;
use scrubjay_core::stats::TapeMetadata;
use scrubjay_core::units;
use serde::Serialize;

use crate::cli::Global;
use crate::commands::index;
use crate::pager::Pager;
use crate::render::{Align, Table, print_json};

/// Analyse a recording: flow, patterns, errors, performance, problems, tokens
///
/// Problems are found within the recording: loops, identical retries, failures in a row, tools that changed,
/// vanished or never worked, slow outliers. The recording is also compared with earlier ones of the same name
/// (`wrap --name`). Tokens are an estimate, close to the counts of the tokenizer o200k.
#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    /// The tape: its id, a prefix of it, or `latest`
    #[arg(default_value = "latest")]
    id: String,
    /// Show at most this many rows of each table
    #[arg(long, default_value_t = 10)]
    limit: usize,
}

/// An analysis, and the messages that it does not cover.
#[derive(Serialize)]
struct StatsReport<'a> {
    #[serde(flatten)]
    analysis: &'a Analysis,
    backends_ended: u64,
    /// Messages that did not reach their receiver.
    undelivered: u64,
    #[serde(skip_serializing_if = "LeftOut::is_nothing")]
    left_out: LeftOut,
}

pub(crate) fn run(global: &Global, args: &StatsArgs) -> anyhow::Result<ExitCode> {
    let (loaded, home) = global.load_with_home()?;
    let tape = home.find(&args.id)?;
    let (runtime, index) = index::open_current(global, &home, &loaded.storage()?)?;
    let (now, past) = runtime.block_on(async {
        let read = (index.calls(tape.id).await?, index.earlier_calls(tape.id).await?);
        index.close().await;
        anyhow::Ok(read)
    })?;
    let now = now.with_context(|| format!("tape {} was removed", tape.id))?;
    let analysis = analyse(&now, &past);
    // From the tape: the index, from which the analysis is made, does not have these totals.
    let TapeMetadata { left_out, backends_ended, .. } = super::ls::metadata(&home, &tape);
    let opened = home.open(&tape).with_context(|| format!("tape {}", tape.id))?;
    let undelivered = home.undelivered(&opened)?.messages;
    if global.json {
        print_json(&StatsReport { analysis: &analysis, backends_ended, undelivered, left_out })?;
    } else {
        let _pager = Pager::start(global);
        print(&analysis, args.limit)?;
        if backends_ended > 0 {
            let times = if backends_ended == 1 { "once" } else { &units::counted(backends_ended, "time") };
            Table::note().line(&format!("a backend ended {times}: `scrubjay tape show {}`", tape.id))?;
        }
        if undelivered > 0 {
            let messages = units::counted(undelivered, "message");
            let text = format!("{messages} did not reach the receiver: `scrubjay tape show {}`", tape.id);
            Table::note().line(&text)?;
        }
        if !left_out.is_nothing() {
            Table::note().line(&left_out.describe())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(analysis: &Analysis, limit: usize) -> anyhow::Result<()> {
    print_flow(analysis)?;
    print_performance(analysis, limit)?;
    print_bottlenecks(analysis, limit)?;
    print_errors(analysis, limit)?;
    print_sequences(analysis, limit)?;
    print_context(analysis, limit)?;
    print_findings(analysis)?;
    print_anomalies(analysis)
}

fn print_flow(analysis: &Analysis) -> anyhow::Result<()> {
    let flow = &analysis.message_flow;
    let mut note = Table::note();
    note.line(&format!("tape {} of {}", analysis.tape, analysis.server))?;
    note.line(&format!(
        "{} of the client,{} {} of the server, {} in {}; {} unanswered; at most {} at once{}",
        units::counted(flow.client_requests, "request"),
        if flow.gateway_requests > 0 {
            format!(" {} of the gateway,", flow.gateway_requests)
        } else {
            String::new()
        },
        flow.server_requests,
        units::counted(flow.notifications, "notification"),
        units::duration(flow.duration_ns),
        flow.unanswered,
        flow.in_flight_max,
        flow.in_flight_max_entry.map(|entry| format!(" (#{entry})")).unwrap_or_default(),
    ))?;
    if let Some(silence) = &flow.longest_silence {
        let length = units::duration(silence.duration_ns);
        note.line(&format!("longest silence {length}, before #{}", silence.before_entry))?;
    }
    let most = flow.stretches.iter().map(|stretch| stretch.requests).max().unwrap_or(0).max(1);
    let bars: String = flow.stretches.iter().map(|stretch| bar(stretch.requests, most)).collect();
    if flow.stretches.is_empty() { Ok(()) } else { note.line(&format!("requests over time {bars}")) }
}

/// Draws a number as a block of one of eight heights.
fn bar(value: u64, most: u64) -> char {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let height = value.saturating_mul(8).div_ceil(most.max(1));
    BLOCKS[usize::try_from(height).unwrap_or(8).min(8)]
}

fn print_performance(analysis: &Analysis, limit: usize) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("CALLS OF", Align::Left),
        ("COUNT", Align::Right),
        ("FAILED", Align::Right),
        ("P50", Align::Right),
        ("P90", Align::Right),
        ("P99", Align::Right),
        ("MAX", Align::Right),
        ("SHARE", Align::Right),
        ("ANSWER", Align::Right),
        ("FAST TO SLOW", Align::Left),
    ]);
    for profile in analysis.performance_profile.iter().take(limit) {
        let most = profile.histogram.iter().map(|bin| bin.count).max().unwrap_or(1);
        table.row(
            profile.failed > 0,
            &[
                &profile.subject,
                &profile.count.to_string(),
                &profile.failed.to_string(),
                &units::duration(profile.p50_ns),
                &units::duration(profile.p90_ns),
                &units::duration(profile.p99_ns),
                &format!(
                    "{} {}",
                    units::duration(profile.max_ns),
                    profile.slowest_entry.map(|e| format!("#{e}")).unwrap_or_default()
                ),
                &format!("{:.0} %", profile.share * 100.0),
                &units::size(profile.answered_bytes),
                &profile.histogram.iter().map(|bin| bar(bin.count, most)).collect::<String>(),
            ],
        );
    }
    if analysis.performance_profile.is_empty() { Ok(()) } else { section("", &table) }
}

fn section(title: &str, table: &Table) -> anyhow::Result<()> {
    Table::note().line(title)?;
    table.print()
}

fn shown(entries: &[u64]) -> String {
    entries.iter().map(|entry| format!("#{entry}")).collect::<Vec<_>>().join(" ")
}

fn print_bottlenecks(analysis: &Analysis, limit: usize) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("SPEED UP FIRST", Align::Left),
        ("SAVES", Align::Right),
        ("IF", Align::Left),
        ("SLOWEST", Align::Left),
    ]);
    for bottleneck in analysis.bottlenecks.iter().take(limit) {
        let saves = units::duration(bottleneck.saves_ns);
        table.row(
            false,
            &[&bottleneck.subject, &saves, bottleneck.remedy.words(), &shown(&bottleneck.entries)],
        );
    }
    if analysis.bottlenecks.is_empty() { Ok(()) } else { section("", &table) }
}

fn print_errors(analysis: &Analysis, limit: usize) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("FAILED", Align::Left),
        ("COUNT", Align::Right),
        ("CODE", Align::Right),
        ("WITH", Align::Left),
        ("ENTRIES", Align::Left),
    ]);
    for group in analysis.common_errors.iter().take(limit) {
        table.row(
            true,
            &[
                &group.subject,
                &format!("{} of {}", group.count, group.of_calls),
                &group.code.map(|code| code.to_string()).unwrap_or_default(),
                &group.shape,
                &shown(&group.entries),
            ],
        );
    }
    if analysis.common_errors.is_empty() { Ok(()) } else { section("", &table) }
}

fn print_sequences(analysis: &Analysis, limit: usize) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("ONE AFTER THE OTHER", Align::Left),
        ("COUNT", Align::Right),
        ("GAPS", Align::Left),
        ("FIRST", Align::Left),
    ]);
    for sequence in analysis.method_sequences.iter().take(limit) {
        let gaps: Vec<String> = sequence.gaps_ns.iter().map(|ns| units::duration(*ns)).collect();
        table.row(
            false,
            &[
                &format!("{}{}", sequence.subjects.join(" → "), if sequence.is_round { " ↻" } else { "" }),
                &sequence.count.to_string(),
                &gaps.join(", "),
                &shown(&sequence.entries),
            ],
        );
    }
    if analysis.method_sequences.is_empty() { Ok(()) } else { section("", &table) }
}

/// Says what tools cost a model's context.
fn print_context(analysis: &Analysis, limit: usize) -> anyhow::Result<()> {
    let context = &analysis.context;
    if context.tools.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("TOKENS (ESTIMATED) OF", Align::Left),
        ("DEFINITION", Align::Right),
        ("CALLS", Align::Right),
        ("RESULTS", Align::Right),
        ("MEAN", Align::Right),
        ("LARGEST", Align::Right),
    ]);
    for tool in context.tools.iter().take(limit) {
        let entry = tool.largest_entry.map(|entry| format!(" #{entry}")).unwrap_or_default();
        table.row(
            false,
            &[
                &tool.tool,
                &tool.definition_tokens.map(|tokens| tokens.to_string()).unwrap_or_default(),
                &tool.calls.to_string(),
                &tool.result_tokens.to_string(),
                &tool.result_tokens_mean.to_string(),
                &format!("{}{entry}", tool.result_tokens_max),
            ],
        );
    }
    section("", &table)?;
    let list = match (context.list_entry, context.definition_tokens) {
        (Some(entry), tokens) => format!("tools/list (#{entry}) costs {tokens} tokens"),
        (None, 0) => "no tools/list is on this tape".to_owned(),
        // No client listed tools, only the gateway did, of its backends.
        (None, tokens) => format!("tools/list of the backends costs {tokens} tokens"),
    };
    Table::note().line(&format!(
        "{list}, all results {} (estimated, about as {} counts)",
        context.result_tokens, context.estimated_like
    ))
}

/// Says what went wrong on this tape.
fn print_findings(analysis: &Analysis) -> anyhow::Result<()> {
    let mut note = Table::note();
    note.line("")?;
    if analysis.findings.is_empty() {
        return note.line(
            "no loops, retries, failures in a row, changed or lost tools or slow outliers on this tape",
        );
    }
    note.line("on this tape:")?;
    for finding in &analysis.findings {
        note.line(&format!(
            "  {}: {}: {} ({})",
            finding.kind.words(),
            finding.subject,
            finding.summary,
            shown(&finding.entries)
        ))?;
    }
    Ok(())
}

fn print_anomalies(analysis: &Analysis) -> anyhow::Result<()> {
    let mut note = Table::note();
    note.line("")?;
    if analysis.compared_with == 0 {
        return note.line("there is no earlier tape of this name to compare with");
    }
    let before = match analysis.compared_with {
        1 => "the tape before".to_owned(),
        count => format!("the {count} tapes before it"),
    };
    if analysis.anomalies.is_empty() {
        return note.line(&format!("no differences from {before}"));
    }
    note.line(&format!("differences from {before}:"))?;
    for anomaly in &analysis.anomalies {
        note.line(&format!(
            "  {}: {}: {} ({})",
            anomaly.kind.words(),
            anomaly.subject,
            anomaly.summary,
            shown(&anomaly.entries)
        ))?;
    }
    Ok(())
}
