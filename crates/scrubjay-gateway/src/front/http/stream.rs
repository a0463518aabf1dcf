//! Event streams that outlive their connection: each is a log of lines, which can be read from any event on.
//!
//! A legacy client whose connection broke comes back with the id of its last event and gets those after it. Logs are
//! bounded: older events are dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use scrubjay_core::entry::WhyUndelivered;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::body::{Body, BodyChunk, Response};
use crate::budget::SharedCharge;
use crate::delivery::{Outgoing, Receipt};
use crate::session::lock;

/// The line of an event without data, which gives a client an id to resume from, and says after what time to reconnect.
pub(super) const PRIMING: &str = "";
const RETRY: &str = "retry: 1000\n";

/// How many lines a log keeps for a client that resumes.
const LINES_MAX: usize = 1024;
/// How many bytes a log keeps; it always keeps its last line.
const LOG_BYTES_MAX: usize = 1 << 20;
/// How many logs a session keeps.
const LOGS_MAX: usize = 64;
/// How many bytes all logs of a session keep; the newest log is always kept.
const SESSION_BYTES_MAX: usize = 8 << 20;

/// A stream of lines, with the latest of them.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    number: u64,
    /// Whether it is the standing stream, for what belongs to no request.
    is_standing: bool,
    state: Mutex<EventLogState>,
    changed: Notify,
    /// Notified when lines were written to a reader, or a reader left.
    drained: Notify,
}

/// A line of a log. It has its receipt until it is written to a reader for the first time.
#[derive(Debug)]
struct EventLogLine {
    /// The event. Its memory is charged until it is dropped here and written to its readers.
    event: Bytes,
    receipt: Option<Receipt>,
    charge: SharedCharge,
}

#[derive(Debug, Default)]
struct EventLogState {
    lines: VecDeque<EventLogLine>,
    bytes: usize,
    /// The number of the first line that is kept.
    first: u64,
    /// The number of the first line that was not written to any reader.
    unread: u64,
    readers: usize,
    /// When the last reader left.
    left: Option<Instant>,
    ended: bool,
}

impl EventLogState {
    fn is_full(&self) -> bool {
        self.lines.len() > LINES_MAX || (self.bytes > LOG_BYTES_MAX && self.lines.len() > 1)
    }

    /// Drops the oldest lines, but none that a reader has yet to get; returns whether that was enough.
    fn make_room(&mut self) -> bool {
        while self.is_full() && (self.first < self.unread || self.readers == 0) {
            self.forget_oldest();
        }
        !self.is_full()
    }

    fn forget_oldest(&mut self) {
        let Some(oldest) = self.lines.pop_front() else { return };
        self.bytes -= oldest.event.len();
        self.first += 1;
        if let Some(receipt) = oldest.receipt {
            receipt.undelivered(WhyUndelivered::DroppedByLimit);
        }
    }

    /// Returns whether its last reader left longer ago than this.
    fn is_abandoned_for(&self, time: std::time::Duration) -> bool {
        self.readers == 0 && self.left.is_some_and(|left| left.elapsed() > time)
    }
}

impl EventLog {
    /// Adds a line; if the log is full and has a reader, waits until the reader catches up or leaves.
    pub(super) async fn push(&self, line: Outgoing) {
        self.push_now(line);
        loop {
            let drained = self.drained.notified();
            tokio::pin!(drained);
            // Before the check, as in `next`.
            drained.as_mut().enable();
            if lock(&self.state).make_room() {
                return;
            }
            drained.await;
        }
    }

    /// Adds a line at once, even if the log is full.
    pub(super) fn push_now(&self, line: Outgoing) {
        let mut state = lock(&self.state);
        let number = state.first + state.lines.len() as u64;
        let retry = if line.text() == PRIMING { RETRY } else { "" };
        let (event, receipt, charge) =
            line.into_bytes(&format!("id: {}-{number}\n{retry}data: ", self.number), "\n\n");
        state.bytes += event.len();
        state.lines.push_back(EventLogLine { event, receipt, charge });
        drop(state);
        self.changed.notify_waiters();
    }

    fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.changed.notify_waiters();
    }

    /// Returns whether the stream has ended and has no event from this number on.
    pub(super) fn is_over(&self, from: u64) -> bool {
        let state = lock(&self.state);
        state.ended && from >= state.first + state.lines.len() as u64
    }

    /// Waits for the event with this number, or the first after it; returns `None` when the stream has ended.
    async fn next(&self, from: u64) -> Option<(u64, Bytes)> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before the check, so that a line that is added in between still wakes us.
            changed.as_mut().enable();
            {
                let state = lock(&self.state);
                let from = from.max(state.first);
                let skip = usize::try_from(from - state.first).unwrap_or(usize::MAX);
                if let Some(line) = state.lines.get(skip) {
                    return Some((from, line.event.clone()));
                }
                if state.ended {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Notes that an event was written to a reader: it is delivered.
    fn was_written(&self, number: u64) {
        let mut state = lock(&self.state);
        state.unread = state.unread.max(number + 1);
        let skip = number.checked_sub(state.first).and_then(|skip| usize::try_from(skip).ok());
        let Some(line) = skip.and_then(|skip| state.lines.get_mut(skip)) else { return };
        let (receipt, charge) = (line.receipt.take(), line.charge.clone());
        drop(state);
        receipt.into_iter().for_each(Receipt::delivered);
        if let Some(charge) = charge {
            // Kept only in case the client resumes: this must not count against the session's new messages.
            lock(&charge).leave_account();
        }
        self.drained.notify_waiters();
    }
}

/// The logs of all legacy sessions.
#[derive(Debug, Default)]
pub(super) struct Streams {
    by_session: Mutex<HashMap<String, VecDeque<Arc<EventLog>>>>,
    next: AtomicU64,
}

impl Streams {
    /// Begins a log.
    pub(super) fn begin(&self, session: &str) -> Arc<EventLog> {
        self.begin_log(session, false)
    }

    /// Begins the log of a standing stream.
    pub(super) fn begin_standing(&self, session: &str) -> Arc<EventLog> {
        self.begin_log(session, true)
    }

    /// Returns the sessions whose client left its standing stream longer ago than this, and reads no other stream.
    pub(super) fn abandoned_for(&self, time: std::time::Duration) -> Vec<String> {
        let all = lock(&self.by_session);
        // A client without a standing stream may be between two requests for any time, so it is not judged by its
        // streams.
        let left = all.iter().filter(|(_, logs)| {
            logs.iter().any(|log| log.is_standing)
                && logs.iter().all(|log| {
                    let state = lock(&log.state);
                    (state.ended && state.readers == 0) || state.is_abandoned_for(time)
                })
        });
        left.map(|(session, _)| session.clone()).collect()
    }

    /// Drops the events that were read.
    pub(super) fn forget_read(&self) {
        for log in lock(&self.by_session).values().flatten() {
            let mut state = lock(&log.state);
            while state.first < state.unread && !state.lines.is_empty() {
                state.forget_oldest();
            }
        }
    }

    /// Drops the events of logs without a reader.
    pub(super) fn forget_unread(&self) {
        for log in lock(&self.by_session).values().flatten() {
            let mut state = lock(&log.state);
            while state.readers == 0 && !state.lines.is_empty() {
                state.forget_oldest();
            }
        }
    }

    /// Notes the events of logs without a reader as undelivered, when the gateway stops: no client resumes before the
    /// end.
    pub(super) fn give_up_abandoned(&self) {
        for log in lock(&self.by_session).values().flatten() {
            let mut state = lock(&log.state);
            if state.readers == 0 {
                state.lines.iter_mut().for_each(|line| drop(line.receipt.take()));
            }
        }
    }

    fn begin_log(&self, session: &str, is_standing: bool) -> Arc<EventLog> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let log = Arc::new(EventLog { number, is_standing, ..EventLog::default() });
        let mut all = lock(&self.by_session);
        let logs = all.entry(session.to_owned()).or_default();
        let mut bytes: usize = logs.iter().map(|log| log.bytes()).sum();
        // A reader that a dropped log has reads on; only resuming is no longer possible.
        while logs.len() >= LOGS_MAX || bytes > SESSION_BYTES_MAX {
            bytes -= logs.pop_front().map_or(bytes, |oldest| oldest.bytes().min(bytes));
        }
        logs.push_back(log.clone());
        log
    }

    /// Finds the log of an event, and the number of the event after it.
    pub(super) fn after(&self, session: &str, event: &str) -> Option<(Arc<EventLog>, u64)> {
        let (number, line) = event.split_once('-')?;
        let (number, line) = (number.parse::<u64>().ok()?, line.parse::<u64>().ok()?);
        let all = lock(&self.by_session);
        let log = all.get(session)?.iter().find(|log| log.number == number)?.clone();
        Some((log, line + 1))
    }

    /// Ends and drops the logs of closed sessions.
    pub(super) fn keep_only(&self, is_open: impl Fn(&str) -> bool) {
        let over: Vec<String> = lock(&self.by_session).keys().filter(|s| !is_open(s)).cloned().collect();
        for session in over {
            self.forget(&session);
        }
    }

    /// Ends and drops the logs of a session.
    pub(super) fn forget(&self, session: &str) {
        for log in lock(&self.by_session).remove(session).into_iter().flatten() {
            log.end();
        }
    }
}

/// A reader of a log. Each chunk on its way to the connection holds it, so it lives until the last one is written or
/// lost.
pub(super) struct EventReader {
    log: Arc<EventLog>,
}

impl EventReader {
    fn new(log: Arc<EventLog>) -> Self {
        lock(&log.state).readers += 1;
        Self { log }
    }

