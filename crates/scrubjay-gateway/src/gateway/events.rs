//! Attends to what backends say of their own accord: who is to hear it, who is to be asked.
//!
//! What can be told to belong to one client goes to that client. A question that might be any of several
//! clients' is refused rather than put to the wrong one.

use std::sync::{Arc, Weak};

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use tokio::sync::{mpsc, oneshot};

use super::{Gateway, code};
use crate::backend::connection::only_session;
use crate::backend::{Answer, Event};
use crate::session::{Call, Demand, Session};

pub(super) async fn attend(gateway: Weak<Gateway>, mut heard: mpsc::Receiver<Event>) {
    while let Some(event) = heard.recv().await {
        let Some(gateway) = gateway.upgrade() else { return };
        match event {
            Event::Notification { backend, era, method, line, busy } => {
                gateway.notified(&backend, era, &method, &line, &busy);
            }
            Event::Request { backend, method, params, busy, reply } => {
                gateway.asked(&backend, method, params, &busy, reply);
            }
            Event::Ready { backend } => gateway.became_ready(&backend),
        }
    }
}

impl Gateway {
    fn notified(self: &Arc<Self>, backend: &str, era: Era, method: &str, line: &str, busy: &[Arc<Call>]) {
        let (modern, legacy) = self.hearers(backend, era);
        match method {
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => {
                self.forget_routes(backend, method);
                if modern {
                    self.tell_listeners(method, line, None);
                }
                self.tell_legacy_sessions(&message::notification(method, None), |_| legacy);
            }
            "notifications/resources/updated" => {
                let uri = message::Parts::of(line).ok().and_then(|p| message::string(p.param("uri")));
                let Some(uri) = uri else { return };
                // Followed once for clients of both eras.
                self.tell_listeners(method, line, Some(&uri));
                self.tell_legacy_sessions(line, |s| crate::session::lock(&s.subscriptions).contains(&uri));
            }
            "notifications/subscriptions/acknowledged" => {}
            // Logged for one of several clients: on the backend's tape, for none may read another's.
            "notifications/message" if !busy.is_empty() => {}
            _ => self.tell_legacy_sessions(line, |_| legacy),
        }
    }

    /// Returns whether modern and legacy clients are to hear what a backend says on the connection of one era:
    /// where it has one of each, it says everything twice.
    fn hearers(&self, backend: &str, era: Era) -> (bool, bool) {
        let backends = self.backends();
        let connections = backends.iter().find(|b| b.id == backend).map(|b| b.open_connections());
        let has_both = connections.is_some_and(|open| open.len() > 1);
        (!has_both || era == Era::Modern, !has_both || era == Era::Legacy)
    }

    fn tell_legacy_sessions(&self, line: &str, wants: impl Fn(&Session) -> bool) {
        for session in self.all_sessions() {
            if session.is_legacy() && wants(&session) {
                session.say_aside(line.to_owned());
            }
        }
    }

    /// Puts a backend's question to the client it belongs to.
    fn asked(
        self: &Arc<Self>,
        backend: &str,
        method: String,
        params: Option<String>,
        busy: &[Arc<Call>],
        reply: oneshot::Sender<Answer>,
    ) {
        if self.through.is_some() {
            // Only a client with a session can be asked, and its server asks it without us.
            let _ = reply.send(Answer::error(code::METHOD_NOT_FOUND, "no client is there to be asked"));
            return;
        }
        let call = match only_session(busy) {
            Some(call) => Some(call),
            None if busy.is_empty() => None,
            None => {
                tracing::warn!(backend, method, "a backend asks, and it cannot be told which client");
                let why =
                    "several clients have calls under way, and it cannot be told which of them this is for";
                let _ = reply.send(Answer::error(code::INTERNAL, why));
                return;
            }
        };
        let facts = call.as_ref().map(|c| c.facts.clone());
        let session = call.as_ref().map(|c| c.session.clone()).or_else(|| self.only_legacy_session());
        let (Some(session), capability) = (session, capability_of(&method)) else {
            let _ = reply.send(Answer::error(code::METHOD_NOT_FOUND, "no client is there to be asked"));
            return;
        };
        let facts = facts.unwrap_or_else(|| session.facts());
        if capability.is_some_and(|capability| !facts.can(capability)) {
            let _ = reply.send(Answer::error(
                code::METHOD_NOT_FOUND,
                &format!("the client does not support {method}"),
            ));
            return;
        }
        if let Some(demands) = call.as_ref().and_then(|c| c.demands.clone()) {
            if let Err(refused) = demands.try_send(Demand { method, params, reply }) {
                let demand = match refused {
                    mpsc::error::TrySendError::Full(d) | mpsc::error::TrySendError::Closed(d) => d,
                };
                let _ = demand.reply.send(Answer::error(code::INTERNAL, "the client cannot be asked now"));
            }
            return;
        }
        let outbox = call.map(|c| c.outbox()).or_else(|| session.standing());
        tokio::spawn(async move {
            let answer = match outbox {
                Some(outbox) => session.ask(Some(&outbox), &method, params.as_deref()).await,
                None => Answer::error(code::INTERNAL, "the client does not listen"),
            };
            // The backend may be gone by now.
            let _ = reply.send(answer);
        });
    }

    fn only_legacy_session(&self) -> Option<Arc<Session>> {
        let mut legacy = self.all_sessions().into_iter().filter(|s| s.is_legacy());
        match (legacy.next(), legacy.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        }
    }

    /// Tells clients about a backend that was missing from lists they have seen.
    fn became_ready(self: &Arc<Self>, backend: &str) {
        self.tools_changed();
        if self.was_missed(backend) {
            self.tell_lists_changed();
        }
    }

    /// Tells every client that any list may have changed.
    pub(super) fn tell_lists_changed(&self) {
        for kind in ["tools", "prompts", "resources"] {
            let method = format!("notifications/{kind}/list_changed");
            let line = message::notification(&method, None);
            self.tell_listeners(&method, &line, None);
            self.tell_legacy_sessions(&line, |_| true);
        }
    }
}

/// Returns the capability a client must have to be asked this.
pub(super) fn capability_of(method: &str) -> Option<&'static str> {
    match method {
        "sampling/createMessage" => Some("sampling"),
        "elicitation/create" => Some("elicitation"),
        "roots/list" => Some("roots"),
        _ => None,
    }
}
