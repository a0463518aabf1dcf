//! The modern era on HTTP: every request stands alone, and disconnecting cancels it.
//!
//! Requests name no session; one is inferred for the recording (`conversations.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use scrubjay_core::message::{self, Parts};
use scrubjay_core::protocol::{code, method};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::body::{Body, BodyChunk, Response, json_line};
use super::conversations::Sender;
use super::headers::{check_mirrored, check_modern};
use super::tcp::Tcp;
use super::{Front, Next, Refusal, accepted, retry_later, stream, too_many_sessions};
use crate::client_message::{ClientMessage, text_in};
use crate::delivery::Outgoing;
use crate::gateway::{Accepted, Request};
use crate::session::OUTBOX_MAX;

/// A request to answer.
pub(super) struct ModernRequest {
    request: Box<Request>,
    lines: mpsc::Receiver<Outgoing>,
}

/// Accepts a message.
pub(super) async fn accept(
    front: &Arc<Front>,
    tcp: &Tcp,
    headers: &HeaderMap,
    message: &ClientMessage,
) -> Next {
    if let Err(refused) = check(front, headers, message) {
        return Next::Done(*refused);
    }
    let Some(session) = front.conversation(tcp, &Sender::of(&front.config, headers, message)).await else {
        return Next::Done(too_many_sessions());
    };
    session.touch();
    // A queue of its own: in this era what belongs to a request goes on that request's stream alone.
    let (outbox, lines) = mpsc::channel(OUTBOX_MAX);
    Next::Done(match front.gateway.accept_message(&session, message, &outbox) {
        Accepted::NoReply => accepted(),
        Accepted::Refused(line) => {
            // Recorded like any other answer.
            json_line(StatusCode::BAD_REQUEST, session.record_refusal(line))
        }
        Accepted::Full(line) => {
            retry_later(json_line(StatusCode::SERVICE_UNAVAILABLE, session.record_refusal(line)))
        }
        Accepted::Request(request) => return Next::Modern(ModernRequest { request, lines }),
    })
}

/// Answers a request.
pub(super) async fn answer(front: &Arc<Front>, request: ModernRequest) -> Response {
    let ModernRequest { request, lines } = request;
    let gateway = front.gateway.clone();
    // In a task: while the stream waits for its client, the answer is still worked on.
    let task = tokio::spawn(async move { gateway.answer_outgoing(request).await });
    answer_on_stream(Answering { task }, lines).await
}

fn check(front: &Front, headers: &HeaderMap, message: &ClientMessage) -> Result<(), Refusal> {
    // A server on pipes sees no headers, so we check that they agree with the body. Behind a transparent gateway the
    // server decides which versions it accepts.
    check_modern(headers, message, front.gateway.is_transparent())?;
    if message.method() == Some(method::TOOLS_CALL) {
        let mirrored = front.gateway.mirrored(&text_in(message.param("name")).unwrap_or_default());
        check_mirrored(headers, message, &mirrored)?;
    }
    Ok(())
}

/// A request under way. hyper drops it with its connection, which cancels the request.
struct Answering {
    task: JoinHandle<Option<Outgoing>>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer_on_stream(mut answering: Answering, mut lines: mpsc::Receiver<Outgoing>) -> Response {
    // Biased here and below: lines that were sent before the answer come before it.
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
    let ready = VecDeque::from([first]);
    let state = (Some(answering), lines, ready);
    let events = futures_util::stream::unfold(state, |(mut answering, mut lines, mut ready)| async move {
        if let Some(line) = ready.pop_front() {
            return Some((event(line), (answering, lines, ready)));
        }
        let mut request = answering.take()?;
        tokio::select! {
            biased;
            Some(line) = lines.recv() => Some((event(line), (Some(request), lines, ready))),
            answered = &mut request.task => {
                // Those that were sent just before the answer may still be in the queue.
                while let Ok(line) = lines.try_recv() {
                    ready.push_back(line);
                }
                ready.extend(answered.ok().flatten());
                let line = ready.pop_front()?;
                Some((event(line), (None, lines, ready)))
            }
        }
    });
    stream::event_stream(Body::parts(events))
}

/// Makes a server-sent event of a line.
fn event(line: Outgoing) -> std::io::Result<BodyChunk> {
    Ok(BodyChunk::of_line(line, "data: ", "\n\n"))
}

/// Returns the HTTP status of an answer.
fn status_of(line: &str) -> StatusCode {
    // Errors are short; a longer answer is a result, and parsing it would only cost time.
    if line.len() > 64 * 1024 || !line.contains("\"error\"") {
        return StatusCode::OK;
    }
    let error = Parts::of(line).ok().and_then(|p| p.error);
    match message::member(error, "code").and_then(|c: &RawValue| c.get().parse::<i64>().ok()) {
        Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code::UNSUPPORTED_VERSION..=code::HEADER_MISMATCH) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}
