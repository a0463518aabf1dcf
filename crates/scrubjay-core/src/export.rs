//! A tape as JSON: one object for each entry, with everything that the tape says about it.
//!
//! This is the format of `tape show --json` and of the JSON Lines export, which can be imported again: `raw` holds the
//! exact bytes of the message (or `raw_base64`, if they are not UTF-8).

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
    /// Its time, in ISO 8601.
    pub time: String,
    /// Its time, in nanoseconds since the Unix epoch.
    pub wall_ns: u64,
    /// Nanoseconds since the tape began.
    pub since_start_ns: u64,
    /// Its direction.
    pub direction: Direction,
    /// Its transport.
    pub transport: Transport,
    /// The backend, for a message between the gateway and a backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<&'a str>,
    /// The number of the connection to that backend, if the tape says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<u32>,
    /// Its kind.
    pub kind: EntryKind,
    /// The kind of message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_type: Option<MessageKind>,
    /// The method; for an answer that of the request.
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
    /// Its role in that operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<OperationRole>,
    /// The entry it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// The time from the request to this answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_time_ns: Option<u64>,
    /// The time from its arrival to its entry on the tape.
    pub processing_time_ns: u32,
    /// The code of an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<i64>,
    /// Whether it reports a failure.
    pub failed: bool,
    /// Its defects as a JSON-RPC message.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub defects: &'a [Defect],
    /// Anomalies of the operation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<OperationFlag>,
    /// Why it did not reach its receiver, if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undelivered: Option<&'a str>,
    /// Whether rules changed, delayed, blocked, answered or refused it.
    pub intercepted: bool,
    /// Which of these they did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interception: Vec<&'static str>,
    /// The rules that applied to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applied_rules: Vec<&'a str>,
    /// The tags that rules gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<&'a str>,
    /// The original message, if rules changed it; it is also the payload of the previous entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_message: Option<&'a str>,
    /// The marks of redaction in it. If there are any, its size is that after redaction.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redactions: Vec<String>,
    /// Its size.
    pub size_bytes: usize,
    /// Its line end.
    pub terminator: Terminator,
    /// The message, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<&'a str>,
    /// The message in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_base64: Option<String>,
}

/// Makes the JSON of an entry.
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
        // 0 means that the tape does not say.
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

/// The members of an exported entry that an import reads; the others follow from these.
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

/// Reads a list of names as one text with a line for each; strings that cannot be names are dropped.
fn lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    // An entry stores names one a line, so a forged name with a line end would become two.
    let names = Vec::<String>::deserialize(deserializer)?;
    Ok(names.into_iter().filter(|name| is_name(name)).collect::<Vec<_>>().join("\n"))
}

impl ImportedEntry {
    /// Returns the bytes of the message.
    ///
    /// # Errors
    /// They are missing or not base64.
    pub fn payload(&self) -> Result<Vec<u8>, PayloadError> {
        match (&self.raw, &self.raw_base64) {
            (Some(raw), _) => Ok(raw.clone().into_bytes()),
            (None, Some(coded)) => BASE64_STANDARD.decode(coded).map_err(PayloadError::NotBase64),
            (None, None) => Err(PayloadError::Missing),
        }
    }

    /// Returns the entry with these bytes as its payload.
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
            // On the client's leg readers derive the operation from the messages; only a backend's leg stores it.
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

/// Writes a time in ISO 8601, UTC.
#[must_use]
pub fn iso_time(wall_ns: u64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(wall_ns))
        .map_or_else(|_| wall_ns.to_string(), |t| t.to_string())
}
