//! Reads an answer that is not a stream of events, and passes lines to the client.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use scrubjay_core::envelope::{Envelope, MessageKind};
use scrubjay_core::framing::one_line;
use scrubjay_core::protocol::method;
use scrubjay_http::root_cause;
use tokio::sync::SemaphorePermit;

use super::{Exchange, Failure, LARGE_BYTES, ROOM_WAIT_MAX, SILENCE_MAX};
use crate::bridge::refusal::{HttpAnswer, excerpt};
use crate::bridge::unanswered::{BridgedLine, is_message};
use crate::budget::{Charge, MemoryUse};
use crate::session::lock;

/// The permit and the memory that an answer holds while it is processed; small ones need no permit.
type LargeAnswerPermit<'a> = (Option<SemaphorePermit<'a>>, Charge);

impl<'a> Exchange<'a> {
    /// Reads an answer that is no stream; returns it with what it holds while it is processed.
    pub(super) async fn collect(
        &self,
        mut body: Incoming,
    ) -> Result<(Vec<u8>, LargeAnswerPermit<'a>), Failure> {
        let bridge = self.bridge;
        let (mut text, mut permit) = (Vec::new(), None);
        let mut charge = bridge.budget.nothing(MemoryUse::Backend, true);
        loop {
            let frame = tokio::time::timeout(SILENCE_MAX, body.frame());
            let frame = match self.unless_stopped(frame).await? {
                Ok(None) => return Ok((text, (permit, charge))),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(e))) => {
                    return Err(Failure::unanswered(format!(
                        "the server's answer broke off: {}",
                        root_cause(&e)
                    )));
                }
                Err(_) => {
                    return Err(Failure::unanswered(format!("the server said nothing for {SILENCE_MAX:?}")));
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            // Checked while it is read: a Content-Length may be missing or wrong.
            if self.bridge.endpoint.message_limit.is_exceeded_by(text.len() + data.len()) {
                return Err(self.too_long());
            }
            text.extend_from_slice(&data);
            if text.len() > LARGE_BYTES && permit.is_none() {
                permit = self.unless_stopped(bridge.large_answers.acquire()).await?.ok();
            }
            charge
                .resize_within(text.len(), ROOM_WAIT_MAX)
                .await
                .map_err(|full| Failure::unanswered(full.to_string()))?;
        }
    }

    pub(super) fn too_long(&self) -> Failure {
        let limit = self.bridge.endpoint.message_limit;
        Failure::unanswered(format!("the server's answer is longer than the limit of {limit}"))
    }

    /// Takes an answer that is not a stream of events.
    pub(super) async fn take_text(
        &mut self,
        mut answered: HttpAnswer,
        redirect: Option<String>,
        mut text: Vec<u8>,
    ) -> Result<(), Failure> {
        let trimmed = text.trim_ascii();
        if trimmed.len() < text.len() {
            text = trimmed.to_vec();
        }
        // A message with line breaks, such as pretty-printed JSON, must be one line on the stream.
        one_line(&mut text);
        let status = answered.status;
        let envelope = Envelope::parse(&text);
        let asked = !self.waiting.is_empty() || self.message.kind == MessageKind::Opaque;
        let passes = if status.is_success() {
            is_message(&envelope)
        } else {
            // A refused notification has no request that an error could answer.
            let is_verdict = matches!(envelope.kind, MessageKind::Error | MessageKind::Batch);
            asked && is_verdict && is_message(&envelope)
        };
        if passes {
            self.pass(&text, !status.is_success()).await;
            return Ok(());
        }
        if status.is_success() && (text.is_empty() || !asked) {
            return Ok(());
        }
        let why = match &redirect {
            Some(redirect) => redirect.clone(),
            None if status.is_success() => {
                format!("the server answered with something that is no message{}", excerpt(&text))
            }
            None => format!("{}{}", answered.refusal_text(), excerpt(&text)),
        };
        // The page of a redirect repeats its target, which may hold a secret.
        if redirect.is_none() {
            answered.keep_body(&text);
        }
        if !asked {
            tracing::warn!(method = self.message.method, why, "a message was refused by its server");
        }
        Err(Failure::Unanswered(why, Some(Box::new(answered))))
    }

    /// Passes a line of the server to the client.
    pub(super) async fn pass(&mut self, line: &[u8], is_refusal: bool) {
        let line = match self.waiting.take(line, is_refusal) {
            BridgedLine::Line(line) => line,
            BridgedLine::NoAnswer(id) => {
                let why = format!("the server's answer is no JSON-RPC message{}", excerpt(line));
                return self.bridge.refuse(id.as_raw(), &why, None).await;
            }
        };
        let opens = self.message.method.as_deref() == Some(method::INITIALIZE);
        if opens || (self.is_modern && !lock(&self.bridge.protocol).answers_modern) {
            let answer = Envelope::parse(&line);
            if answer.kind == MessageKind::Response && answer.id == self.message.id {
                let mut protocol = lock(&self.bridge.protocol);
                protocol.answers_modern |= self.is_modern;
                protocol.version = if opens { answer.protocol_version } else { protocol.version.take() };
            }
        }
        if self.is_modern && self.message.method.as_deref() == Some(method::TOOLS_LIST) {
            lock(&self.bridge.mirrored).learn(&line);
        }
        self.bridge.emit(&line, self.stream_of).await;
    }
}
