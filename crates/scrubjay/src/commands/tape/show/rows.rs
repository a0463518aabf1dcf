//! The table rows of a tape: what each entry is, how its request ended, what rules did to it.

use std::collections::{HashMap, HashSet};

use scrubjay_core::entry::{BackendEnded, Direction, End, Entry, EntryKind, Gap, Undelivered};
use scrubjay_core::envelope::{Envelope, MessageKind};
use scrubjay_core::inert::inert_bytes;
use scrubjay_core::operation::OperationRole;
use scrubjay_core::oversize::Oversize;
use scrubjay_core::reading::EntryReading;
use scrubjay_core::selection::LeftOut;
use scrubjay_core::{preview, redact, units};
use scrubjay_tape::recording::selection_note;
use serde_json::Value;

use crate::render::{Align, Table, columns, fit_last};

/// Marks the size of a message from which secrets were removed.
const REDACTED: &str = "*";

/// The table of a tape's entries, and the requests that have no answer yet.
pub(crate) struct Rows {
    pub(crate) table: Table,
    /// The rows of requests without an answer, by their entries, and how many messages of each are open.
    open: HashMap<u64, (usize, usize)>,
    /// The entries that began operations which were called off.
    cancelled: HashSet<u64>,
    has_redacted: bool,
}

impl Rows {
    pub(crate) fn new() -> Self {
        let columns = [
            ("#", Align::Right),
            ("TIME", Align::Right),
            ("", Align::Left),
            ("VIA", Align::Left),
            ("KIND", Align::Left),
            ("METHOD", Align::Left),
            ("SIZE", Align::Right),
            ("TOOK", Align::Right),
            ("WHAT", Align::Left),
        ];
        Self {
            table: Table::filling(&columns),
            open: HashMap::new(),
            cancelled: HashSet::new(),
            has_redacted: false,
        }
    }

    /// Adds an entry as a row.
    pub(crate) fn add(&mut self, number: u64, entry: &Entry<'_>, reading: &EntryReading) {
        self.pair(number, reading);
        let took = reading.link().and_then(|l| l.response_ns).map(units::duration).unwrap_or_default();
        let is_redacted = !redact::marks(entry.payload).is_empty();
        self.has_redacted |= is_redacted;
        let mark = if is_redacted { REDACTED } else { "" };
        self.table.row(
            reading.is_failure()
                || reading.undelivered.is_some()
                || matches!(entry.kind, EntryKind::Gap | EntryKind::Oversize)
                || backend_ended(entry).is_some(),
            &[
                &number.to_string(),
                &format!("+{}", units::duration(entry.since_start_ns)),
                arrow(entry),
                entry.via.unwrap_or_default(),
                kind(entry, &reading.envelope),
                &subject(entry, reading),
                &format!("{}{mark}", units::size(entry.payload.len() as u64)),
                &took,
                &what(entry, reading),
            ],
        );
    }

    /// Reads an entry that is not shown: it may answer one that is.
    pub(crate) fn pass(&mut self, reading: &EntryReading) {
        for link in &reading.links {
            if let Some(asked) = link.answers {
                self.answered(asked);
            }
            if link.role == OperationRole::Cancellation {
                self.cancelled.extend(link.operation);
            }
        }
    }

    fn pair(&mut self, number: u64, reading: &EntryReading) {
        self.pass(reading);
        let alone = std::slice::from_ref(&reading.envelope);
        let messages = if reading.envelope.batch.is_empty() { alone } else { &reading.envelope.batch };
        let asks = |message: &&Envelope| message.kind == MessageKind::Request && message.id.is_some();
        let asked = messages.iter().filter(asks).count();
        // A batch is one row with several requests, which stays open until all of them are answered.
        if asked > 0 {
            self.open.insert(number, (self.table.rows(), asked));
        }
    }

    fn answered(&mut self, asked: u64) {
        if let Some((_, messages)) = self.open.get_mut(&asked) {
            *messages -= 1;
            if *messages == 0 {
                self.open.remove(&asked);
            }
        }
    }

    /// Marks the requests that have no answer.
    pub(crate) fn mark_unanswered(&mut self, may_come: bool) {
        for (entry, (row, _)) in std::mem::take(&mut self.open) {
            let words = match () {
                () if self.cancelled.contains(&entry) => "cancelled, no answer",
                () if may_come => "no answer yet",
                () => "no answer",
            };
            self.table.mark(row, words);
        }
    }

    /// Explains the mark at sizes, if one was used.
    pub(crate) fn footnote(&self) -> Option<&'static str> {
        self.has_redacted.then_some("* the size after redaction: secrets were removed before it was recorded")
    }
}

