//! Which clients a connection has served so far.
//!
//! A server may say something for a call long after that call is over. So on a connection that serves all clients, what
//! nothing tells whose it is belongs to a client only if no other has ever spoken on it.

use std::sync::Arc;

use crate::session::Session;

/// The clients that have spoken on a connection: as much of them as matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientsSeen {
    /// Nobody yet.
    #[default]
    Nobody,
    /// This one alone.
    One(Arc<str>),
    /// More than one, or some that cannot be told apart.
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
