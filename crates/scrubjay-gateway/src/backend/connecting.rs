//! Opens the connection that serves a client, if none is open: chooses the era and the slot, and sends a new server
//! what clients tell a server once.
//!
//! A start runs in a task of its own, not in the request that needs it. Each slot has one start at a time; later
//! requests wait for it.

use std::sync::Arc;
use std::time::Duration;

use scrubjay_core::envelope::Era;
use scrubjay_core::protocol::method;
use scrubjay_core::units::counted;

use super::connection::Connection;
use super::handshake::{self, ConnectError};
use super::slots::{BackOff, ConnectionSlot, Owner};
use super::{Backend, CallError, Event, START_MAX};
use crate::session::{ClientFacts, Session, lock};

/// How long the first call waits for a new server to ask for the client's roots.
const FIRST_QUESTION_MAX: Duration = Duration::from_millis(100);
/// How long the first call waits for the client's answer to that.
const FIRST_ANSWER_MAX: Duration = Duration::from_secs(2);

/// How long a client waits for a slot while all are taken: longer than `slots::EVICT_AFTER`, so that an unused one is
/// freed in that time.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(6);
/// How often a waiting client checks for a free slot.
const SLOT_POLL: Duration = Duration::from_millis(100);

/// The client on whose behalf a connection is opened.
#[derive(Clone, Copy)]
pub(super) struct Starter<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) facts: &'a ClientFacts,
}

