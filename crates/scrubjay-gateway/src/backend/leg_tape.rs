//! Chooses the tape for messages of a connection that belong to no request of a client.
//!
//! On a connection of one client they go on that client's tape, greetings and standard error included; on a connection
//! that serves all clients they go on the backend's own tape.

use std::sync::{Arc, Mutex, Weak};

use scrubjay_tape::recording::Recording;

use crate::session::{Session, lock};

/// The tape of one connection.
pub(crate) struct LegTape {
    own: Arc<Mutex<Recording>>,
    /// Weak: a connection does not keep the session of a client alive that has left.
    session: Mutex<Weak<Session>>,
}

impl LegTape {
    /// Records on the session's tape while the session lasts, then on the backend's own.
    pub(super) fn new(own: Arc<Mutex<Recording>>, session: Option<&Arc<Session>>) -> Self {
        Self { own, session: Mutex::new(session.map(Arc::downgrade).unwrap_or_default()) }
    }

    /// Records on the backend's own tape from now on, because the handshake showed that the connection serves all
    /// clients.
    pub(super) fn leave_session(&self) {
        *lock(&self.session) = Weak::new();
    }

    pub(super) fn recording(&self) -> Arc<Mutex<Recording>> {
        // Asked for each message: after the session's end, what the backend still sends goes on its own tape.
        lock(&self.session).upgrade().map_or_else(|| self.own.clone(), |session| session.recording())
    }
}
