//! `scrubjay tape show`: a tape as a network panel.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use scrubjay_core::entry::{BackendEnded, Direction, End, Entry, EntryKind, Gap};
use scrubjay_core::envelope::{Envelope, MessageKind};
use scrubjay_core::export::entry_json;
use scrubjay_core::inert::inert_bytes;
use scrubjay_core::oversize::Oversize;
use scrubjay_core::reading::{Reader, Reading};
use scrubjay_core::selection::LeftOut;
use scrubjay_core::units;
use scrubjay_store::home::Home;
use scrubjay_store::recording::selection_note;
use scrubjay_store::tape::reader::Tape;
use serde_json::Value;

use crate::cli::Global;
use crate::render::{Align, Table, print_json, write_json};

/// Show the entries of a recording
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Which tape: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest")]
    id: String,
    /// Show this one entry in full
    #[arg(long, value_name = "N")]
    entry: Option<u64>,
    /// Begin with this entry
    #[arg(long, default_value_t = 0, value_name = "N")]
    from: u64,
    /// At most so many entries
    #[arg(long, default_value_t = 1000)]
    limit: u64,
}

pub(crate) fn run(global: &Global, home: &Home, args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let tape = super::open(home, &args.id)?;
    if let Some(number) = args.entry {
        show_one(global, &tape, number)?;
    } else if global.json {
        print_json_entries(&tape, args)?;
    } else {
        print_tape(&tape, args.from, args.limit)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show_one(global: &Global, tape: &Tape, number: u64) -> anyhow::Result<()> {
    let mut reader = Reader::default();
    let mut entries = tape.entries()?;
    while let Some((at, entry)) = entries.next()? {
        let reading = reader.read(&entry);
        if at == number {
            if global.json {
                return print_json(&entry_json(at, &entry, &reading));
            }
            let mut out = std::io::stdout().lock();
            let pretty = serde_json::from_slice::<Value>(entry.payload)
                .and_then(|value| serde_json::to_string_pretty(&value));
            // Pretty JSON holds line breaks of its own; each of its lines is made harmless.
            match pretty {
                Ok(pretty) => {
                    for line in pretty.lines() {
                        writeln!(out, "{}", scrubjay_core::inert::inert(line))?;
                    }
                }
                Err(_) => writeln!(out, "{}", inert_bytes(entry.payload))?,
            }
            return Ok(());
        }
    }
    anyhow::bail!("the tape has no entry {number}: `scrubjay tape show` lists them")
}

fn print_json_entries(tape: &Tape, args: &ShowArgs) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut reader = Reader::default();
    let mut entries = tape.entries()?;
    write!(out, "[")?;
    let mut shown = 0;
    while shown < args.limit
        && let Some((number, entry)) = entries.next()?
    {
        let reading = reader.read(&entry);
        if number >= args.from {
            write!(out, "{}", if shown == 0 { "\n" } else { ",\n" })?;
            write_json(&mut out, &entry_json(number, &entry, &reading))?;
            shown += 1;
        }
    }
    writeln!(out, "\n]")?;
    Ok(out.flush()?)
}

/// Prints a tape as a table, with a line of totals.
pub(crate) fn print_tape(tape: &Tape, from: u64, limit: u64) -> anyhow::Result<()> {
    let mut reader = Reader::default();
    let mut entries = tape.entries()?;
    let mut table = table();
    let mut shown = 0;
    let mut more = 0;
    while let Some((number, entry)) = entries.next()? {
        let reading = reader.read(&entry);
        if number < from {
            continue;
        }
        if shown < limit {
            add_row(&mut table, number, &entry, &reading);
            shown += 1;
        } else {
            more += 1;
        }
    }
    table.print()?;
    let sums = reader.finish();
    let mut text = format!(
        "{}, {} sent, {} received, {} failed, {} unanswered; response time p50 {}, p99 {}",
        units::counted(sums.total_messages, "message"),
        units::size(sums.total_bytes_sent),
        units::size(sums.total_bytes_received),
        sums.total_errors,
        sums.unanswered,
        units::duration(sums.p50_response_time_ns),
        units::duration(sums.p99_response_time_ns),
    );
    if sums.intercepted > 0 {
        text += &format!("; {} intercepted by rules", sums.intercepted);
    }
    if sums.backends_ended > 0 {
        text += &format!("; backends ended: {}", sums.backends_ended);
    }
    if more > 0 {
        text += &format!("; {}: --from {} or --limit", units::counted(more, "more entry"), from + shown);
    }
    let mut note = Table::note();
    note.line(&text)?;
    if !sums.left_out.is_nothing() {
        note.line(&sums.left_out.describe())?;
    }
    for damage in entries.damage() {
        note.line(&format!("damaged: {}", damage.what))?;
    }
    Ok(())
}

/// The columns of a tape.
pub(super) fn table() -> Table {
    Table::new(&[
        ("#", Align::Right),
        ("TIME", Align::Right),
        ("", Align::Left),
        ("VIA", Align::Left),
        ("KIND", Align::Left),
        ("METHOD", Align::Left),
        ("SIZE", Align::Right),
        ("TOOK", Align::Right),
        ("STATUS", Align::Left),
    ])
}

/// Adds an entry as a row.
pub(super) fn add_row(table: &mut Table, number: u64, entry: &Entry<'_>, reading: &Reading) {
    let took = reading.link().and_then(|l| l.response_ns).map(units::duration).unwrap_or_default();
    table.row(
        reading.is_failure()
            || matches!(entry.kind, EntryKind::Gap | EntryKind::Oversize)
            || backend_ended(entry).is_some(),
        &[
            &number.to_string(),
            &format!("+{}", units::duration(entry.since_start_ns)),
            arrow(entry),
            entry.via.unwrap_or_default(),
            kind(entry, &reading.envelope),
            &subject(entry, reading),
            &units::size(entry.payload.len() as u64),
            &took,
            &status(entry, reading),
        ],
    );
}

fn backend_ended(entry: &Entry<'_>) -> Option<BackendEnded> {
    (entry.kind == EntryKind::Note).then(|| BackendEnded::from_note(entry.payload)).flatten()
}

fn arrow(entry: &Entry<'_>) -> &'static str {
    match (entry.kind, entry.direction) {
        (EntryKind::End | EntryKind::Gap | EntryKind::Note, _) => "·",
        (_, Direction::ClientToServer) => "→",
        (_, Direction::ServerToClient) => "←",
    }
}

fn kind(entry: &Entry<'_>, envelope: &Envelope) -> &'static str {
    match entry.kind {
        EntryKind::Message => match envelope.kind {
            MessageKind::Request => "request",
            MessageKind::Response => "response",
            MessageKind::Error => "error",
            MessageKind::Notification => "notice",
            MessageKind::Batch => "batch",
            MessageKind::Opaque => "opaque",
        },
        EntryKind::Stderr => "stderr",
        EntryKind::Oversize => "too long",
        EntryKind::Gap => "gap",
        EntryKind::End => "end",
        EntryKind::Note => "note",
        EntryKind::Original => "original",
    }
}

fn subject(entry: &Entry<'_>, reading: &Reading) -> String {
    match entry.kind {
        EntryKind::Message => match reading.link() {
            _ if reading.envelope.kind == MessageKind::Batch => {
                units::counted(reading.envelope.batch.len(), "message")
            }
            Some(link) if link.method.is_some() => [link.method.as_deref(), link.name.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" "),
            _ => inert_bytes(&entry.payload[..entry.payload.len().min(64)]),
        },
        EntryKind::Original => {
            let came = Envelope::parse(entry.payload);
            [came.method, came.name].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        EntryKind::Note => note(entry.payload),
        EntryKind::Stderr => inert_bytes(&entry.payload[..entry.payload.len().min(200)]),
        EntryKind::Oversize => serde_json::from_slice::<Oversize>(entry.payload)
            .map(|line| format!("{} {}", line.method.unwrap_or_default(), units::size(line.bytes)))
            .unwrap_or_default(),
        EntryKind::Gap => serde_json::from_slice::<Gap>(entry.payload)
            .map(|gap| format!("{} missing: {}", units::counted(gap.messages, "message"), gap.reason))
            .unwrap_or_default(),
        EntryKind::End => {
            serde_json::from_slice::<End>(entry.payload).map(|end| end.reason).unwrap_or_default()
        }
    }
}

/// Says a note in words, where it is one of those that tell what is not on the tape or how a backend ended.
fn note(payload: &[u8]) -> String {
    if let Some(left_out) = LeftOut::from_note(payload) {
        return left_out.describe();
    }
    if let Some(ended) = BackendEnded::from_note(payload) {
        return scrubjay_core::inert::inert(&ended.how()).into_owned();
    }
    match selection_note(payload) {
        Some(note) => selected_by(&note),
        None => inert_bytes(&payload[..payload.len().min(200)]),
    }
}

/// Names the settings because of which a tape does not hold everything, or not at once.
fn selected_by(note: &Value) -> String {
    let settings = note["settings"].as_object().into_iter().flatten();
    let names: Vec<String> = settings
        .map(|(key, value)| {
            match value.get("kind").or_else(|| value.get("strategy")).and_then(Value::as_str) {
                Some(which) => format!("{key} {which}"),
                None => key.clone(),
            }
        })
        .collect();
    if names.is_empty() {
        "written after it was passed on".to_owned()
    } else {
        format!("recorded in part: {}", names.join(", "))
    }
}

fn status(entry: &Entry<'_>, reading: &Reading) -> String {
    let envelope = &reading.envelope;
    let mut words: Vec<String> = Vec::new();
    match envelope.kind {
        MessageKind::Error => words.push(format!(
            "{} {}",
            envelope.error_code.map(|c| c.to_string()).unwrap_or_default(),
            envelope.error_message.as_deref().unwrap_or_default()
        )),
        MessageKind::Response if envelope.is_error => words.push("failed".to_owned()),
        MessageKind::Response if envelope.input_required => words.push("asks for input".to_owned()),
        MessageKind::Response => words.push("ok".to_owned()),
        _ if reading.is_failure() => words.push("failed".to_owned()),
        _ => {}
    }
    if entry.kind == EntryKind::End {
        let end = serde_json::from_slice::<End>(entry.payload).ok();
        words.extend(end.as_ref().and_then(|e| e.exit_code).map(|code| format!("exit code {code}")));
        words.extend(end.as_ref().and_then(|e| e.signal).map(|signal| format!("signal {signal}")));
    }
    if let Some(ended) = backend_ended(entry) {
        words.extend(ended.last_words().map(|line| scrubjay_core::inert::inert(line).into_owned()));
    }
    words.extend(judged(entry));
    let names = envelope.defects.iter().map(|d| format!("{d:?}"));
    let flags = reading.links.iter().flat_map(|l| &l.flags).map(|f| format!("{f:?}"));
    words.extend(names.chain(flags).map(|name| spaced(&name)));
    words.join(", ")
}

/// Says what rules did to a message, and which.
fn judged(entry: &Entry<'_>) -> Option<String> {
    let (rules, tags) = (entry.judged.rule_names(), entry.judged.tag_names());
    if rules.is_empty() {
        return None;
    }
    let acts = entry.judged.acts.names();
    let what = if acts.is_empty() { "seen".to_owned() } else { acts.join(" and ") };
    let tagged = if tags.is_empty() { String::new() } else { format!(" [{}]", tags.join(" ")) };
    Some(format!("{what} by {}{tagged}", rules.join(" ")))
}

/// Turns `InvalidUtf8` into `invalid utf8`.
fn spaced(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// Widths for a table that is printed row by row.
pub(super) const WIDTHS: [usize; 9] = [6, 9, 1, 8, 8, 40, 8, 8, 12];

/// Opens a tape again, under its new name once it is sealed.
pub(super) fn reopen(home: &Home, id: &str) -> anyhow::Result<Tape> {
    super::open(home, id).context("the tape is gone")
}