    /// Notes that an event was written.
    pub(super) fn was_written(&self, number: u64) {
        self.log.was_written(number);
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let mut state = lock(&self.log.state);
        state.readers -= 1;
        state.left = Some(Instant::now());
        drop(state);
        self.log.drained.notify_waiters();
    }
}

/// Makes a response of the events of a log, from this number on.
pub(super) fn events(log: Arc<EventLog>, from: u64) -> Response {
    let reader = Arc::new(EventReader::new(log));
    let stream = futures_util::stream::unfold((reader, from), |(reader, from)| async move {
        let (number, event) = reader.log.next(from).await?;
        Some((Ok(BodyChunk::of_log(event, reader.clone(), number)), (reader, number + 1)))
    });
    event_stream(Body::parts(stream))
}

/// Makes a response of a body of events.
pub(super) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: impl ToString) -> Outgoing {
        Outgoing::unrecorded(text.to_string())
    }

    #[tokio::test]
    async fn a_log_nobody_reads_keeps_so_many_lines_and_bytes() {
        let log = EventLog::default();
        for number in 0..LINES_MAX + 10 {
            log.push(line(number)).await;
        }
        assert_eq!(log.next(0).await, Some((10, Bytes::from("id: 0-10\ndata: 10\n\n"))));
        assert_eq!(lock(&log.state).lines.len(), LINES_MAX);
        log.push(line("x".repeat(LOG_BYTES_MAX * 2))).await;
        log.push(line("y")).await;
        let last = LINES_MAX as u64 + 11;
        assert_eq!(log.next(0).await, Some((last, format!("id: 0-{last}\ndata: y\n\n").into())));
        assert!(log.bytes() < 100);
    }

    #[tokio::test]
    async fn nothing_is_lost_on_whoever_reads() {
        let log = Arc::new(EventLog::default());
        let reader = EventReader::new(log.clone());
        log.push(line("small")).await;
        let fed = log.clone();
        let feeding = tokio::spawn(async move { fed.push(line("x".repeat(LOG_BYTES_MAX))).await });
        while log.bytes() <= LOG_BYTES_MAX {
            tokio::task::yield_now().await;
        }
        assert!(!feeding.is_finished(), "it waits for the reader");
        assert_eq!(log.next(0).await.map(|(number, _)| number), Some(0));
        assert_eq!(log.next(1).await.map(|(number, _)| number), Some(1));
        assert!(!feeding.is_finished(), "nothing is written yet");
        reader.was_written(0);
        reader.was_written(1);
        feeding.await.expect("it has room");
        // Who leaves is waited for no more.
        log.push(line("small")).await;
        let fed = log.clone();
        let feeding = tokio::spawn(async move { fed.push(line("x".repeat(LOG_BYTES_MAX))).await });
        drop(reader);
        feeding.await.expect("nobody reads");
        assert!(log.bytes() <= LOG_BYTES_MAX + 100);
    }

    #[test]
    fn a_session_keeps_so_many_bytes() {
        let streams = Streams::default();
        let first = streams.begin("s");
        for _ in 0..10 {
            streams.begin("s").push_now(line("x".repeat(LOG_BYTES_MAX)));
        }
        assert!(streams.after("s", &format!("{}-0", first.number)).is_none());
        let kept: usize = lock(&streams.by_session)["s"].iter().map(|log| log.bytes()).sum();
        assert!(kept <= SESSION_BYTES_MAX + LOG_BYTES_MAX + 1000, "{kept}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_left_when_all_its_streams_broke_off() {
        let grace = std::time::Duration::from_secs(60);
        let streams = Streams::default();
        let (standing, asked) =
            (EventReader::new(streams.begin_standing("s")), EventReader::new(streams.begin("s")));
        drop(standing);
        tokio::time::advance(grace * 2).await;
        assert!(streams.abandoned_for(grace).is_empty(), "it reads another");
        drop(asked);
        assert!(streams.abandoned_for(grace).is_empty(), "just now");
        tokio::time::advance(grace * 2).await;
        assert_eq!(streams.abandoned_for(grace), ["s"]);
        // One that never had a standing stream may be between two requests.
        drop(EventReader::new(streams.begin("t")));
        tokio::time::advance(grace * 2).await;
        assert_eq!(streams.abandoned_for(grace), ["s"]);
    }

    #[tokio::test]
    async fn what_was_read_goes_first_when_memory_is_short() {
        let streams = Streams::default();
        let log = streams.begin("s");
        let reader = EventReader::new(log.clone());
        log.push_now(line("read"));
        log.push_now(line("unread"));
        log.next(0).await.expect("an event");
        reader.was_written(0);
        streams.forget_read();
        assert_eq!(lock(&log.state).lines.len(), 1);
        streams.forget_unread();
        assert_eq!(lock(&log.state).lines.len(), 1, "somebody reads it");
        drop(reader);
        streams.forget_unread();
        assert_eq!(log.bytes(), 0);
    }
}
