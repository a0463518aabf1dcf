//! The modern era on HTTP: every request stands alone, and leaving calls it off.
//!
//! There is no session on the wire; for the recording one is inferred (`conversations.rs`).

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use scrubjay_core::message::{self, Parts};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::body::json_line;
use super::conversations::Sender;
use super::headers::{check_mirrored, check_modern};
use super::tcp::Tcp;
use super::{Front, Refusal, accepted, stream, too_many_sessions};
use crate::delivery::Outgoing;
use crate::gateway::{Accepted, code};
use crate::session::OUTBOX_MAX;

pub(super) async fn post(
    front: &Arc<Front>,
    tcp: &Tcp,
    headers: &HeaderMap,
    parts: &Parts<'_>,
    line: &str,
) -> Response {
    if let Err(refused) = check(front, headers, parts) {
        return *refused;
    }
    let Some(session) = front.conversation(tcp, &Sender::of(headers, parts)).await else {
        return too_many_sessions();
    };
    session.touch();
    let (outbox, lines) = mpsc::channel(OUTBOX_MAX);
    match front.gateway.accept(&session, line, &outbox) {
        Accepted::Told => accepted(),
        Accepted::Refused(line) => {
            // A refusal is an answer: it is recorded as one.
            json_line(StatusCode::BAD_REQUEST, session.record_refusal(line))
        }
        Accepted::Request(request) => {
            drop(outbox);
            let gateway = front.gateway.clone();
            let task = tokio::spawn(async move { gateway.answer_outgoing(request).await });
            answer(Answering { task }, lines).await
        }
    }
}

fn check(front: &Front, headers: &HeaderMap, parts: &Parts<'_>) -> Result<(), Refusal> {
    // A program sees no headers, so that they agree with the body is for us to see to. Which versions it speaks is its
    // own word.
    check_modern(headers, parts, front.gateway.is_transparent())?;
    if parts.method.as_deref() == Some("tools/call") {
        let mirrored = front.gateway.mirrored(&message::string(parts.param("name")).unwrap_or_default());
        check_mirrored(headers, parts, &mirrored)?;
    }
    Ok(())
}

/// A request under way; dropped with its connection, it is called off.
struct Answering {
    task: JoinHandle<Option<Outgoing>>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut answering: Answering, mut lines: mpsc::Receiver<Outgoing>) -> Response {
    let first = tokio::select! {
        biased;
        Some(line) = lines.recv() => line,
        answered = &mut answering.task => {
            return match answered.ok().flatten() {
                Some(line) => json_line(status_of(line.text()), line),
                None => accepted(),
            };
        }
    };
    let state = (Some(answering), lines, Some(first));
    let events = futures_util::stream::unfold(state, |(answering, mut lines, first)| async move {
        let mut answering = answering?;
        if let Some(first) = first {
            return Some((event(first), (Some(answering), lines, None)));
        }
        tokio::select! {
            biased;
            Some(line) = lines.recv() => Some((event(line), (Some(answering), lines, None))),
            answered = &mut answering.task => {
                let mut text = String::new();
                while let Ok(line) = lines.try_recv() {
                    text += &format!("data: {}\n\n", line.deliver());
                }
                if let Some(line) = answered.ok().flatten() {
                    text += &format!("data: {}\n\n", line.deliver());
                }
                Some((Ok(text), (None, lines, None)))
            }
        }
    });
    stream::event_stream(Body::from_stream(events))
}

/// Makes an event of a line that is polled out with it.
fn event(line: Outgoing) -> Result<String, std::convert::Infallible> {
    Ok(format!("data: {}\n\n", line.deliver()))
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
