//! Opens and ends the sessions of the gateway's clients, and ends all of them when the gateway stops.

use std::sync::Arc;

use scrubjay_tape::format::header::TapeKind;

use super::{Gateway, NewTape};
use crate::session::{Sealing, Session, lock};

/// How long sealing of tapes may take at shutdown; the next start seals the others.
const SEALING_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Called when a client left, with the id by which toolsets know its connection, and the reason.
pub type OnLeave = Box<dyn Fn(String, &str) + Send + Sync>;

impl Gateway {
    /// Begins a session.
    pub fn open_session(&self, name: &str) -> Arc<Session> {
        self.begin_session(name, None, false)
    }

    /// Begins a session for the client that this identity stands for: all its sessions share their connections to
    /// legacy backends.
    pub fn open_inferred_session(&self, name: &str, client: &str) -> Arc<Session> {
        self.begin_session(name, Some(client), false)
    }

    /// Begins one for clients that cannot be told apart: several may share it.
    #[must_use]
    pub fn open_ambiguous_session(&self, name: &str, client: &str) -> Arc<Session> {
        self.begin_session(name, Some(client), true)
    }

    fn begin_session(&self, name: &str, client: Option<&str>, may_be_several: bool) -> Arc<Session> {
        let handle = handle();
        let recording = self.new_tape(NewTape { name, kind: TapeKind::Conversation, client: Some(&handle) });
        let mut session = Session::new(handle, recording, self.record_options, &self.budget, client);
        session.may_be_several = may_be_several;
        let session = Arc::new(session);
        lock(&self.sessions).insert(session.id.clone(), session.clone());
        session
    }

    /// Returns the session with this handle.
    #[must_use]
    pub fn session(&self, id: &str) -> Option<Arc<Session>> {
        lock(&self.sessions).get(id).cloned()
    }

    /// Returns the sessions that were idle for longer than this.
    #[must_use]
    pub(crate) fn idle_sessions(&self, silence: std::time::Duration) -> Vec<String> {
        let sessions = lock(&self.sessions);
        sessions.values().filter(|s| s.idle() > silence).map(|s| s.id.clone()).collect()
    }

    /// Returns how many sessions there are.
    #[must_use]
    pub fn session_count(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Returns whether the session was never opened, because `initialize` failed.
    #[must_use]
    pub(crate) fn refused_to_open(&self, session: &Session) -> bool {
        self.transparent.is_none() && !session.is_opened()
    }

    /// Ends a session and seals its tape; returns whether it existed.
    pub fn close_session(&self, id: &str, reason: &str) -> bool {
        self.end_session(id, reason, Sealing::Now)
    }

    fn end_session(&self, id: &str, reason: &str, sealing: Sealing) -> bool {
        let Some(session) = lock(&self.sessions).remove(id) else { return false };
        // Before its connections end: a start that is under way sees this, or is ended with them.
        session.end();
        self.listeners.forget_session(&session);
        for (uri, (owner, _)) in std::mem::take(&mut *lock(&session.subscriptions)) {
            self.unfollow(&(owner, uri));
        }
        // Its connections end with the client's last session. A session that is not inferred is its client's only one.
        let is_there = |other: &Arc<Session>| other.client == session.client;
        if !(session.is_inferred && lock(&self.sessions).values().any(is_there)) {
            self.parked.forget_client(&session.client);
            self.backends().iter().for_each(|backend| backend.end_client(&session.client, reason));
        }
        if let Some(transparent) = &self.transparent {
            self.end_server_of(transparent, id, reason);
        }
        // After its connections are closed: that they ended belongs on the tape that is sealed here.
        session.finish(self.new_tape(NewTape::late()), reason, sealing);
        if let Some(on_leave) = self.on_leave.get() {
            on_leave(session.connection(), reason);
        }
        true
    }

    pub(crate) fn all_sessions(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).values().cloned().collect()
    }

    /// Waits until clients have what is on its way to them, but not longer than `limit`.
    pub(crate) async fn wait_for_deliveries(&self, limit: std::time::Duration) {
        let all_delivered = async {
            for session in self.all_sessions() {
                session.all_delivered().await;
            }
        };
        // What is left is noted as undelivered.
        let _ = tokio::time::timeout(limit, all_delivered).await;
    }

    /// Notes that the gateway is about to stop: a message that is not delivered from here on has that as its reason.
    pub fn stopping(&self) {
        self.all_sessions().iter().for_each(|session| session.stopping());
    }

    /// Ends everything.
    pub fn shut_down(&self, reason: &str) {
        self.shut_down_sealing(reason, SEALING_MAX);
    }

    /// Ends everything, and seals tapes for at most this long: a shutdown does not wait for thousands of them.
    /// The next start seals the others.
    pub fn shut_down_sealing(&self, reason: &str, sealing_max: std::time::Duration) {
        let began = scrubjay_tape::clock::now().instant;
        let ids: Vec<String> = lock(&self.sessions).keys().cloned().collect();
        for id in ids {
            let is_late = began.elapsed() >= sealing_max;
            self.end_session(&id, reason, if is_late { Sealing::Later } else { Sealing::Now });
        }
        if let Some(transparent) = &self.transparent {
            self.end_shared_server(transparent, reason);
        }
        self.close_backends(reason);
        for backend in self.backends().iter() {
            backend.finish_recording(self.new_tape(NewTape::late()), reason);
        }
    }

    /// Closes the connections to all backends.
    pub(super) fn close_backends(&self, reason: &str) {
        for connection in self.backends().iter().flat_map(|backend| backend.open_connections()) {
            connection.close(reason);
        }
    }

    /// Sets what is called when a client left; once.
    pub fn on_leave(&self, on_leave: OnLeave) {
        let _ = self.on_leave.set(on_leave);
    }

    /// Notes on the tape of a client that its connection, as toolsets know it, is in another session from now on.
    pub fn move_to_session(&self, connection: &str, session: &str) {
        if let Some(client) = self.all_sessions().iter().find(|client| client.connection() == connection) {
            client.move_to(session);
        }
    }
}

/// Makes a handle that cannot be guessed: 160 random bits, in the letters of two tape ids.
pub(crate) fn handle() -> String {
    let mut random = [0; 20];
    getrandom::fill(&mut random).expect("the system has a source of randomness");
    let (first, second) = random.split_at(10);
    let text =
        |half: &[u8]| scrubjay_core::id::TapeId::from_random(half.try_into().expect("ten bytes")).to_string();
    format!("{}{}", text(first), text(second))
}

#[cfg(test)]
mod tests;
