//! Handles what backends say unasked: which clients get a notification, and which client is asked a question.
//!
//! What comes on a client's own connection is that client's. On a connection that serves all clients, what can be told
//! to belong to one goes to that one; a question that might be any of several clients' is refused rather than put to
//! the wrong one.

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

pub(super) async fn attend(gateway: Weak<Gateway>, mut heard: mpsc::Receiver<Event>) {
    while let Some(event) = heard.recv().await {
        let Some(gateway) = gateway.upgrade() else { return };
        match event {
            Event::Notification { backend, owner, era, method, line, busy, clients_seen, room } => {
                gateway.notified(
                    &BackendNotification { backend, owner, clients_seen, era, method, line },
                    &busy,
                );
                drop(room);
            }
            Event::Request(question) => gateway.asked(question),
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
    /// Returns whether a session is of the client it is for.
    fn is_for(&self, session: &Session) -> bool {
        is_of(session, &self.owner)
    }

    /// Returns whether it can only be for the client of a session.
    fn is_only_for(&self, session: &Session) -> bool {
        self.is_for(session) && (self.owner.is_some() || self.clients_seen.is_nobody_but(session))
    }
}

/// Returns whether a session is of this client; everybody is of a connection that serves all.
fn is_of(session: &Session, owner: &Owner) -> bool {
    owner.as_ref().is_none_or(|owner| *owner == session.client)
}

impl Gateway {
    fn notified(self: &Arc<Self>, said: &BackendNotification, busy: &[Arc<Call>]) {
        let (method, line) = (said.method.as_str(), said.line.as_str());
        if said.owner.is_none()
            && let Some(task) = message::Parts::of(line).ok().and_then(|parts| tasks::related(parts.params))
        {
            // Only the client that began a task is told of it; a task that no client began here is on tape only.
            let owner = self.tasks.owner(&said.backend, &task);
            self.tell_legacy_sessions(line, |session| owner.as_ref() == Some(&session.client));
            return;
        }
        let (modern, legacy) = self.hearers(said);
        match method {
            method::NOTIFICATIONS_TOOLS_LIST_CHANGED
            | method::NOTIFICATIONS_PROMPTS_LIST_CHANGED
            | method::NOTIFICATIONS_RESOURCES_LIST_CHANGED => {
                self.forget_lists(method, |session| said.is_for(session));
                if modern {
                    self.tell_listeners(method, line, None, |session| said.is_for(session));
                }
                let line = message::notification(method, None);
                self.tell_legacy_sessions(&line, |session| legacy && said.is_for(session));
            }
            method::NOTIFICATIONS_RESOURCES_UPDATED => {
                let uri = message::Parts::of(line).ok().and_then(|p| message::string(p.param("uri")));
                let Some(uri) = uri else { return };
                // Followed once for clients of both eras.
                self.tell_listeners(method, line, Some(&uri), |session| said.is_for(session));
                self.tell_legacy_sessions(line, |session| {
                    said.is_for(session) && lock(&session.subscriptions).contains_key(&uri)
                });
            }
            method::NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED => {}
            // A log message for one of several clients stays on the backend's tape: none may read another's.
            method::NOTIFICATIONS_MESSAGE if !busy.is_empty() && said.owner.is_none() => {}
            // It may belong to any of several clients, so it stays on the backend's tape.
            _ if said.owner.is_none() && self.session_count() > 1 => {}
            _ => self.tell_legacy_sessions(line, |session| legacy && said.is_only_for(session)),
        }
    }

    /// Returns whether modern and legacy clients are to hear what a backend says on a connection that serves all: where
    /// it has one of each era, it says everything twice.
    fn hearers(&self, said: &BackendNotification) -> (bool, bool) {
        if said.owner.is_some() {
            return (true, true);
        }
        let connections = self.backend(&said.backend).map(|backend| backend.open_connections());
        let shared = connections.into_iter().flatten().filter(|connection| connection.owner().is_none());
        let has_both = shared.count() > 1;
        (!has_both || said.era == Era::Modern, !has_both || said.era == Era::Legacy)
    }

    /// Tells clients that a list has changed.
    pub(super) fn tell_of_change(&self, method: &str, concerns: impl Fn(&Session) -> bool) {
        let line = message::notification(method, None);
        self.tell_listeners(method, &line, None, &concerns);
        self.tell_legacy_sessions(&line, concerns);
    }

    fn tell_legacy_sessions(&self, line: &str, wants: impl Fn(&Session) -> bool) {
        for session in self.all_sessions() {
            if session.is_legacy() && wants(&session) {
                session.say_on_standing_stream(line.to_owned());
            }
        }
    }

    /// Tells every client that any list may have changed.
    pub(super) fn tell_lists_changed(&self) {
        for kind in [ListKind::Tools, ListKind::Prompts, ListKind::Resources] {
            self.tell_of_change(kind.changed(), |_| true);
        }
    }

    /// Puts a backend's question to the client it belongs to.
    fn asked(self: &Arc<Self>, question: Question) {
        if self.transparent.is_some() {
            // Only a client with a session can be asked, and its server asks it without us.
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
            let asked = self.tasks.owner(&backend, &task);
            let of_asked = |call: &&Arc<Call>| asked.as_ref() == Some(&call.session.client);
            let of_asked: Vec<Arc<Call>> = busy.iter().filter(of_asked).cloned().collect();
            if of_asked.is_empty() {
                refuse(reply, code::INTERNAL, "the client that began this task waits for no call");
                return;
            }
            call = only_session(&of_asked);
        }
        let is_anybodys = owner.is_none() && (!busy.is_empty() || clients_seen == ClientsSeen::Several);
        if call.is_none() && is_anybodys {
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
                // Any call of this client takes it along, the next one if none is under way that can.
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
        tokio::spawn(async move {
            // A client without a stream is asked once it has one.
            let answer = session.ask(outbox.as_ref(), &method, params.as_deref()).await;
            // The backend may be gone by now.
            let _ = reply.send(answer);
        });
    }

    /// Returns the session to ask where no call is under way: one of the owner's or, on a connection that serves all,
    /// the only one there is, where it is legacy.
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

    /// Drops what was known of a backend that has started again, for those it serves: it may not be what it was.
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

/// Returns the capability a client must have to be asked this.
pub(super) fn capability_of(method: &str) -> Option<&'static str> {
    match method {
        method::SAMPLING_CREATE_MESSAGE => Some("sampling"),
        method::ELICITATION_CREATE => Some("elicitation"),
        method::ROOTS_LIST => Some("roots"),
        _ => None,
    }
}
