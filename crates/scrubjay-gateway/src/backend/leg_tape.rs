//! Which tape what passes on a connection goes on, where it belongs to no request of a client.
//!
//! What belongs to one client's connection is on that client's tape, greetings and standard error included;
//! what belongs to a connection that serves all clients is on the backend's own.

use std::sync::{Arc, Mutex, Weak};

use scrubjay_tape::recording::Recording;

use crate::session::{Session, lock};

/// The tape of one connection.
pub(crate) struct LegTape {
    own: Arc<Mutex<Recording>>,
    session: Mutex<Weak<Session>>,
}

impl LegTape {
    /// Records for a session, for as long as it lasts, else on the backend's own tape.
    pub(super) fn new(own: Arc<Mutex<Recording>>, session: Option<&Arc<Session>>) -> Self {
        Self { own, session: Mutex::new(session.map(Arc::downgrade).unwrap_or_default()) }
    }

    /// Records on the backend's own tape from now on: the connection turned out to serve all clients.
    pub(super) fn leave_session(&self) {
        *lock(&self.session) = Weak::new();
    }

    pub(super) fn recording(&self) -> Arc<Mutex<Recording>> {
        lock(&self.session).upgrade().map_or_else(|| self.own.clone(), |session| session.recording())
    }
}
