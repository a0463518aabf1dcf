//! Decides which clients get a backend's notification, and which client is asked its question.
//!
//! A message on a client's own connection belongs to that client. On a connection that serves all clients, a message
//! goes to the one client that it provably belongs to. A question that could belong to several clients is refused:
//! asked of the wrong one, it would reveal one client's business to another.

use std::sync::{Arc, Weak};

use scrubjay_core::envelope::Era;
use scrubjay_core::message;
use scrubjay_core::protocol::{code, method};
use tokio::sync::{mpsc, oneshot};

use super::{Gateway, tasks};
use crate::backend::connection::{ClientsSeen, only_session};
use crate::backend::list::ListKind;
use crate::backend::{Answer, Event, Owner, Question};
use crate::session::{Call, Demand, Session, lock};

/// Handles the events of all backends, in their order, until the gateway is dropped.
pub(super) async fn handle_events(gateway: Weak<Gateway>, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        let Some(gateway) = gateway.upgrade() else { return };
        match event {
            Event::Notification { backend, owner, era, method, line, busy, clients_seen, charge } => {
                gateway.pass_to_clients(
                    &BackendNotification { backend, owner, clients_seen, era, method, line },
                    &busy,
                );
                drop(charge);
            }
            Event::Request(question) => gateway.ask_owner(question),
            Event::Ready { backend, owner } => gateway.became_ready(&backend, &owner),
        }
    }
}

/// A notification of a backend that is part of no call.
struct BackendNotification {
    backend: String,
    owner: Owner,
    clients_seen: ClientsSeen,
    era: Era,
    method: String,
    line: String,
}

impl BackendNotification {
    /// Returns whether it may be for the client of a session.
    fn is_for(&self, session: &Session) -> bool {
        is_of(session, &self.owner)
    }

    /// Returns whether it can only be for the client of a session.
    fn is_only_for(&self, session: &Session) -> bool {
        self.is_for(session) && (self.owner.is_some() || self.clients_seen.is_nobody_but(session))
    }
}

/// Returns whether a connection serves the client of a session: its owner, or every client if it has none.
fn is_of(session: &Session, owner: &Owner) -> bool {
    owner.as_ref().is_none_or(|owner| *owner == session.client)
}

impl Gateway {
    /// Passes a notification to the clients that it concerns.
    fn pass_to_clients(self: &Arc<Self>, notification: &BackendNotification, busy: &[Arc<Call>]) {
        let (method, line) = (notification.method.as_str(), notification.line.as_str());
        if notification.owner.is_none()
            && let Some(task) = message::Parts::of(line).ok().and_then(|parts| tasks::related(parts.params))
        {
            // Only the client that began a task gets its notifications. If no client began it here, it is on tape only.
            let owner = self.tasks.owner(&notification.backend, &task);
            self.notify_legacy_sessions(line, |session| owner.as_ref() == Some(&session.client));
            return;
        }
        let (modern, legacy) = self.eras_to_notify(notification);
        match method {
            method::NOTIFICATIONS_TOOLS_LIST_CHANGED
            | method::NOTIFICATIONS_PROMPTS_LIST_CHANGED
            | method::NOTIFICATIONS_RESOURCES_LIST_CHANGED => {
                self.forget_lists(method, |session| notification.is_for(session));
                if modern {
                    self.notify_listeners(method, line, None, |session| notification.is_for(session));
                }
                let line = message::notification(method, None);
                self.notify_legacy_sessions(&line, |session| legacy && notification.is_for(session));
            }
            method::NOTIFICATIONS_RESOURCES_UPDATED => {
                let uri = message::Parts::of(line).ok().and_then(|p| message::string(p.param("uri")));
                let Some(uri) = uri else { return };
                // The gateway subscribes once for clients of both eras.
                self.notify_listeners(method, line, Some(&uri), |session| notification.is_for(session));
                self.notify_legacy_sessions(line, |session| {
                    notification.is_for(session) && lock(&session.subscriptions).contains_key(&uri)
                });
            }
            method::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED => {}
            // A log message for one of several clients stays on the backend's tape: none may read another's.
            method::NOTIFICATIONS_MESSAGE if !busy.is_empty() && notification.owner.is_none() => {}
            // It may belong to any of several clients, so it stays on the backend's tape.
            _ if notification.owner.is_none() && self.session_count() > 1 => {}
            _ => self.notify_legacy_sessions(line, |session| legacy && notification.is_only_for(session)),
        }
    }

    /// Returns whether modern and whether legacy clients get a notification. If a backend has a shared connection of
    /// each era, it sends everything on both, and clients would get it twice.
    fn eras_to_notify(&self, notification: &BackendNotification) -> (bool, bool) {
        if notification.owner.is_some() {
            return (true, true);
        }
        let connections = self.backend(&notification.backend).map(|backend| backend.open_connections());
        let shared = connections.into_iter().flatten().filter(|connection| connection.owner().is_none());
        let has_both = shared.count() > 1;
        (!has_both || notification.era == Era::Modern, !has_both || notification.era == Era::Legacy)
    }

    /// Notifies clients that a list has changed.
    pub(super) fn announce_change(&self, method: &str, concerns: impl Fn(&Session) -> bool) {
        let line = message::notification(method, None);
        self.notify_listeners(method, &line, None, &concerns);
        self.notify_legacy_sessions(&line, concerns);
    }

