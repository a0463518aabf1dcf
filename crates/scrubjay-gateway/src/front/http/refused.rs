//! Records requests that the front refused: the body's length and hash, and the reason; never a header.
//!
//! They go on the tape of the session that the request names, or else on the front's own. A client that is refused
//! again and again must not fill the disk, so a reason is written once at first, then at most every second, and ever
//! more rarely while it goes on, each time with the count.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_core::message_limit::MessageLimit;
use scrubjay_tape::clock;
use scrubjay_tape::recording::{Item, Recording};
use serde_json::{Value, json};

use super::body::Response;
use crate::budget::{Charge, OverBudget};
use crate::gateway::{Gateway, NewTape};
use crate::record_first::{record_first, shared};
use crate::session::{Session, lock, seal};

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How many pairs of session and reason are counted. Beyond this, refusals of all sessions are counted together:
/// reasons are few.
const COUNTED_MAX: usize = 1024;
/// How much of a refused request's body is read, and for how long: enough to recognise it.
const SKIMMED_BYTES_MAX: usize = 64 * 1024;
const SKIM_MAX: Duration = Duration::from_secs(1);

/// Why a request was refused; an extension of the response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reason(pub(super) &'static str);

/// Marks a response as a refusal, which is recorded.
pub(super) fn because(reason: &'static str, mut response: Response) -> Response {
    response.extensions_mut().insert(Reason(reason));
    response
}

/// The slowest rate at which a body may arrive: each time this many bytes have come, the deadline moves by a second.
const BODY_BYTES_PER_SEC: u64 = 64 * 1024;

/// How long a body waits for memory.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);

/// How a body came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// It was read completely.
    Whole,
    /// It is longer than the limit.
    TooLong,
    /// Its client disconnected.
    CutOff,
    /// It did not arrive in time.
    TooSlow,
    /// There is no memory for more of it.
    Full(OverBudget),
}

/// The memory and the time for reading a body.
pub(super) struct BodyAllowance {
    pub(super) charge: Charge,
    pub(super) timeout: Duration,
}

/// What was read of a request's body.
#[derive(Debug, Default)]
pub(super) struct ReadBody {
    /// The memory that it takes.
    charge: Option<Charge>,
    bytes: Bytes,
    /// The body's length, if it was read to its end or its headers say it.
    length: Option<u64>,
}

impl ReadBody {
    /// Reads a body up to a limit, charging it to the budget as it grows; returns how it ended.
    pub(super) async fn read(
        headers: &HeaderMap,
        mut body: Body,
        limit: MessageLimit,
        reading: BodyAllowance,
    ) -> (Self, BodyEnd) {
        let BodyAllowance { mut charge, timeout } = reading;
        let stated = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        let (mut read, mut rest) = (Vec::new(), None);
        let begun = tokio::time::Instant::now();
        let end = loop {
            // Only bytes extend the deadline: a client that sends one now and then still runs out of time.
            let earned = Duration::from_secs(read.len() as u64 / BODY_BYTES_PER_SEC);
            let data = match tokio::time::timeout_at(begun + timeout + earned, body.frame()).await {
                Err(_) => break BodyEnd::TooSlow,
                Ok(None) => break BodyEnd::Whole,
                Ok(Some(Err(_))) => break BodyEnd::CutOff,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_) => continue,
                },
            };
            let allowed = limit.bytes_max() - read.len();
            let wanted = read.len() + data.len().min(allowed);
            if let Err(full) = charge.resize_within(wanted, ROOM_WAIT_MAX).await {
                rest = Some(data.len());
                // Read on for a moment: many clients look for a response only when they have sent everything.
                let drained = async { while body.frame().await.is_some_and(|frame| frame.is_ok()) {} };
                let _ = tokio::time::timeout(SKIM_MAX, drained).await;
                break BodyEnd::Full(full);
            }
            if limit.is_exceeded_by(read.len() + data.len()) {
                read.extend_from_slice(&data[..allowed]);
                rest = Some(data.len() - allowed);
                break BodyEnd::TooLong;
            }
            // Most bodies arrive in one piece, which is used without a copy.
            if read.is_empty() && stated == Some(data.len() as u64) {
                // From here on the call is charged to the session, so the body must not be too.
                charge.leave_account();
                return (Self { length: stated, bytes: data, charge: Some(charge) }, BodyEnd::Whole);
            }
            if read.capacity() - read.len() < data.len() {
                // Grow by a quarter, not to the double as `Vec` does: a body may be large.
                read.reserve_exact(data.len().max(read.len() / 4));
            }
            read.extend_from_slice(&data);
        };
        let known = (read.len() + rest.unwrap_or(0)) as u64;
        let is_whole = end == BodyEnd::Whole;
        charge.leave_account();
        let length = if is_whole { Some(known) } else { stated.filter(|stated| *stated >= known) };
        (Self { bytes: read.into(), length, charge: Some(charge) }, end)
    }

    /// Reads the beginning of a body that is not used, for its hash.
    pub(super) async fn skim(headers: &HeaderMap, body: Body, charge: Charge) -> Self {
        let allowance = BodyAllowance { charge, timeout: SKIM_MAX };
        Self::read(headers, body, SKIMMED_BYTES_MAX.into(), allowance).await.0
    }

    /// Frees the bytes.
    pub(super) fn forget(&mut self) {
        (self.bytes, self.charge) = (Bytes::new(), None);
    }

    /// Returns the bytes that were read.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn facts(&self) -> Value {
        let mut facts = json!({ "blake3": blake3::hash(&self.bytes).to_hex().as_str() });
        let read = self.bytes.len() as u64;
        if let Some(length) = self.length {
            facts["bytes"] = json!(length);
        }
        if self.length != Some(read) {
            // The hash covers only the bytes that were read.
            facts["hashed_bytes"] = json!(read);
        }
        facts
    }
}

