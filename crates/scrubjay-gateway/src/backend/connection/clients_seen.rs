//! Which clients a connection has served so far.
//!
//! A server may send a message about a call long after that call is over. So on a connection that serves all clients, a
//! message that names no call belongs to a client only if no other client has ever spoken on it.

use std::sync::Arc;

use crate::session::Session;

/// The clients that have spoken on a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientsSeen {
    /// None yet.
    #[default]
    Nobody,
    /// One client.
    One(Arc<str>),
    /// More than one, or clients that cannot be told apart.
    Several,
}

impl ClientsSeen {
    /// Notes that a session's client speaks on the connection.
    pub(super) fn add(&mut self, session: &Session) {
        match self {
            Self::Several => {}
            _ if session.may_be_several => *self = Self::Several,
            Self::Nobody => *self = Self::One(session.client.clone()),
            Self::One(client) if *client == session.client => {}
            // It never goes back to one: the server may still send messages about calls of a client that has left.
            Self::One(_) => *self = Self::Several,
        }
    }

    /// Returns whether nobody but this session's client has spoken on the connection.
    pub(crate) fn is_nobody_but(&self, session: &Session) -> bool {
        match self {
            Self::Nobody => !session.may_be_several,
            Self::One(client) => *client == session.client,
            Self::Several => false,
        }
    }
}

#[cfg(test)]
mod tests;
