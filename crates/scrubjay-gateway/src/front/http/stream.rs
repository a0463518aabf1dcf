//! Event streams that outlive their connection: each is a log of lines, read from any place on.
//!
//! A legacy client whose connection broke comes back with the id of the last event it saw and hears the rest.
//! Logs are bounded: what is older than that is gone.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use scrubjay_core::entry::WhyUndelivered;
use tokio::sync::Notify;

use crate::delivery::{Outgoing, Receipt};
use crate::session::lock;

/// The line of an event without data: it only gives a client an id to come back with, and says when to.
pub(super) const PRIMING: &str = "";
const RETRY: &str = "retry: 1000\n";

/// How many lines a log keeps.
const LINES_MAX: usize = 1024;
/// How many bytes a log keeps, and at least its last line.
const LOG_BYTES_MAX: usize = 1 << 20;
/// How many bytes of lines go out in one piece, and at least one line.
const CHUNK_BYTES_MAX: usize = 16 * 1024;
/// How many logs a session keeps.
const LOGS_MAX: usize = 64;
/// How many bytes all logs of a session keep, and at least the newest log.
const SESSION_BYTES_MAX: usize = 8 << 20;

/// A stream of lines, with what was said on it lately.
#[derive(Debug, Default)]
pub(super) struct Log {
    number: u64,
    said: Mutex<Said>,
    news: Notify,
    /// Told when lines were read, or whoever read them left.
    room: Notify,
}

/// A line of a log: its receipt is here until somebody reads it for the first time.
#[derive(Debug)]
struct LogLine {
    text: String,
    receipt: Option<Receipt>,
}

#[derive(Debug, Default)]
struct Said {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// The number of the first line kept.
    first: u64,
    /// The number of the first line nobody has read.
    unread: u64,
    readers: usize,
    ended: bool,
}

impl Said {
    fn is_full(&self) -> bool {
        self.lines.len() > LINES_MAX || (self.bytes > LOG_BYTES_MAX && self.lines.len() > 1)
    }

    /// Forgets the oldest lines, but none that somebody is about to read; returns whether that was enough.
    fn make_room(&mut self) -> bool {
        while self.is_full() && (self.first < self.unread || self.readers == 0) {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.first += 1;
            if let Some(receipt) = oldest.receipt {
                receipt.undelivered(WhyUndelivered::DroppedByLimit);
            }
        }
        !self.is_full()
    }
}

impl Log {
    /// Adds a line; waits for whoever reads, where there is somebody.
    pub(super) async fn push(&self, line: Outgoing) {
        self.push_now(line);
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Enabled before looking, as below.
            room.as_mut().enable();
            if lock(&self.said).make_room() {
                return;
            }
            room.await;
        }
    }

    /// Adds a line.
    pub(super) fn push_now(&self, line: Outgoing) {
        let (text, receipt) = line.into_parts();
        let mut said = lock(&self.said);
        said.bytes += text.len();
        said.lines.push_back(LogLine { text, receipt });
        drop(said);
        self.news.notify_waiters();
    }

    fn bytes(&self) -> usize {
        lock(&self.said).bytes
    }

    pub(super) fn end(&self) {
        lock(&self.said).ended = true;
        self.news.notify_waiters();
    }

    /// Returns whether the stream has ended and nothing follows a place.
    pub(super) fn is_over(&self, from: u64) -> bool {
        let said = lock(&self.said);
        said.ended && from >= said.first + said.lines.len() as u64
    }

    /// Returns lines from a place on, waiting for some; none when the stream has ended. They count as delivered.
    async fn next(&self, from: u64) -> Option<(u64, Vec<String>)> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Enabled before looking: what is said in between is not missed.
            news.as_mut().enable();
            {
                let mut said = lock(&self.said);
                let from = from.max(said.first);
                let skip = usize::try_from(from - said.first).unwrap_or(usize::MAX);
                let mut lines = Vec::new();
                let mut bytes = 0;
                // No more at once than is soon written: what waits here is not yet delivered.
                for line in said.lines.iter_mut().skip(skip) {
                    if bytes > CHUNK_BYTES_MAX {
                        break;
                    }
                    bytes += line.text.len();
                    line.receipt.take().into_iter().for_each(Receipt::delivered);
                    lines.push(line.text.clone());
                }
                if !lines.is_empty() {
                    said.unread = said.unread.max(from + lines.len() as u64);
                    drop(said);
                    self.room.notify_waiters();
                    return Some((from, lines));
                }
                if said.ended {
                    return None;
                }
            }
            news.await;
        }
    }
}

/// The logs of all legacy sessions.
#[derive(Debug, Default)]
pub(super) struct Streams {
    by_session: Mutex<HashMap<String, VecDeque<Arc<Log>>>>,
    next: AtomicU64,
}

