//! Questions to a client: requests under ids of our own, until their answers come.

use std::sync::atomic::Ordering;

use scrubjay_core::envelope::JsonId;
use scrubjay_core::message;
use scrubjay_core::protocol::code;
use tokio::sync::oneshot;

use super::{CALLS_MAX, Outbox, Session, lock};
use crate::backend::Answer;

impl Session {
    /// Asks the client something on a stream, and waits for its answer. Without a stream the question waits until the
    /// client opens its standing stream.
    pub(crate) async fn ask(&self, outbox: Option<&Outbox>, method: &str, params: Option<&str>) -> Answer {
        let number = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        {
            let mut asks = lock(&self.asks);
            if asks.len() >= CALLS_MAX {
                return Answer::error(code::INTERNAL, "too many questions wait for the client");
            }
            asks.insert(number, reply);
        }
        // Also if the caller is dropped: a late answer then finds no question, and the table does not grow.
        let _forget = AskGuard { session: self, number };
        let question = message::request(&format!("\"scrubjay-{number}\""), method, params);
        let is_queued = match outbox {
            Some(outbox) => self.send(outbox, question).await,
            None => {
                self.send_on_standing_stream(question);
                true
            }
        };
        if !is_queued {
            return Answer::error(code::INTERNAL, "the question did not reach the client");
        }
        answer
            .await
            .unwrap_or_else(|_| Answer::error(code::INTERNAL, "the client went away before it answered"))
    }

    /// Takes the client's answer to a question; returns whether there is such a question.
    pub(crate) fn take_answer(&self, id: &JsonId, answer: Answer) -> bool {
        let number = id.as_raw().trim_matches('"').strip_prefix("scrubjay-").and_then(|n| n.parse().ok());
        let Some(reply) = number.and_then(|n: u64| lock(&self.asks).remove(&n)) else { return false };
        reply.send(answer).is_ok()
    }
}

/// Removes a question when its caller stops waiting for the answer.
struct AskGuard<'a> {
    session: &'a Session,
    number: u64,
}

impl Drop for AskGuard<'_> {
    fn drop(&mut self) {
        lock(&self.session.asks).remove(&self.number);
    }
}

#[cfg(test)]
mod tests;
