//! Notifications of a backend, progress included: each goes to the call or the client that it belongs to.

use std::sync::Arc;

use scrubjay_core::entry::Direction;
use scrubjay_core::message::{Parts, Splice};
use scrubjay_core::protocol::{meta, method};
use serde_json::value::RawValue;

use super::ROOM_WAIT_MAX;
use crate::backend::Event;
use crate::backend::connection::channel::RpcChannel;
use crate::budget::MemoryUse;
use crate::gateway::related_task;
use crate::ruled_line::RuledLine;
use crate::session::{Call, lock};

/// Notifications up to this length may use the memory reserve: a `list_changed` fits. Longer ones may not, or a
/// backend that floods would take the reserve from calls.
const BRIEF_BYTES: usize = 256;

impl RpcChannel {
    pub(super) async fn receive_notification(
        &self,
        method: String,
        judged: &RuledLine,
        line: &str,
        stream_of: Option<u64>,
    ) {
        if method == method::NOTIFICATIONS_PROGRESS {
            return self.receive_progress(judged, line, stream_of).await;
        }
        if let Some((call, line)) = self.subscribed(judged, line, stream_of) {
            call.send(line).await;
            return;
        }
        let busy = self.callers(stream_of);
        let only = self.belongs_to(&busy, stream_of);
        // On the client's tape if it is certain whose it is, else on the backend's own.
        if let Err(e) = self.record(Direction::ServerToClient, only.as_ref(), judged) {
            tracing::error!(backend = self.backend, error = %e, "cannot record a notification");
            return;
        }
        if stream_of.is_some() && busy.is_empty() && !concerns_all(&method) {
            // It belongs to a call that has been cancelled: no other client may get it.
            return;
        }
        let names_task = !self.has_one_client() && names_task(line);
        if let Some(call) = only.filter(|_| !concerns_all(&method) && !names_task) {
            // Not through the queue of events, where the answer that follows it could overtake it.
            if method != method::NOTIFICATIONS_MESSAGE || call.wants_log(line) {
                call.send(line.to_owned()).await;
            }
            return;
        }
        if let Some(owner) = &self.passes_to {
            owner.send_on_standing_stream(line.to_owned());
            return;
        }
        if !self.is_greeted() {
            // Before the greeting it belongs to no client: it is recorded, and not passed on.
            return;
        }
        // Waiting stops the reading, which slows a backend that sends too much.
        let mut charge = self.budget.nothing(MemoryUse::Backend, line.len() <= BRIEF_BYTES);
        if let Err(full) = charge.resize_within(line.len(), ROOM_WAIT_MAX).await {
            self.note_dropped(line.len(), full.key);
            return;
        }
        let event = Event::Notification {
            backend: self.backend.clone(),
            owner: self.owner(),
            era: self.era(),
            method,
            line: line.to_owned(),
            busy,
            clients_seen: lock(&self.clients_seen).clone(),
            charge,
        };
        // Waits when the gateway cannot keep up: nothing is dropped silently.
        let _ = self.events.send(event).await;
    }

    /// Passes progress to the call that the token was made for. With any other token, or on the stream of another
    /// call, it is recorded and reaches nobody.
    async fn receive_progress(&self, judged: &RuledLine, line: &str, stream_of: Option<u64>) {
        let parts = Parts::of(line).ok();
        let token = parts.as_ref().and_then(|parts| parts.param(meta::PROGRESS_TOKEN));
        let Some((token, (call, own))) =
            token.and_then(|token| Some((token, self.progressing(token, stream_of)?)))
        else {
            return self.record_own(judged.original.as_bytes());
        };
        if let Err(e) = self.record(Direction::ServerToClient, Some(&call), judged) {
            tracing::error!(backend = self.backend, error = %e, "cannot record progress");
            return;
        }
        let line = Splice::new(line).replace(Some(token), &own).finish();
        call.send(line).await;
    }

    pub(in crate::backend::connection) fn progressing(
        &self,
        token: &RawValue,
        stream_of: Option<u64>,
    ) -> Option<(Arc<Call>, String)> {
        let id = self.call_of_token(token).filter(|id| stream_of.is_none_or(|request| request == *id))?;
        let pending = lock(&self.pending);
        let pending = pending.get(&id)?;
        pending.progressed.notify_one();
        Some((pending.call.clone()?, pending.progress_token.clone()?))
    }

    /// Returns the call whose subscription a notification belongs to, and the line with the client's own subscription
    /// id, after recording it.
    fn subscribed(
        &self,
        judged: &RuledLine,
        line: &str,
        stream_of: Option<u64>,
    ) -> Option<(Arc<Call>, String)> {
        let parts = Parts::of(line).ok()?;
        let subscription = parts.meta(meta::SUBSCRIPTION_ID)?;
        let id = subscription
            .get()
            .parse::<u64>()
            .ok()
            .filter(|id| stream_of.is_none_or(|request| request == *id))?;
        let call = lock(&self.pending).get(&id)?.call.clone()?;
        // If this fails, the caller tries to record it again, and reports the error.
        self.record(Direction::ServerToClient, Some(&call), judged).ok()?;
        let line = Splice::new(line).replace(Some(subscription), call.id.as_raw()).finish();
        Some((call, line))
    }
}

/// Returns whether a notification is about a task. The task may belong to another client than the one with calls under
/// way.
fn names_task(line: &str) -> bool {
    Parts::of(line).is_ok_and(|parts| related_task(parts.params).is_some())
}

/// Returns whether a notification is for every client, not only for those with calls under way.
fn concerns_all(method: &str) -> bool {
    method.ends_with("/list_changed")
        || matches!(
            method,
            method::NOTIFICATIONS_RESOURCES_UPDATED | method::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED
        )
}
