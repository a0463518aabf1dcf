//! The legacy era on HTTP: sessions, a standing stream, streams that can be taken up again.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use scrubjay_core::protocol::{code, method, version};
use tokio::sync::mpsc;

use super::body::{Response, json_line};
use super::headers::{PROTOCOL_VERSION, SESSION, text};
use super::refused::because;
use super::{Front, Next, Refusal, accepted, json_error, no_such_session, plain, retry_later, stream};
use crate::client_message::ClientMessage;
use crate::delivery::Outgoing;
use crate::gateway::{Accepted, Request};
use crate::session::{OUTBOX_MAX, Session};

/// How long an answer may take and still be plain JSON.
const STREAM_AFTER: Duration = Duration::from_millis(200);
/// The first version whose clients know events without data.
const FIRST_WITH_PRIMING: &str = "2025-11-25";

/// A request that is to be answered.
pub(super) struct LegacyRequest {
    session: Arc<Session>,
    request: Box<Request>,
    lines: mpsc::Receiver<Outgoing>,
    /// Whether it opens the session.
    opens: bool,
}

/// Takes a message in.
pub(super) fn take_in(front: &Front, headers: &HeaderMap, message: &ClientMessage) -> Next {
    let id = message.id();
    if let Some(version) = text(headers, PROTOCOL_VERSION)
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
            // Legacy clients look for errors in the body, and throw away the body of any other status.
            let status = if message.id().is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
            // A refusal is an answer: it is recorded as one.
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

/// Tells a client its session, or ends the one that it did not open after all.
fn opened(front: &Front, session: &Arc<Session>, mut response: Response) -> Response {
    if front.gateway.refused_to_open(session) {
        front.close_behind_answer(session, "initialize was refused");
    } else if let Ok(value) = HeaderValue::from_str(&session.id) {
        response.headers_mut().insert(SESSION, value);
    }
    response
}

/// Answers a request.
pub(super) async fn answer(front: &Arc<Front>, asked: LegacyRequest) -> Response {
    let LegacyRequest { session, request, lines, opens } = asked;
    let response = answer_on_stream(front, &session, request, lines).await;
    if opens { opened(front, &session, response) } else { response }
}

/// Returns the session a request names, or a new one for a client that opens.
fn session(front: &Front, headers: &HeaderMap, opens: bool) -> Result<Arc<Session>, Refusal> {
    if opens {
        return front.open_session(headers);
    }
    let Some(id) = text(headers, SESSION) else {
        let why = "Mcp-Session-Id is required: open a session with initialize";
        return Err(Box::new(because("no session", plain(StatusCode::BAD_REQUEST, why))));
    };
    // An inferred one has no name on the wire.
    let own = |session: &Arc<Session>| !session.is_inferred && front.is_open_to(session, headers);
    let session = front.gateway.session(id).filter(own).ok_or_else(|| Box::new(no_such_session()))?;
    session.touch();
    Ok(session)
}

/// Answers with JSON when the answer is all there is, else with a stream that can be taken up again.
async fn answer_on_stream(
    front: &Arc<Front>,
    session: &Arc<Session>,
    request: Box<Request>,
    mut lines: mpsc::Receiver<Outgoing>,
) -> Response {
    let gateway = front.gateway.clone();
    // Beside the connection: a client that loses it has not called the request off.
    let mut answering = tokio::spawn(async move { gateway.answer_outgoing(request).await });
    let first = tokio::select! {
        biased;
        Some(line) = lines.recv() => Some(line),
        answered = &mut answering => {
            return match answered.ok().flatten() {
                Some(line) => json_line(StatusCode::OK, line),
                None => accepted(),
            };
        }
        // What takes long is answered on a stream: a client that loses it can take it up again.
        () = tokio::time::sleep(STREAM_AFTER) => None,
    };
    let log = front.streams.begin(&session.id);
    if session.facts().version.as_str() >= FIRST_WITH_PRIMING {
        log.push_now(Outgoing::unrecorded(stream::PRIMING.to_owned()));
    }
    if let Some(first) = first {
        log.push_now(first);
    }
    let fed = log.clone();
    tokio::spawn(async move {
        let last = loop {
            tokio::select! {
                biased;
                Some(line) = lines.recv() => fed.push(line).await,
                answered = &mut answering => break answered.ok().flatten(),
            }
        };
        while let Ok(line) = lines.try_recv() {
            fed.push(line).await;
        }
        if let Some(line) = last {
            fed.push(line).await;
        }
        fed.end();
    });
    stream::events(log, 0)
}

/// Opens the standing stream, or takes a broken one up again.
pub(super) fn get(front: &Arc<Front>, headers: &HeaderMap) -> Response {
    if !text(headers, "accept").is_some_and(|a| a.contains("text/event-stream") || a.contains("*/*")) {
        let refused = plain(StatusCode::NOT_ACCEPTABLE, "Accept must name text/event-stream");
        return because("wrong accept", refused);
    }
    let session = match session(front, headers, false) {
        Ok(session) => session,
        Err(refused) => return *refused,
    };
    if let Some(event) = text(headers, "last-event-id") {
        return match front.streams.after(&session.id, event) {
            // Told that nothing is left, a client comes back no more; an empty stream would make it.
            Some((log, from)) if log.is_over(from) => {
                plain(StatusCode::METHOD_NOT_ALLOWED, "that stream has ended")
            }
            Some((log, from)) => stream::events(log, from),
            None => plain(StatusCode::NOT_FOUND, "that event is too old, or none of this session's"),
        };
    }
    let (outbox, mut lines) = mpsc::channel(OUTBOX_MAX);
    let log = front.streams.begin_standing(&session.id);
    for kept in session.attach(outbox) {
        log.push_now(kept);
    }
    let fed = log.clone();
    tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            fed.push(line).await;
        }
        fed.end();
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
