//! Keeps on a tape what the front turned away: how long it was, its hash and why; never a header.
//!
//! On the tape of the session it names, else on one of the front's own. Whoever is refused again and again
//! must not fill the disk: one reason is written at once, then at most every second, and more and more rarely
//! while it goes on, each time with how often it happened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, StatusCode, header};
use http_body_util::BodyExt;
use scrubjay_core::entry::{Direction, EntryKind, Terminator};
use scrubjay_tape::clock;
use scrubjay_tape::recording::{Item, Recording};
use serde_json::{Value, json};

use super::body::Response;
use crate::budget::{Charge, Full};
use crate::gateway::{Gateway, NewTape};
use crate::record_first::{record_first, shared};
use crate::session::{Session, lock, seal};

const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Reasons are few; sessions are not. Beyond this, all sessions count as one.
const COUNTED_MAX: usize = 1024;
/// How much of a refused request's body is read, and for how long: enough to recognise it.
const SKIMMED_BYTES_MAX: usize = 64 * 1024;
const SKIM_MAX: Duration = Duration::from_secs(1);

/// Why a request was refused; an extension of the answer that says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reason(pub(super) &'static str);

/// Marks an answer as a refusal that is to be kept.
pub(super) fn because(reason: &'static str, mut response: Response) -> Response {
    response.extensions_mut().insert(Reason(reason));
    response
}

/// A body may come as slowly as this: its time is longer the more of it is there.
const BODY_BYTES_PER_SEC: u64 = 64 * 1024;

/// How long a body waits for room.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(1);

/// How a body came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// It is all there.
    Whole,
    /// It is longer than it may be.
    TooLong,
    /// Its client left.
    CutOff,
    /// Its client dawdles.
    TooSlow,
    /// There is no room for more of it.
    Full(Full),
}

/// The room for a body that is being read, and how long that may take.
pub(super) struct BodyAllowance {
    pub(super) room: Charge,
    pub(super) timeout: Duration,
}

/// What was read of a request's body.
#[derive(Debug, Default)]
pub(super) struct ReadBody {
    /// The room it takes.
    room: Option<Charge>,
    bytes: Bytes,
    /// How long it is; unknown where it was not read to its end and does not say.
    length: Option<u64>,
}

impl ReadBody {
    /// Reads a body up to a limit, taking room as it grows; returns how it ended.
    pub(super) async fn read(
        headers: &HeaderMap,
        mut body: Body,
        limit: usize,
        reading: BodyAllowance,
    ) -> (Self, BodyEnd) {
        let BodyAllowance { mut room, timeout } = reading;
        let stated = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        let (mut read, mut rest) = (Vec::new(), None);
        let begun = tokio::time::Instant::now();
        let end = loop {
            // Time is earned by bytes: sending one now and then does not extend it.
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
            let fits = limit - read.len();
            let wanted = read.len() + data.len().min(fits);
            if let Err(full) = room.resize_within(wanted, ROOM_WAIT_MAX).await {
                rest = Some(data.len());
                // Who is cut off in the middle of sending may never see the answer.
                let drained = async { while body.frame().await.is_some_and(|frame| frame.is_ok()) {} };
                let _ = tokio::time::timeout(SKIM_MAX, drained).await;
                break BodyEnd::Full(full);
            }
            if data.len() > fits {
                read.extend_from_slice(&data[..fits]);
                rest = Some(data.len() - fits);
                break BodyEnd::TooLong;
            }
            // The usual body comes in one piece, and is not copied.
            if read.is_empty() && stated == Some(data.len() as u64) {
                // What is read becomes a call, which is counted by itself.
                room.leave_account();
                return (Self { length: stated, bytes: data, room: Some(room) }, BodyEnd::Whole);
            }
            if read.capacity() - read.len() < data.len() {
                // By a part of what is there, not to twice of it.
                read.reserve_exact(data.len().max(read.len() / 4));
            }
            read.extend_from_slice(&data);
        };
        let known = (read.len() + rest.unwrap_or(0)) as u64;
        let is_whole = end == BodyEnd::Whole;
        room.leave_account();
        let length = if is_whole { Some(known) } else { stated.filter(|stated| *stated >= known) };
        (Self { bytes: read.into(), length, room: Some(room) }, end)
    }

    /// Reads the beginning of a body that nobody wants.
    pub(super) async fn skim(headers: &HeaderMap, body: Body, room: Charge) -> Self {
        Self::read(headers, body, SKIMMED_BYTES_MAX, BodyAllowance { room, timeout: SKIM_MAX }).await.0
    }

    /// Gives back what was read, when it is needed no more.
    pub(super) fn forget(&mut self) {
        (self.bytes, self.room) = (Bytes::new(), None);
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

/// What the front turned away, on its way to tapes.
#[derive(Debug)]
pub(super) struct Refusals {
    tape: Arc<Mutex<Recording>>,
    counted: Mutex<HashMap<(String, &'static str), CountedRefusal>>,
}

/// How often one reason was given since it was written last.
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

    /// Takes note of a refusal.
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
        let one = counted.entry(key).or_insert_with(|| CountedRefusal {
            session,
            note: Value::Null,
            count: 0,
            next: now,
            pause: PAUSE_MIN,
        });
        one.count += 1;
        if one.count == 1 {
            // Hashing is not free either: the first of those that are counted stands for all.
            let mut note = seen.facts();
            note["event"] = json!("refused");
            note["reason"] = json!(reason);
            note["status"] = json!(status.as_u16());
            note["http_method"] = json!(method.as_str());
            one.note = note;
        }
        if now >= one.next {
            self.write(gateway, one, now);
        }
    }

    fn write(&self, gateway: &Gateway, one: &mut CountedRefusal, now: Instant) {
        let mut note = one.note.take();
        if one.count > 1 {
            note["count"] = json!(one.count);
        }
        one.pause = if one.count > 1 { (one.pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
        (one.count, one.next) = (0, now + one.pause);
        match one.session.as_ref().filter(|session| gateway.session(&session.id).is_some()) {
            Some(session) => session.record_turned_away(&note),
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

    /// Writes what has been counted for long enough, and forgets what is over.
    pub(super) fn flush(&self, gateway: &Gateway) {
        let now = clock::now().instant;
        lock(&self.counted).retain(|_, one| {
            let due = now >= one.next;
            if due && one.count > 0 {
                self.write(gateway, one, now);
                return true;
            }
            !due
        });
    }

    /// Writes everything that was counted, and ends the tape.
    pub(super) fn end(&self, gateway: &Gateway, reason: &str) {
        let now = clock::now().instant;
        for (_, mut one) in lock(&self.counted).drain() {
            if one.count > 0 {
                self.write(gateway, &mut one, now);
            }
        }
        seal(&self.tape, gateway.new_tape(NewTape::late()), reason);
    }
}
