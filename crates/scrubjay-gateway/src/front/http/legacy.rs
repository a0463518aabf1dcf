//! The legacy era on HTTP: sessions, a standing stream, and streams that can be resumed.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use scrubjay_core::protocol::{code, header, method, version};
use tokio::sync::mpsc;

use super::body::{Response, json_line};
use super::headers::text;
use super::refused::because;
use super::{Front, Next, Refusal, accepted, json_error, no_such_session, plain, retry_later, stream};
use crate::client_message::ClientMessage;
use crate::delivery::Outgoing;
use crate::gateway::{Accepted, Request};
use crate::session::{OUTBOX_MAX, Session};

/// How long an answer may take and still be plain JSON; a longer one is sent on a stream, which can be resumed.
const STREAM_AFTER: Duration = Duration::from_millis(200);
/// The first protocol version whose clients accept events without data: no later legacy version will come.
const FIRST_WITH_PRIMING: &str = version::LEGACY_NEWEST;

/// A request to answer.
pub(super) struct LegacyRequest {
    session: Arc<Session>,
    request: Box<Request>,
    lines: mpsc::Receiver<Outgoing>,
    /// Whether it is `initialize`, which opens the session.
    opens: bool,
}

/// Accepts a message.
pub(super) fn accept(front: &Front, headers: &HeaderMap, message: &ClientMessage) -> Next {
    let id = message.id();
    if let Some(version) = text(headers, header::PROTOCOL_VERSION)
        && !version::LEGACY.contains(&version)
        && !front.gateway.is_transparent()
    {
        let why = format!("unsupported protocol version: {version}");
        let refused = json_error(StatusCode::BAD_REQUEST, id, code::INVALID_REQUEST, &why);
        return Next::Done(because("unsupported version", refused));
    }
    let opens = message.method() == Some(method::INITIALIZE);
    let session = match session(front, headers, opens) {
        Ok(session) => session,
        Err(refused) => return Next::Done(*refused),
    };
    let (outbox, lines) = mpsc::channel(OUTBOX_MAX);
    let response = match front.gateway.accept_message(&session, message, &outbox) {
        Accepted::NoReply => accepted(),
        Accepted::Refused(line) => {
            // 200 for an error: legacy clients ignore the body of any other status, and would miss the error in it.
            let status = if message.id().is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            // Recorded like any other answer.
            json_line(status, session.record_refusal(line))
        }
        Accepted::Full(line) => {
            let refused = json_line(StatusCode::OK, session.record_refusal(line));
            if message.id().is_some() { refused } else { retry_later(refused) }
        }
        Accepted::Request(request) => return Next::Legacy(LegacyRequest { session, request, lines, opens }),
    };
    Next::Done(if opens { opened(front, &session, response) } else { response })
}

/// Adds the session's id to the response, or ends the session if `initialize` was refused.
fn opened(front: &Front, session: &Arc<Session>, mut response: Response) -> Response {
    if front.gateway.refused_to_open(session) {
        front.close_behind_answer(session, "initialize was refused");
    } else if let Ok(value) = HeaderValue::from_str(&session.id) {
        response.headers_mut().insert(header::SESSION_ID, value);
    }
    response
}

/// Answers a request.
pub(super) async fn answer(front: &Arc<Front>, request: LegacyRequest) -> Response {
    let LegacyRequest { session, request, lines, opens } = request;
    let response = answer_on_stream(front, &session, request, lines).await;
    if opens { opened(front, &session, response) } else { response }
}

/// Returns the session that a request names, or a new one for `initialize`.
fn session(front: &Front, headers: &HeaderMap, opens: bool) -> Result<Arc<Session>, Refusal> {
    if opens {
        return front.open_session(headers);
    }
    let Some(id) = text(headers, header::SESSION_ID) else {
        let why = "Mcp-Session-Id is required: open a session with initialize";
        return Err(Box::new(because("no session", plain(StatusCode::BAD_REQUEST, why))));
    };
    // The client of an inferred session does not know its id.
    let own = |session: &Arc<Session>| !session.is_inferred && front.is_open_to(session, headers);
    let session = front.gateway.session(id).filter(own).ok_or_else(|| Box::new(no_such_session()))?;
    session.touch();
    Ok(session)
}

/// Answers with JSON if nothing comes before the answer, and otherwise with a stream that can be resumed.
async fn answer_on_stream(
    front: &Arc<Front>,
    session: &Arc<Session>,
    request: Box<Request>,
    mut lines: mpsc::Receiver<Outgoing>,
) -> Response {
    let gateway = front.gateway.clone();
    // In a task of its own: in this era a lost connection does not cancel the request.
    let mut answering = tokio::spawn(async move { gateway.answer_outgoing(request).await });
    // Biased here and below: lines that were sent before the answer come before it.
    let first = tokio::select! {
        biased;
        Some(line) = lines.recv() => Some(line),
        answered = &mut answering => {
            return match answered.ok().flatten() {
                Some(line) => json_line(StatusCode::OK, line),
                None => accepted(),
            };
        }
        () = tokio::time::sleep(STREAM_AFTER) => None,
    };
    let log = front.streams.begin(&session.id);
    if session.facts().version.as_str() >= FIRST_WITH_PRIMING {
        log.push_now(Outgoing::unrecorded(stream::PRIMING.to_owned()));
    }
    if let Some(first) = first {
        log.push_now(first);
    }
    let log_to_fill = log.clone();
    tokio::spawn(async move {
        let last = loop {
            tokio::select! {
                biased;
                Some(line) = lines.recv() => log_to_fill.push(line).await,
                answered = &mut answering => break answered.ok().flatten(),
            }
        };
        // Those that were sent just before the answer may still be in the queue.
        while let Ok(line) = lines.try_recv() {
            log_to_fill.push(line).await;
        }
        if let Some(line) = last {
            log_to_fill.push(line).await;
        }
        log_to_fill.end();
    });
    stream::events(log, 0)
}

/// Opens the standing stream, or resumes a broken stream.
pub(super) fn get(front: &Arc<Front>, headers: &HeaderMap) -> Response {
    if !text(headers, "accept").is_some_and(|a| a.contains("text/event-stream") || a.contains("*/*")) {
        let refused = plain(StatusCode::NOT_ACCEPTABLE, "Accept must name text/event-stream");
        return because("wrong accept", refused);
    }
    let session = match session(front, headers, false) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    if let Some(event) = text(headers, header::LAST_EVENT_ID) {
        return match front.streams.after(&session.id, event) {
            // 405 tells a client to stop; after an empty stream it would reconnect again and again.
            Some((log, from)) if log.is_over(from) => {
                plain(StatusCode::METHOD_NOT_ALLOWED, "that stream has ended")
            }
            Some((log, from)) => stream::events(log, from),
            None => plain(StatusCode::NOT_FOUND, "that event is too old, or not of this session"),
        };
    }
    let (outbox, mut lines) = mpsc::channel(OUTBOX_MAX);
    let log = front.streams.begin_standing(&session.id);
    for queued in session.attach(outbox) {
        log.push_now(queued);
    }
    let log_to_fill = log.clone();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            log_to_fill.push(line).await;
        }
        log_to_fill.end();
    });
    stream::events(log, 0)
}

/// Ends a session.
pub(super) fn delete(front: &Front, headers: &HeaderMap) -> Response {
    match session(front, headers, false) {
        Ok(session) => {
            front.close_session(&session.id, "the client ended the session");
            plain(StatusCode::OK, "the session is closed")
        }
        Err(refused) => *refused,
    }
}
