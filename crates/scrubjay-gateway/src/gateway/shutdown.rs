//! Lets the client that owns the gateway end it, with `shutdown` and `exit`.
//!
//! The request `shutdown` ends all backends and is answered with null. After that only the notification `exit` is
//! accepted, which ends the process. Only the client on standard streams may send either: a gateway on HTTP may serve
//! others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Accepted, Gateway, refuse};
use crate::backend::Answer;
use crate::tree;
use scrubjay_core::protocol::code;

/// The request that ends the backends.
pub(super) const SHUTDOWN: &str = "shutdown";
/// The notification that ends the process.
pub(super) const EXIT: &str = "exit";

/// How long backends get to exit by themselves before they are sent SIGTERM: most do so when their input ends.
const LEAVE_MAX: Duration = Duration::from_millis(500);
/// The error for a client on HTTP that asks for a shutdown.
const NOT_YOURS: &str = "is only taken from the client on standard streams: this gateway may serve others. End your own \
    session with an HTTP DELETE.";

/// How far a client has ended the gateway.
#[derive(Default)]
pub(super) struct Ending {
    /// Whether the client owns the gateway.
    is_allowed: AtomicBool,
    is_shut_down: AtomicBool,
    exit: Notify,
}

impl Gateway {
    /// Lets the client end the gateway; to be called by a front that has one client, its owner.
    pub(crate) fn let_client_end_it(&self) {
        self.ending.is_allowed.store(true, Ordering::Relaxed);
    }

    /// Returns whether it serves one client alone, its owner.
    pub(super) fn has_one_client(&self) -> bool {
        self.ending.is_allowed.load(Ordering::Relaxed)
    }

    /// Waits until the client sends `exit`; returns the exit code, 0 if it sent `shutdown` before.
    pub(crate) async fn exited(&self) -> u8 {
        self.ending.exit.notified().await;
        u8::from(!self.is_shut_down())
    }

    fn is_shut_down(&self) -> bool {
        self.ending.is_shut_down.load(Ordering::Relaxed)
    }

    /// Handles `shutdown`, `exit` and messages after a shutdown; `None` for a message that is processed as usual.
    pub(super) fn settle_ending(
        &self,
        method: &str,
        id: Option<&scrubjay_core::envelope::JsonId>,
    ) -> Option<Accepted> {
        // Both are the server's own methods then.
        if self.transparent.is_some() {
            return None;
        }
        let is_allowed = self.has_one_client();
        match (method, id) {
            (EXIT, None) if is_allowed => {
                self.ending.exit.notify_one();
                Some(Accepted::NoReply)
            }
            (SHUTDOWN | EXIT, _) if !is_allowed => {
                tracing::warn!(method, "refused to a client on HTTP");
                Some(refuse(id, code::METHOD_NOT_FOUND, &format!("{method} {NOT_YOURS}")))
            }
            (EXIT, Some(_)) => {
                Some(refuse(id, code::INVALID_REQUEST, "exit is a notification: it has no id"))
            }
            (SHUTDOWN, None) => {
                Some(refuse(None, code::INVALID_REQUEST, "shutdown is a request: it needs an id"))
            }
            (_, Some(_)) if self.is_shut_down() => {
                Some(refuse(id, code::INVALID_REQUEST, "the gateway is shut down: only exit is taken now"))
            }
            // A notification has no answer that could refuse it.
            (_, None) if self.is_shut_down() => Some(Accepted::NoReply),
            _ => None,
        }
    }

    /// Answers `shutdown`: takes no more work and ends all backends.
    pub(super) async fn shut_down_for_client(&self) -> Answer {
        // First, so that no request starts a backend again.
        self.ending.is_shut_down.store(true, Ordering::Relaxed);
        self.close_backends("the client shut the gateway down");
        tree::end_descendants(LEAVE_MAX, tree::GRACE).await;
        Answer::Result("null".to_owned())
    }
}

#[cfg(test)]
mod tests;