/// Returns widths for a table that is printed row by row.
pub(crate) fn fixed_widths() -> [usize; 9] {
    // In the order of the columns in `Rows::new`; the last one is computed.
    let mut widths = [6, 9, 1, 8, 8, 40, 9, 8, 0];
    fit_last(&mut widths);
    widths
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

pub(super) fn kind(entry: &Entry<'_>, envelope: &Envelope) -> &'static str {
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

pub(super) fn subject(entry: &Entry<'_>, reading: &EntryReading) -> String {
    match entry.kind {
        EntryKind::Message => match reading.link() {
            _ if reading.envelope.kind == MessageKind::Batch => {
                format!("{} messages", reading.envelope.batch.len())
            }
            Some(link) if link.method.is_some() => [link.method.as_deref(), link.name.as_deref()]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" "),
            // 64 bytes: a little more than a cell of the table shows.
            _ => inert_bytes(&entry.payload[..entry.payload.len().min(64)]),
        },
        EntryKind::Original => {
            // The reader pairs only the forwarded message, so this one has no link to take the names from.
            let came = Envelope::parse(entry.payload);
            [came.method, came.name].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        EntryKind::Note => note(entry.payload),
        EntryKind::Stderr => inert_bytes(&entry.payload[..entry.payload.len().min(200)]),
        EntryKind::Oversize => serde_json::from_slice::<Oversize>(entry.payload)
            .map(|line| format!("{} {}", line.method.unwrap_or_default(), units::size(line.bytes)))
            .unwrap_or_default(),
        EntryKind::Gap => serde_json::from_slice::<Gap>(entry.payload)
            .map(|gap| format!("{} messages missing: {}", gap.messages, gap.reason))
            .unwrap_or_default(),
        EntryKind::End => {
            serde_json::from_slice::<End>(entry.payload).map(|end| end.reason).unwrap_or_default()
        }
    }
}

/// Describes a note in words if it says what is not on the tape, or how a backend ended; else returns its text.
fn note(payload: &[u8]) -> String {
    if let Some(left_out) = LeftOut::from_note(payload) {
        return left_out.describe();
    }
    if let Some(undelivered) = Undelivered::from_note(payload) {
        return scrubjay_core::inert::inert(&undelivered.describe()).into_owned();
    }
    if let Some(ended) = BackendEnded::from_note(payload) {
        return scrubjay_core::inert::inert(&ended.how()).into_owned();
    }
    match selection_note(payload) {
        Some(note) => selected_by(&note),
        None => inert_bytes(&payload[..payload.len().min(200)]),
    }
}

/// Names the settings because of which a tape does not hold everything, or was written later.
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

/// Describes how an entry ended, what rules did to it, its defects, and what it asks for.
fn what(entry: &Entry<'_>, reading: &EntryReading) -> String {
    let mut text = status(entry, reading).join(", ");
    if let Some(said) = said(entry, &reading.envelope) {
        text.push_str(if text.is_empty() { "" } else { " " });
        text.push_str(said);
    }
    text
}

/// Returns what a request or notification asks for, cut to the width of a line.
fn said<'a>(entry: &Entry<'a>, envelope: &Envelope) -> Option<&'a str> {
    let asks = matches!(envelope.kind, MessageKind::Request | MessageKind::Notification);
    let is_message = entry.kind == EntryKind::Original || (entry.kind == EntryKind::Message && asks);
    let said = if is_message { preview::arguments(entry.payload)? } else { return None };
    Some(head(said))
}

/// Cuts a text to what fits on a line.
fn head(text: &str) -> &str {
    text.char_indices().nth(columns()).map_or(text, |(end, _)| &text[..end])
}

fn status(entry: &Entry<'_>, reading: &EntryReading) -> Vec<String> {
    let envelope = &reading.envelope;
    let mut words: Vec<String> = Vec::new();
    let why = || preview::failure(envelope, entry.payload).map(|why| head(&why).to_owned());
    match envelope.kind {
        MessageKind::Error => words.push(format!(
            "{} {}",
            envelope.error_code.map(|c| c.to_string()).unwrap_or_default(),
            envelope.error_message.as_deref().map(head).unwrap_or_default()
        )),
        MessageKind::Response if envelope.is_error => {
            words.push(why().map_or("failed".to_owned(), |why| format!("failed: {why}")));
        }
        MessageKind::Response if envelope.input_required => words.push("asks for input".to_owned()),
        MessageKind::Response => words.push("ok".to_owned()),
        _ if reading.is_failure() => words.push("failed".to_owned()),
        _ => {}
    }
    if let Some(why) = &reading.undelivered {
        words.push(format!("undelivered: {why}"));
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
    words
}

/// Describes what rules did to a message, and names them.
pub(super) fn judged(entry: &Entry<'_>) -> Option<String> {
    let (rules, tags) = (entry.rule_marks.rule_names(), entry.rule_marks.tag_names());
    if rules.is_empty() {
        return None;
    }
    let effects = entry.rule_marks.effects.names();
    let what = if effects.is_empty() { "seen".to_owned() } else { effects.join(" and ") };
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