/// Counts refusals and writes them to tapes.
#[derive(Debug)]
pub(super) struct Refusals {
    tape: Arc<Mutex<Recording>>,
    counted: Mutex<HashMap<(String, &'static str), CountedRefusal>>,
}

/// How often a reason occurred since it was last written.
#[derive(Debug)]
struct CountedRefusal {
    session: Option<Arc<Session>>,
    note: Value,
    count: u64,
    next: Instant,
    pause: Duration,
}

impl Refusals {
    pub(super) fn new(tape: Recording) -> Self {
        Self { tape: shared(tape), counted: Mutex::default() }
    }

    /// Counts a refusal, and writes it if it is due.
    pub(super) fn note(
        &self,
        gateway: &Gateway,
        Reason(reason): Reason,
        status: StatusCode,
        method: &Method,
        seen: &ReadBody,
        session: Option<Arc<Session>>,
    ) {
        let now = clock::now().instant;
        let mut counted = lock(&self.counted);
        let session = session.filter(|_| counted.len() < COUNTED_MAX);
        let key = (session.as_ref().map(|s| s.id.clone()).unwrap_or_default(), reason);
        let refusal = counted.entry(key).or_insert_with(|| CountedRefusal {
            session,
            note: Value::Null,
            count: 0,
            next: now,
            pause: PAUSE_MIN,
        });
        refusal.count += 1;
        if refusal.count == 1 {
            // Only the first of those that are counted together: hashing costs time, which a flood would use.
            let mut note = seen.facts();
            note["event"] = json!("refused");
            note["reason"] = json!(reason);
            note["status"] = json!(status.as_u16());
            note["http_method"] = json!(method.as_str());
            refusal.note = note;
        }
        if now >= refusal.next {
            self.write(gateway, refusal, now);
        }
    }

    fn write(&self, gateway: &Gateway, refusal: &mut CountedRefusal, now: Instant) {
        let mut note = refusal.note.take();
        if refusal.count > 1 {
            note["count"] = json!(refusal.count);
        }
        refusal.pause = if refusal.count > 1 { (refusal.pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
        (refusal.count, refusal.next) = (0, now + refusal.pause);
        match refusal.session.as_ref().filter(|session| gateway.session(&session.id).is_some()) {
            Some(session) => session.record_refused(&note),
            None => {
                let facts = note.to_string();
                let item =
                    Item::new(EntryKind::Note, Direction::ClientToServer, Terminator::Eof, facts.as_bytes());
                if let Err(e) = record_first(&self.tape, gateway.record_options(), &[item], |_| ()) {
                    tracing::error!(error = %e, "a refusal could not be recorded");
                }
            }
        }
    }

    /// Writes the counts that are due, and forgets reasons that no longer occur.
    pub(super) fn flush(&self, gateway: &Gateway) {
        let now = clock::now().instant;
        lock(&self.counted).retain(|_, refusal| {
            let due = now >= refusal.next;
            if due && refusal.count > 0 {
                self.write(gateway, refusal, now);
                return true;
            }
            !due
        });
    }

    /// Writes all counts, and ends the tape.
    pub(super) fn end(&self, gateway: &Gateway, reason: &str) {
        let now = clock::now().instant;
        for (_, mut refusal) in lock(&self.counted).drain() {
            if refusal.count > 0 {
                self.write(gateway, &mut refusal, now);
            }
        }
        seal(&self.tape, gateway.new_tape(NewTape::late()), reason);
    }
}
