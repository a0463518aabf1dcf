//! `scrubjay tape show --entry`: one entry in full.

use std::io::{IsTerminal, Write};

use scrubjay_core::entry::{Direction, Entry, EntryKind, Transport};
use scrubjay_core::envelope::MessageKind;
use scrubjay_core::export::entry_json;
use scrubjay_core::inert::{inert, inert_bytes, inert_json};
use scrubjay_core::reading::EntryReading;
use scrubjay_core::{pretty_json, redact, units};
use scrubjay_tape::format::reader::{Tape, TapeState};
use scrubjay_tape::home::Home;

use super::rows;
use crate::cli::Global;
use crate::render::{exact_time, print_json};

/// In which form an entry is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Facts and the message, for people.
    Read,
    /// The bytes as they were recorded.
    Raw,
}

/// Shows one entry.
pub(super) fn show(global: &Global, home: &Home, tape: &Tape, number: u64, form: Form) -> anyhow::Result<()> {
    let mut reader = home.reader(tape)?;
    let mut entries = tape.entries()?;
    while let Some((at, entry)) = entries.next()? {
        // Also the entries before it: what an answer means depends on its request.
        let reading = reader.read_numbered(at, &entry);
        if at != number {
            continue;
        }
        return match form {
            Form::Raw => raw(entry.payload),
            Form::Read if global.json => print_json(&entry_json(at, &entry, &reading)),
            Form::Read => {
                let answer = answer(tape, at, &reading)?;
                let mut out = std::io::BufWriter::new(anstream::stdout().lock());
                facts(&mut out, tape, at, &entry, &reading, answer)?;
                writeln!(out)?;
                message(&mut out, entry.payload)?;
                Ok(out.flush()?)
            }
        };
    }
    anyhow::bail!("the tape has no entry {number}: `scrubjay tape show` lists them")
}

/// Writes the bytes; on a terminal, which they could control, with control characters escaped.
fn raw(payload: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        writeln!(out, "{}", inert_bytes(payload))?;
    } else {
        // Without a line feed, which is not part of the recorded bytes.
        out.write_all(payload)?;
    }
    Ok(out.flush()?)
}

/// Finds the entry that answers this one, and how long it took.
fn answer(tape: &Tape, number: u64, reading: &EntryReading) -> anyhow::Result<Option<(u64, Option<u64>)>> {
    if !asks(reading) {
        return Ok(None);
    }
    // From the beginning, with a reader of its own, because the answer comes after the entry that is shown.
    let mut reader = scrubjay_core::reading::EntryReader::default();
    let mut entries = tape.entries()?;
    while let Some((at, entry)) = entries.next()? {
        let later = reader.read(&entry);
        if let Some(link) = later.links.iter().find(|link| link.answers == Some(number)) {
            return Ok(Some((at, link.response_ns)));
        }
    }
    Ok(None)
}

fn asks(reading: &EntryReading) -> bool {
    let envelope = &reading.envelope;
    let one = |kind: MessageKind, has_id: bool| kind == MessageKind::Request && has_id;
    one(envelope.kind, envelope.id.is_some()) || envelope.batch.iter().any(|e| one(e.kind, e.id.is_some()))
}

fn facts(
    out: &mut impl Write,
    tape: &Tape,
    number: u64,
    entry: &Entry<'_>,
    reading: &EntryReading,
    answer: Option<(u64, Option<u64>)>,
) -> anyhow::Result<()> {
    let mut fact = |name: &str, text: &str| writeln!(out, "{name:<10} {}", inert(text));
    let of = tape.header().map(|header| format!(" of tape {}, {}", header.id.short(), header.name));
    fact("entry", &format!("{number}{}", of.unwrap_or_default()))?;
    let since = units::duration(entry.since_start_ns);
    fact("time", &format!("{}, {since} after the start", exact_time(entry.wall_ns)))?;
    fact("way", &way(entry))?;
    let id = reading.envelope.id.as_ref().map(|id| format!(", id {id}")).unwrap_or_default();
    let subject = rows::subject(entry, reading);
    fact("kind", &format!("{} {subject}{id}", rows::kind(entry, &reading.envelope)))?;
    if let Some(pair) = pair(tape, reading, answer) {
        fact("pair", &pair)?;
    }
    if let Some(operation) = reading.link().and_then(|link| link.operation).filter(|began| *began != number) {
        fact("operation", &format!("began with entry {operation}"))?;
    }
    if let Some(why) = &reading.undelivered {
        fact("delivered", &format!("no: {why}"))?;
    }
    if let Some(judged) = rows::judged(entry) {
        fact("rules", &judged)?;
    }
    if reading.original.is_some() {
        fact("original", &format!("entry {}, before rules changed it", number.saturating_sub(1)))?;
    }
    let marks = redact::marks(entry.payload);
    if !marks.is_empty() {
        fact("redacted", &marks.join(" "))?;
    }
    let after = if marks.is_empty() { "" } else { ", after redaction" };
    fact("size", &format!("{}{after}", units::size(entry.payload.len() as u64)))?;
    Ok(fact("recorded", &format!("within {}", units::duration(entry.processing_ns.into())))?)
}

fn way(entry: &Entry<'_>) -> String {
    let over = match entry.transport {
        Transport::Stdio => "stdio",
        Transport::Http => "HTTP",
        Transport::Memory => "memory",
    };
    let (from, to) = match entry.via {
        // Connections count from 1; an entry without the field has 0.
        Some(backend) if entry.connection > 0 => {
            ("gateway", format!("backend {backend} (connection {})", entry.connection))
        }
        Some(backend) => ("gateway", format!("backend {backend}")),
        None => ("client", "server".to_owned()),
    };
    match entry.direction {
        _ if matches!(entry.kind, EntryKind::Gap | EntryKind::End | EntryKind::Note) => {
            "noted here".to_owned()
        }
        Direction::ClientToServer => format!("{from} → {to} over {over}"),
        Direction::ServerToClient => format!("{to} → {from} over {over}"),
    }
}

fn pair(tape: &Tape, reading: &EntryReading, answer: Option<(u64, Option<u64>)>) -> Option<String> {
    let after =
        |took: Option<u64>| took.map(|ns| format!(" after {}", units::duration(ns))).unwrap_or_default();
    if let Some(link) = reading.link()
        && let Some(asked) = link.answers
    {
        return Some(format!("answers entry {asked}{}", after(link.response_ns)));
    }
    match answer {
        Some((entry, took)) => Some(format!("answered by entry {entry}{}", after(took))),
        None if !asks(reading) => None,
        None if tape.state() == TapeState::Live => Some("no answer yet".to_owned()),
        None => Some("no answer on this tape".to_owned()),
    }
}

/// Writes a message in its original spelling, indented: the order of keys and the digits of numbers stay.
fn message(out: &mut impl Write, payload: &[u8]) -> anyhow::Result<()> {
    match std::str::from_utf8(payload).ok().and_then(pretty_json::pretty) {
        // Line breaks belong to the layout: a JSON string contains none.
        Some(text) => {
            for line in text.lines() {
                writeln!(out, "{}", inert_json(line))?;
            }
        }
        None => writeln!(out, "{}", inert_bytes(payload))?,
    }
    Ok(())
}
