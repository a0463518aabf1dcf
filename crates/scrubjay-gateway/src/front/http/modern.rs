//! The modern era on HTTP: every request stands alone, and leaving calls it off.
//!
//! There is no session on the wire. For the recording one is inferred from who the client seems to be: its
//! token, its name, its trace; a pause ends it. How it was inferred is kept on the tape.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scrubjay_core::message::{self, Parts};
use serde_json::json as json_value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::headers::{check_mirrored, check_modern};
use super::{Front, accepted, json, plain, stream};
use crate::gateway::{Accepted, code};
use crate::session::{OUTBOX_MAX, Session, lock};

pub(super) async fn post(front: &Arc<Front>, headers: &HeaderMap, parts: &Parts<'_>, line: &str) -> Response {
    if let Err(refused) = check_modern(headers, parts) {
        return *refused;
    }
    if parts.method.as_deref() == Some("tools/call") {
        let mirrored = front.gateway.mirrored(&message::string(parts.param("name")).unwrap_or_default());
        if let Err(refused) = check_mirrored(headers, parts, &mirrored) {
            return *refused;
        }
    }
    let Some(session) = logical_session(front, headers, parts) else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open");
    };
    session.touch();
    let (outbox, lines) = mpsc::channel(OUTBOX_MAX);
    match front.gateway.accept(&session, line, &outbox) {
        Accepted::Told => accepted(),
        Accepted::Refused(line) => {
            if let Err(e) = session.record(scrubjay_core::entry::Direction::ServerToClient, &line) {
                tracing::error!(error = %e, "a refusal could not be recorded");
            }
            json(StatusCode::BAD_REQUEST, line)
        }
        Accepted::Request(request) => {
            drop(outbox);
            let gateway = front.gateway.clone();
            let task = tokio::spawn(async move { gateway.answer(request).await });
            answer(Answering { task }, lines).await
        }
    }
}

/// A request under way; dropped with its connection, it is called off.
struct Answering {
    task: JoinHandle<Option<String>>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut answering: Answering, mut lines: mpsc::Receiver<String>) -> Response {
    let first = tokio::select! {
        biased;
        Some(line) = lines.recv() => line,
        answered = &mut answering.task => {
            return match answered.ok().flatten() {
                Some(line) => json(status_of(&line), line),
                None => accepted(),
            };
        }
    };
    let state = (Some(answering), lines, Some(first));
    let events = futures_util::stream::unfold(state, |(answering, mut lines, first)| async move {
        let mut answering = answering?;
        if let Some(first) = first {
            return Some((event(&first), (Some(answering), lines, None)));
        }
        tokio::select! {
            biased;
            Some(line) = lines.recv() => Some((event(&line), (Some(answering), lines, None))),
            answered = &mut answering.task => {
                let mut text = String::new();
                while let Ok(line) = lines.try_recv() {
                    text += &format!("data: {line}\n\n");
                }
                if let Some(line) = answered.ok().flatten() {
                    text += &format!("data: {line}\n\n");
                }
                Some((Ok(text), (None, lines, None)))
            }
        }
    });
    stream::event_stream(Body::from_stream(events))
}

fn event(line: &str) -> Result<String, std::convert::Infallible> {
    Ok(format!("data: {line}\n\n"))
}

/// Returns the status that goes with an answer.
fn status_of(line: &str) -> StatusCode {
    // Errors are short; a long answer is a result, and not looked into.
    if line.len() > 64 * 1024 || !line.contains("\"error\"") {
        return StatusCode::OK;
    }
    let error = Parts::of(line).ok().and_then(|p| p.error);
    match message::member(error, "code").and_then(|c: &RawValue| c.get().parse::<i64>().ok()) {
        Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(-32022..=-32020) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// Returns the session a modern request seems to belong to.
fn logical_session(front: &Front, headers: &HeaderMap, parts: &Parts<'_>) -> Option<Arc<Session>> {
    let principal = headers.get("authorization").map(|v| blake3::hash(v.as_bytes()).to_hex().to_string());
    let client = parts.meta("io.modelcontextprotocol/clientInfo").map(RawValue::get).unwrap_or_default();
    let trace = message::string(parts.meta("traceparent"));
    // A trace names one conversation; its second field is the trace's id.
    let trace = trace.as_deref().and_then(|t| t.split('-').nth(1)).unwrap_or_default();
    let key = format!("{}|{client}|{trace}", principal.as_deref().unwrap_or_default());
    let mut logical = lock(&front.logical);
    if let Some(session) = logical.get(&key).and_then(|id| front.gateway.session(id)) {
        return Some(session);
    }
    if front.gateway.session_count() >= front.config.sessions_max {
        return None;
    }
    let identity = blake3::hash(format!("{}|{client}", principal.as_deref().unwrap_or_default()).as_bytes());
    let session = front.gateway.open_inferred_session("http", identity.to_hex().as_str());
    let certainty = match (trace.is_empty(), principal.is_some()) {
        (false, _) => "by its trace",
        (true, true) => "by its token and name",
        (true, false) => "by its name alone",
    };
    session.record_note(&json_value!({ "event": "session_inferred", "how": certainty }));
    logical.insert(key, session.id.clone());
    Some(session)
}