impl Backend {
    /// Returns an open connection for a client, in the client's own era if the backend speaks it; opens one if needed.
    ///
    /// # Errors
    /// It does not start, has failed too recently to be tried again, or has too many clients.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        session: &Arc<Session>,
        facts: &ClientFacts,
    ) -> Result<Arc<Connection>, CallError> {
        if let Some(connection) = self.open_connection(session, facts.era) {
            return Ok(connection);
        }
        // In a task of its own: a start that is dropped half-way with its request would leave a process behind.
        let (backend, session, facts) = (self.clone(), session.clone(), facts.clone());
        let started = tokio::spawn(async move {
            let starter = Starter { session: &session, facts: &facts };
            backend.connect(starter).await
        });
        started.await.unwrap_or_else(|_| Err(self.unavailable("its start failed")))
    }

    /// Returns the open connection that serves a client, if there is one.
    pub(crate) fn open_connection(&self, session: &Session, era: Era) -> Option<Arc<Connection>> {
        let open = match self.era_for(era) {
            Era::Modern => self.slots.modern.open(),
            Era::Legacy => self.slots.legacy(&self.owner_for(session)),
        };
        open.inspect(|connection| connection.touch())
    }

    /// Returns the era in which a client of this era is served: its own unless the backend is known not to speak it.
    fn era_for(&self, era: Era) -> Era {
        match (era, self.known.speaks(era)) {
            (Era::Modern, Some(false)) => Era::Legacy,
            (Era::Legacy, Some(false)) => Era::Modern,
            (era, _) => era,
        }
    }

    /// Returns the owner that a legacy connection for a client has.
    pub(super) fn owner_for(&self, session: &Session) -> Owner {
        (!self.is_shared).then(|| session.client.clone())
    }

    /// Returns the owner of the connection that serves a client.
    pub(crate) fn owner_of(&self, session: &Session, era: Era) -> Owner {
        match self.era_for(era) {
            Era::Modern => None,
            Era::Legacy => self.owner_for(session),
        }
    }

    async fn connect(self: &Arc<Self>, starter: Starter<'_>) -> Result<Arc<Connection>, CallError> {
        let era = starter.facts.era;
        if self.slot_of(starter).await?.has_closed() {
            // A server that ended may be started again as another version.
            self.known.forget_eras();
        }
        let probing = match self.known.speaks(era) {
            None if era == Era::Modern => Some(self.probing.lock().await),
            _ => None,
        };
        // Read again after waiting for the lock: the client that held it has found out.
        let eras: &[Era] = match (self.era_for(era), self.known.speaks(self.era_for(era))) {
            (Era::Modern, Some(true)) => &[Era::Modern],
            (Era::Legacy, Some(true)) => &[Era::Legacy],
            (Era::Modern, _) => &[Era::Modern, Era::Legacy],
            (Era::Legacy, _) => &[Era::Legacy, Era::Modern],
        };
        let slot = self.slot_of(starter).await?;
        let connection = self.connect_in(&slot, starter, eras).await;
        drop(probing);
        connection
    }

    /// Returns the slot for the connection that serves a client, by what is known of the backend's eras.
    async fn slot_of(&self, starter: Starter<'_>) -> Result<Arc<ConnectionSlot>, CallError> {
        match self.era_for(starter.facts.era) {
            Era::Modern => Ok(self.slots.modern.clone()),
            Era::Legacy => self.legacy_slot(starter).await,
        }
    }

    /// Returns the slot for a client's legacy connection. Waits while all are taken: clients often leave without
    /// saying so, and their slots are freed after a while.
    async fn legacy_slot(&self, starter: Starter<'_>) -> Result<Arc<ConnectionSlot>, CallError> {
        let owner = self.owner_for(starter.session);
        let deadline = tokio::time::Instant::now() + SLOT_WAIT_MAX;
        loop {
            if let Some(slot) = self.slots.legacy_slot(&owner, self.connections_max) {
                return Ok(slot);
            }
            if tokio::time::Instant::now() >= deadline || starter.session.is_over() {
                return Err(self.unavailable(&format!(
                    "{} already, each with a connection of its own: raise maxConnections, or set shared: true if \
                     one connection may serve all clients",
                    counted(self.connections_max, "client")
                )));
            }
            tokio::time::sleep(SLOT_POLL).await;
        }
    }

    /// Opens a connection in its slot, unless one was opened meanwhile. If the backend turns out to speak the other
    /// era, the connection goes to that era's slot.
    async fn connect_in(
        self: &Arc<Self>,
        slot: &Arc<ConnectionSlot>,
        starter: Starter<'_>,
        eras: &[Era],
    ) -> Result<Arc<Connection>, CallError> {
        // Everything below is checked after the lock is taken: the wait for another start may have been long.
        let mut back_off: tokio::sync::MutexGuard<'_, BackOff> = slot.starting.lock().await;
        self.refuse_if_retired()?;
        if starter.session.is_over() {
            return Err(self.unavailable("the client's session is over"));
        }
        if let Some(connection) = slot.open() {
            return Ok(connection);
        }
        if let Some(closed) = slot.take_closed() {
            let why = closed.why_closed();
            tracing::warn!(backend = self.id, why, "backend went away");
            back_off.note_failure(why);
        }
        if let Some(why) = back_off.blocked_by() {
            return Err(self.unavailable(why));
        }
        let started = tokio::time::timeout(START_MAX, handshake::start(self, starter, eras)).await;
        let connection = match started.unwrap_or(Err(ConnectError::TooSlow(START_MAX))) {
            Ok(connection) => connection,
            Err(e) => {
                let why = e.to_string();
                tracing::warn!(backend = self.id, ?eras, why, "backend does not start");
                self.known.forget_eras();
                back_off.note_failure(why.clone());
                return Err(self.unavailable(&why));
            }
        };
        back_off.reset();
        let era = connection.era;
        self.known.learn_era(era, true);
        let slot = match era {
            _ if era == eras[0] => slot.clone(),
            Era::Modern => self.slots.modern.clone(),
            Era::Legacy => {
                self.legacy_slot(starter).await.inspect_err(|e| connection.close(&e.to_string()))?
            }
        };
        if era != eras[0] {
            self.known.learn_era(eras[0], false);
        }
        if connection.owner().is_some() {
            self.introduce(&connection, starter).await;
        }
        let connection = slot.put(connection);
        drop(back_off);
        // `retire` and `end_client` close the connections they find: one that was put into its slot after that is
        // closed here.
        self.refuse_if_retired().inspect_err(|e| connection.close(&e.to_string()))?;
        if era == Era::Legacy && !self.slots.holds(&connection.owner(), &slot) {
            connection.close("its client left");
        }
        // Never waits: a full queue of events has clients look again anyway.
        let _ = self.events.try_send(Event::Ready { backend: self.id.clone(), owner: connection.owner() });
        tracing::info!(backend = self.id, name = self.display_name, ?era, "backend ready");
        Ok(connection)
    }

    /// Tells a new server what clients tell a server once: the log level, and the roots if it asks for them.
    async fn introduce(&self, connection: &Arc<Connection>, starter: Starter<'_>) {
        let level = *lock(&starter.session.log_level);
        if let Some(level) = level.filter(|_| connection.offers("logging")) {
            let params = serde_json::json!({ "level": level }).to_string();
            // A server that refuses it is used anyway.
            let _ = connection.call(None, method::LOGGING_SET_LEVEL, Some(&params), FIRST_ANSWER_MAX).await;
        }
        if !starter.facts.can("roots") {
            return;
        }
        let questions = connection.questions();
        if tokio::time::timeout(FIRST_QUESTION_MAX, questions.first()).await.is_ok()
            && starter.facts.era == Era::Legacy
        {
            // The call goes ahead if the client does not answer in time.
            let _ = tokio::time::timeout(FIRST_ANSWER_MAX, questions.settled()).await;
        }
    }
}
