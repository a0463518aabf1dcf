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
use tokio::sync::Notify;

use crate::session::lock;

/// How many lines a log keeps.
const LINES_MAX: usize = 1024;
/// How many logs a session keeps.
const LOGS_MAX: usize = 64;

/// A stream of lines, with what was said on it lately.
#[derive(Debug, Default)]
pub(super) struct Log {
    number: u64,
    said: Mutex<Said>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Said {
    lines: VecDeque<String>,
    /// The number of the first line kept.
    first: u64,
    ended: bool,
}

impl Log {
    pub(super) fn push(&self, line: String) {
        let mut said = lock(&self.said);
        if said.lines.len() == LINES_MAX {
            said.lines.pop_front();
            said.first += 1;
        }
        said.lines.push_back(line);
        drop(said);
        self.news.notify_waiters();
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

    /// Returns the lines from a place on, waiting for some; none when the stream has ended.
    async fn next(&self, from: u64) -> Option<(u64, Vec<String>)> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Enabled before looking: what is said in between is not missed.
            news.as_mut().enable();
            {
                let said = lock(&self.said);
                let from = from.max(said.first);
                let skip = usize::try_from(from - said.first).unwrap_or(usize::MAX);
                let lines: Vec<String> = said.lines.iter().skip(skip).cloned().collect();
                if !lines.is_empty() {
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
        if logs.len() == LOGS_MAX {
            logs.pop_front();
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

/// Answers with the events of a log from a place on.
pub(super) fn events(log: Arc<Log>, from: u64) -> Response {
    let stream = futures_util::stream::unfold((log, from), |(log, from)| async move {
        let (first, lines) = log.next(from).await?;
        let mut text = String::new();
        let mut number = first;
        for line in lines {
            text += &format!("id: {}-{number}\ndata: {line}\n\n", log.number);
            number += 1;
        }
        Some((Ok::<_, std::convert::Infallible>(text), (log, number)))
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