impl Streams {
    /// Begins a log.
    pub(super) fn begin(&self, session: &str) -> Arc<Log> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let log = Arc::new(Log { number, ..Log::default() });
        let mut all = lock(&self.by_session);
        let logs = all.entry(session.to_owned()).or_default();
        let mut kept: usize = logs.iter().map(|log| log.bytes()).sum();
        // Whoever reads one of them goes on; it cannot be taken up again.
        while logs.len() >= LOGS_MAX || kept > SESSION_BYTES_MAX {
            kept -= logs.pop_front().map_or(kept, |oldest| oldest.bytes().min(kept));
        }
        logs.push_back(log.clone());
        log
    }

    /// Finds the log and the place after an event.
    pub(super) fn after(&self, session: &str, event: &str) -> Option<(Arc<Log>, u64)> {
        let (number, line) = event.split_once('-')?;
        let (number, line) = (number.parse::<u64>().ok()?, line.parse::<u64>().ok()?);
        let all = lock(&self.by_session);
        let log = all.get(session)?.iter().find(|log| log.number == number)?.clone();
        Some((log, line + 1))
    }

    /// Ends and forgets the logs of sessions that are over.
    pub(super) fn keep_only(&self, is_open: impl Fn(&str) -> bool) {
        let over: Vec<String> = lock(&self.by_session).keys().filter(|s| !is_open(s)).cloned().collect();
        for session in over {
            self.forget(&session);
        }
    }

    /// Ends and forgets the logs of a session.
    pub(super) fn forget(&self, session: &str) {
        for log in lock(&self.by_session).remove(session).into_iter().flatten() {
            log.end();
        }
    }
}

/// Somebody who reads a log.
struct Reader {
    log: Arc<Log>,
}

impl Reader {
    fn new(log: Arc<Log>) -> Self {
        lock(&log.said).readers += 1;
        Self { log }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        lock(&self.log.said).readers -= 1;
        self.log.room.notify_waiters();
    }
}

/// Answers with the events of a log from a place on.
pub(super) fn events(log: Arc<Log>, from: u64) -> Response {
    let stream = futures_util::stream::unfold((Reader::new(log), from), |(reader, from)| async move {
        let log = &reader.log;
        let (first, lines) = log.next(from).await?;
        let mut text = String::new();
        let mut number = first;
        for line in lines {
            let retry = if line == PRIMING { RETRY } else { "" };
            text += &format!("id: {}-{number}\n{retry}data: {line}\n\n", log.number);
            number += 1;
        }
        Some((Ok::<_, std::convert::Infallible>(text), (reader, number)))
    });
    event_stream(Body::from_stream(stream))
}

/// Answers with a body of events.
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

    fn line(text: String) -> Outgoing {
        Outgoing::unrecorded(text)
    }

    #[tokio::test]
    async fn a_log_nobody_reads_keeps_so_many_lines_and_bytes() {
        let log = Log::default();
        for number in 0..LINES_MAX + 10 {
            log.push(line(number.to_string())).await;
        }
        assert_eq!(log.next(0).await.map(|(first, lines)| (first, lines.len())), Some((10, LINES_MAX)));
        log.push(line("x".repeat(LOG_BYTES_MAX * 2))).await;
        log.push(line("y".to_owned())).await;
        assert_eq!(log.next(0).await.map(|(_, lines)| lines), Some(vec!["y".to_owned()]));
        assert_eq!(log.bytes(), 1);
    }

    #[tokio::test]
    async fn nothing_is_lost_on_whoever_reads() {
        let log = Arc::new(Log::default());
        let reader = Reader::new(log.clone());
        log.push(line("small".to_owned())).await;
        let fed = log.clone();
        let feeding = tokio::spawn(async move { fed.push(line("x".repeat(LOG_BYTES_MAX))).await });
        while log.bytes() <= LOG_BYTES_MAX {
            tokio::task::yield_now().await;
        }
        assert!(!feeding.is_finished(), "it waits for the reader");
        assert_eq!(log.next(0).await.map(|(first, lines)| (first, lines.len())), Some((0, 2)));
        feeding.await.expect("it has room");
        // Who leaves is waited for no more.
        log.push(line("small".to_owned())).await;
        let fed = log.clone();
        let feeding = tokio::spawn(async move { fed.push(line("x".repeat(LOG_BYTES_MAX))).await });
        drop(reader);
        feeding.await.expect("nobody reads");
        assert!(log.bytes() <= LOG_BYTES_MAX);
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
        assert!(kept <= SESSION_BYTES_MAX + LOG_BYTES_MAX, "{kept}");
    }
}
