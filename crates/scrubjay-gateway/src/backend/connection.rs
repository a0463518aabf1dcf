//! A connection to a backend, from its handshake until it closes: its streams, the calls under way, and the messages
//! that answer no call.
//!
//! Ids towards the backend are numbers of our own, so that no two clients can be confused.

mod callers;
mod channel;
mod clients_seen;
mod inbound;
mod notes;
mod outbound;
mod progress_token;
mod rules;
mod single_flight;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use serde_json::value::RawValue;

pub(crate) use self::callers::only_session;
pub(super) use self::channel::RpcChannel;
pub(crate) use self::clients_seen::ClientsSeen;
pub(super) use self::inbound::Incoming;
use self::outbound::UnsentLine;
pub(crate) use self::single_flight::SingleFlight;
use super::list::{BackendList, ListKind};
use super::questions::Questions;
use super::{Answer, CallError};
use crate::session::{Call, Session, lock};

/// The capabilities of a backend that decide which requests it gets.
const CAPABILITIES: [&str; 4] = ["tools", "prompts", "resources", "logging"];

/// A connection that has been greeted.
pub struct Connection {
    /// The era of its handshake.
    pub(crate) era: Era,
    /// Those of `CAPABILITIES` that it declared. Not their text: there may be a connection for each client, and the
    /// text is kept once, in the backend's profile.
    declared: Vec<&'static str>,
    /// Whether its greeting was checked against earlier ones, and its changes are subscribed to.
    is_watched: AtomicBool,
    /// How many resources are subscribed to on it: with any, it is not idle.
    followed: AtomicU64,
    /// When it was last used.
    used: Mutex<tokio::time::Instant>,
    /// The lists that are being read from it: later requests for one join the first.
    pub(crate) list_reads: SingleFlight,
    /// The newest list of definitions of each kind, if there was room to keep it.
    newest: Mutex<HashMap<ListKind, Arc<BackendList>>>,
    channel: Arc<RpcChannel>,
}

impl Connection {
    pub(super) fn new(channel: Arc<RpcChannel>, era: Era, capabilities: &str) -> Self {
        let all = serde_json::from_str::<&RawValue>(capabilities).ok();
        let is_declared = |name: &&str| message::member(all, name).is_some_and(|c| c.get() != "null");
        Self {
            era,
            declared: CAPABILITIES.into_iter().filter(is_declared).collect(),
            is_watched: AtomicBool::new(false),
            followed: AtomicU64::new(0),
            used: Mutex::new(tokio::time::Instant::now()),
            list_reads: SingleFlight::default(),
            newest: Mutex::default(),
            channel,
        }
    }

    /// Returns the client that owns it; `None` if it serves all clients.
    #[must_use]
    pub(crate) fn owner(&self) -> Option<Arc<str>> {
        self.channel.settled.get().and_then(|(_, owner)| owner.clone())
    }

    /// Keeps the newest list of definitions that was read from it.
    pub(crate) fn learn_list(&self, kind: ListKind, offer: &Arc<BackendList>) {
        if kind.is_definition() && offer.may_be_kept() {
            lock(&self.newest).insert(kind, offer.clone());
        } else {
            // An older list must not pass for the newest.
            lock(&self.newest).remove(&kind);
        }
    }

    /// Returns the newest list of definitions that was read from it, if it was kept.
    pub(crate) fn newest_list(&self, kind: ListKind) -> Option<Arc<BackendList>> {
        lock(&self.newest).get(&kind).cloned()
    }

    /// Forgets its lists: after a change of rules they may read differently.
    pub(crate) fn forget_lists(&self) {
        lock(&self.newest).clear();
    }

    /// Returns the questions of its backend that wait for a call of the client.
    pub(crate) fn questions(&self) -> Arc<Questions> {
        self.channel.questions.clone()
    }

    /// Notes that a client speaks on it.
    pub(crate) fn note_client(&self, session: &Session) {
        lock(&self.channel.clients_seen).add(session);
    }

    /// Notes that it was used just now.
    pub(crate) fn touch(&self) {
        *lock(&self.used) = tokio::time::Instant::now();
    }

    /// Counts a subscription to a resource.
    pub(crate) fn follow(&self) {
        self.followed.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts the end of a subscription to a resource.
    pub(crate) fn unfollow(&self) {
        self.followed.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns for how long it has been idle; `None` while it has open calls or subscriptions.
    pub(super) fn idle(&self) -> Option<Duration> {
        let in_use = self.followed.load(Ordering::Acquire) > 0 || !lock(&self.channel.pending).is_empty();
        (!in_use).then(|| lock(&self.used).elapsed())
    }

    /// Returns how many calls of clients are under way on it.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        lock(&self.channel.pending).values().filter(|pending| pending.call.is_some()).count()
    }

    /// Marks it as watched; returns whether this call was the first to do so, and its caller has to check the greeting.
    pub(crate) fn mark_watched(&self) -> bool {
        !self.is_watched.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the connection is open.
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        self.channel.open.load(Ordering::Acquire)
    }

    /// Waits until it is closed.
    pub(crate) async fn closed(&self) {
        // Cannot fail: the sender is a field of the channel, which this borrows.
        let _ = self.channel.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Returns why it was closed.
    #[must_use]
    pub(crate) fn why_closed(&self) -> String {
        self.channel.why_closed()
    }

    /// Returns whether the backend declared one of `CAPABILITIES`.
    #[must_use]
    pub(crate) fn offers(&self, capability: &str) -> bool {
        self.declared.contains(&capability)
    }

    /// Calls a method and waits for the answer.
    ///
    /// # Errors
    /// The backend went away or is too slow, or the call could not be recorded.
    pub(crate) async fn call(
        &self,
        call: Option<&Arc<Call>>,
        method: &str,
        params: Option<&str>,
        timeout: Duration,
    ) -> Result<Answer, CallError> {
        self.channel.call(call, method, params, timeout).await
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// The backend went away, or the notification could not be recorded.
    pub(crate) async fn notify(
        &self,
        call: Option<&Arc<Call>>,
        method: &str,
        params: Option<&str>,
    ) -> Result<(), CallError> {
        self.channel.send(call, message::notification(method, params)).await
    }

    /// Sends a notification without waiting; gives it back if there is no room in the queue.
    pub(crate) fn notify_now(&self, method: &str, params: Option<&str>) -> Result<(), UnsentLine> {
        self.channel.send_now(message::notification(method, params))
    }

    /// Sends a line that could not be sent at once.
    pub(crate) async fn send_later(&self, line: UnsentLine) -> Result<(), CallError> {
        self.channel.send(None, line.0).await
    }

    /// Closes it together with its client or the gateway. Their tape ends with the reason; a note is added only if
    /// calls are under way.
    pub(crate) fn close(&self, why: &str) {
        self.channel.close(why, !self.channel.busy().is_empty());
    }

    /// Closes it while its client stays, with a note on tape: what the server kept for the client is lost.
    pub(super) fn revoke(&self, why: &str) {
        self.channel.close(why, true);
    }
}