    fn notify_legacy_sessions(&self, line: &str, wants: impl Fn(&Session) -> bool) {
        for session in self.all_sessions() {
            if session.is_legacy() && wants(&session) {
                session.send_on_standing_stream(line.to_owned());
            }
        }
    }

    /// Notifies every client that any list may have changed.
    pub(super) fn announce_all_lists(&self) {
        for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
            self.announce_change(kind.changed(), |_| true);
        }
    }

    /// Puts a backend's question to the client it belongs to.
    fn ask_owner(self: &Arc<Self>, question: Question) {
        if self.transparent.is_some() {
            // Only a client with a session can be asked, and the questions of its server go to it directly.
            refuse(question.reply, code::METHOD_NOT_FOUND, "no client is there to be asked");
            return;
        }
        let Question {
            backend,
            owner,
            outside_calls,
            questions,
            method,
            params,
            busy,
            only,
            clients_seen,
            reply,
        } = question;
        let task = params.as_deref().and_then(|params| serde_json::from_str(params).ok());
        let mut call = only;
        if let Some(task) = tasks::related(task).filter(|_| owner.is_none()) {
            // Part of a task: only the client that began it may be asked.
            let task_owner = self.tasks.owner(&backend, &task);
            let is_of_owner = |call: &&Arc<Call>| task_owner.as_ref() == Some(&call.session.client);
            let of_owner: Vec<Arc<Call>> = busy.iter().filter(is_of_owner).cloned().collect();
            if of_owner.is_empty() {
                refuse(reply, code::INTERNAL, "the client that began this task waits for no call");
                return;
            }
            call = only_session(&of_owner);
        }
        let could_be_anyones = owner.is_none() && (!busy.is_empty() || clients_seen == ClientsSeen::Several);
        if call.is_none() && could_be_anyones {
            tracing::warn!(backend, method, "a backend asks, and it cannot be told which client");
            let why = "several clients may use this connection, and it cannot be told which of them this is for: \
                       without `shared: true` each would have a connection of its own";
            refuse(reply, code::INTERNAL, why);
            return;
        }
        let session =
            call.as_ref().map(|c| c.session.clone()).or_else(|| self.session_to_ask(&owner, &clients_seen));
        let Some(session) = session else {
            refuse(reply, code::METHOD_NOT_FOUND, "no client is there to be asked");
            return;
        };
        let facts = call.as_ref().map_or_else(|| session.facts(), |call| call.facts.clone());
        if capability_of(&method).is_some_and(|capability| !facts.can(capability)) {
            refuse(reply, code::METHOD_NOT_FOUND, &format!("the client does not support {method}"));
            return;
        }
        if facts.era == Era::Modern {
            let demand = Demand { method, params, reply };
            let refused = match (&owner, call.as_ref().and_then(|call| call.demands.clone())) {
                // It waits for a call of this client that can return it, if need be the next one.
                (Some(_), _) => questions.put(demand, outside_calls).err(),
                (None, Some(demands)) => demands.try_send(demand).err().map(|refused| match refused {
                    mpsc::error::TrySendError::Full(d) | mpsc::error::TrySendError::Closed(d) => d,
                }),
                (None, None) => Some(demand),
            };
            if let Some(demand) = refused {
                refuse(demand.reply, code::INTERNAL, "the client cannot be asked now");
            }
            return;
        }
        let outbox = call.map(|c| c.outbox()).or_else(|| session.reachable());
        // In a task: an answer may take minutes, and the events behind this one are other clients'.
        tokio::spawn(async move {
            // A client without a stream is asked once it has one.
            let answer = session.ask(outbox.as_ref(), &method, params.as_deref()).await;
            // The backend may be gone by now.
            let _ = reply.send(answer);
        });
    }

    /// Returns the session to ask when no call is under way: one of the owner's. On a connection that serves all, it is
    /// the only session there is, if that is a legacy one.
    fn session_to_ask(&self, owner: &Owner, clients_seen: &ClientsSeen) -> Option<Arc<Session>> {
        let mut sessions = self.all_sessions().into_iter();
        if owner.is_some() {
            return sessions.find(|session| is_of(session, owner));
        }
        match (sessions.next(), sessions.next()) {
            (Some(only), None) => {
                Some(only).filter(|session| session.is_legacy() && clients_seen.is_nobody_but(session))
            }
            _ => None,
        }
    }

    /// Forgets the names that lists gave of a backend that has connected again, for its clients: it may be another
    /// version.
    fn became_ready(self: &Arc<Self>, backend: &str, owner: &Owner) {
        self.tools_changed();
        for session in self.all_sessions().iter().filter(|session| is_of(session, owner)) {
            let lists = lock(&session.lists);
            let again: Vec<ListKind> =
                lists.keys().filter(|(_, listed)| listed == backend).map(|(kind, _)| *kind).collect();
            drop(lists);
            lock(&session.tables).retain(|kind, _| !again.contains(kind));
        }
    }
}

fn refuse(reply: oneshot::Sender<Answer>, code: i64, why: &str) {
    // The backend may be gone by now.
    let _ = reply.send(Answer::error(code, why));
}

/// Returns the capability that a client must have declared to be asked this; `None` if the method is no question to a
/// client.
pub(super) fn capability_of(method: &str) -> Option<&'static str> {
    match method {
        method::SAMPLING_CREATE_MESSAGE => Some("sampling"),
        method::ELICITATION_CREATE => Some("elicitation"),
        method::ROOTS_LIST => Some("roots"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
