//! A tape as JSON: one object an entry, with everything the tape knows about it.
//!
//! The form of `tape show --json` and of the JSON Lines export, which can be imported again: `raw` holds the
//! message exactly as it was (or `raw_base64`, where it is not UTF-8).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use crate::entry::{Direction, Entry, EntryKind, RuleEffects, RuleMarks, Terminator, Transport, is_name};
use crate::envelope::{Defect, MessageKind};
use crate::operation::{OperationFlag, OperationRole};
use crate::reading::EntryReading;
use crate::redact::marks;

/// One entry as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct EntryJson<'a> {
    /// Its number on the tape.
    pub entry: u64,
    /// When, in ISO 8601.
    pub time: String,
    /// When, nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// Nanoseconds since the tape began.
    pub since_start_ns: u64,
    /// Which way.
    pub direction: Direction,
    /// Over what.
    pub transport: Transport,
    /// The backend, for a message between the gateway and one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<&'a str>,
    /// Which connection to that backend, where the tape tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<u32>,
    /// What it is.
    pub kind: EntryKind,
    /// What kind of message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_type: Option<MessageKind>,
    /// The method, of an answer the one it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'a str>,
    /// The tool, prompt or resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'a str>,
    /// The JSON-RPC id as raw JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jsonrpc_id: Option<&'a str>,
    /// The operation it belongs to: the number of the entry that began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<u64>,
    /// What it is to that operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<OperationRole>,
    /// The entry it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// How long the answer took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<u64>,
    /// How long it took to record.
    pub processing_time_ns: u32,
    /// The code of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<i64>,
    /// Whether it reports a failure.
    pub failed: bool,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub defects: &'a [Defect],
    /// What is odd about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<OperationFlag>,
    /// Why it did not reach its receiver, where it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undelivered: Option<&'a str>,
    /// Whether rules changed it, held it back, blocked it or made it.
    pub intercepted: bool,
    /// Which of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interception: Vec<&'static str>,
    /// The rules that applied to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applied_rules: Vec<&'a str>,
    /// The tags that rules gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<&'a str>,
    /// The message as it came, where rules changed it; it is the entry before, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_message: Option<&'a str>,
    /// The marks that redaction left in it; where there are any, its length is that after redaction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redactions: Vec<String>,
    /// Its length.
    pub size_bytes: usize,
    /// How its line ended.
    pub terminator: Terminator,
    /// The message, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<&'a str>,
    /// The message, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_base64: Option<String>,
}

/// Describes an entry.
#[must_use]
pub fn entry_json<'a>(number: u64, entry: &Entry<'a>, reading: &'a EntryReading) -> EntryJson<'a> {
    let envelope = &reading.envelope;
    let link = reading.link();
    let raw = std::str::from_utf8(entry.payload).ok();
    EntryJson {
        entry: number,
        time: iso_time(entry.wall_ns),
        wall_ns: entry.wall_ns,
        since_start_ns: entry.since_start_ns,
        direction: entry.direction,
        transport: entry.transport,
        via: entry.via,
        connection: (entry.connection != 0).then_some(entry.connection),
        kind: entry.kind,
        message_type: (entry.kind == EntryKind::Message).then_some(envelope.kind),
        method: link.and_then(|l| l.method.as_deref()),
        name: link.and_then(|l| l.name.as_deref()),
        jsonrpc_id: envelope.id.as_ref().map(|id| id.as_raw()),
        operation: link.and_then(|l| l.operation),
        role: link.map(|l| l.role),
        answers: link.and_then(|l| l.answers),
        response_time_ns: link.and_then(|l| l.response_ns),
        processing_time_ns: entry.processing_ns,
        error_code: envelope.error_code,
        failed: reading.is_failure(),
        defects: &envelope.defects,
        flags: reading.links.iter().flat_map(|l| l.flags.iter().copied()).collect(),
        undelivered: reading.undelivered.as_deref(),
        intercepted: entry.rule_marks.is_intercepted(),
        interception: entry.rule_marks.effects.names(),
        applied_rules: entry.rule_marks.rule_names(),
        tags: entry.rule_marks.tag_names(),
        original_message: reading.original.as_deref().and_then(|raw| std::str::from_utf8(raw).ok()),
        redactions: marks(entry.payload),
        size_bytes: entry.payload.len(),
        terminator: entry.terminator,
        raw,
        raw_base64: raw.is_none().then(|| BASE64_STANDARD.encode(entry.payload)),
    }
}

/// What an import needs of an exported entry.
#[derive(Debug, Deserialize)]
pub struct ImportedEntry {
    wall_ns: u64,
    since_start_ns: u64,
    direction: Direction,
    transport: Transport,
    kind: EntryKind,
    via: Option<String>,
    #[serde(default)]
    connection: u32,
    operation: Option<u64>,
    #[serde(default)]
    processing_time_ns: u32,
    terminator: Terminator,
    #[serde(default, deserialize_with = "lines")]
    interception: String,
    #[serde(default, deserialize_with = "lines")]
    applied_rules: String,
    #[serde(default, deserialize_with = "lines")]
    tags: String,
    raw: Option<String>,
    raw_base64: Option<String>,
}

/// Why an exported entry has no bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// Neither of the two members that can hold them is there.
    #[error("neither raw nor raw_base64 is there")]
    Missing,
    /// They cannot be decoded.
    #[error("raw_base64 is not base 64: {0}")]
    NotBase64(base64::DecodeError),
}

/// Reads a list of names, one a line; what can be none is left out.
fn lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    Ok(names.into_iter().filter(|name| is_name(name)).collect::<Vec<_>>().join("\n"))
}

impl ImportedEntry {
    /// Returns the bytes of the message.
    ///
    /// # Errors
    /// They are missing, or not base 64.
    pub fn payload(&self) -> Result<Vec<u8>, PayloadError> {
        match (&self.raw, &self.raw_base64) {
            (Some(raw), _) => Ok(raw.clone().into_bytes()),
            (None, Some(coded)) => BASE64_STANDARD.decode(coded).map_err(PayloadError::NotBase64),
            (None, None) => Err(PayloadError::Missing),
        }
    }

    /// Returns the entry around these bytes.
    #[must_use]
    pub fn entry<'a>(&'a self, payload: &'a [u8]) -> Entry<'a> {
        Entry {
            kind: self.kind,
            direction: self.direction,
            transport: self.transport,
            terminator: self.terminator,
            wall_ns: self.wall_ns,
            since_start_ns: self.since_start_ns,
            processing_ns: self.processing_time_ns,
            via: self.via.as_deref(),
            connection: self.connection,
            // On the client's leg it follows from the messages; only a backend's leg has it written down.
            operation: self.operation.filter(|_| self.via.is_some()),
            rule_marks: RuleMarks {
                effects: RuleEffects::of_names(self.interception.lines()),
                rules: &self.applied_rules,
                tags: &self.tags,
            },
            payload,
        }
    }
}

/// Writes an instant in ISO 8601, UTC.
#[must_use]
pub fn iso_time(wall_ns: u64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(wall_ns))
        .map_or_else(|_| wall_ns.to_string(), |t| t.to_string())
}
