//! The slots for a backend's connections: one modern connection for all clients, a legacy one for each.
//!
//! The modern era has no sessions, so one connection serves everybody. A legacy server keeps roots, log levels
//! and logins by connection, so every client has its own, unless the user says that one may serve all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scrubjay_core::envelope::Era;
use tokio::time::Instant;

use super::connection::Connection;
use crate::session::lock;

/// Doubled with each failure after the first.
const BACK_OFF_MIN: Duration = Duration::from_millis(250);
/// A server that was repaired is found within this time.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// With all slots taken, a connection loses its slot only if it was unused for this long: a client in the middle of its
/// work keeps what the server holds for it.
const EVICT_AFTER: Duration = Duration::from_secs(5);

/// The client that owns a connection; `None` where it serves all clients.
pub(crate) type Owner = Option<Arc<str>>;

/// A slot for one connection.
#[derive(Default)]
pub(super) struct ConnectionSlot {
    /// Locked while a connection is being opened: the others wait for the same one.
    pub(super) starting: tokio::sync::Mutex<BackOff>,
    open: Mutex<Option<Arc<Connection>>>,
}

impl ConnectionSlot {
    /// Returns the connection, if there is one that is open.
    pub(super) fn open(&self) -> Option<Arc<Connection>> {
        lock(&self.open).as_ref().filter(|connection| connection.is_open()).cloned()
    }

    /// Returns whether the connection in it has closed by itself.
    pub(super) fn has_closed(&self) -> bool {
        lock(&self.open).as_ref().is_some_and(|connection| !connection.is_open())
    }

    /// Removes a connection that has closed.
    pub(super) fn take_closed(&self) -> Option<Arc<Connection>> {
        lock(&self.open).take_if(|connection| !connection.is_open())
    }

    /// Puts a connection in the slot unless another was opened meanwhile; returns the connection that is in it.
    pub(super) fn put(&self, connection: Arc<Connection>) -> Arc<Connection> {
        let mut open = lock(&self.open);
        // A start that found the other era puts its connection into a slot that it has not locked.
        if let Some(here) = open.as_ref().filter(|here| here.is_open()) {
            connection.close("another connection was opened at the same time");
            return here.clone();
        }
        *open = Some(connection.clone());
        connection
    }

    /// Returns why it holds no open connection, if that is known.
    pub(super) fn why_empty(&self) -> Option<String> {
        // Never waits: a person asks for the state, and a start may take as long as `START_MAX`.
        let Ok(back_off) = self.starting.try_lock() else { return Some("it is being started".to_owned()) };
        let closed = lock(&self.open).as_ref().map(|connection| connection.why_closed());
        closed.or_else(|| back_off.last_failure())
    }
}

/// The pause after failed starts, longer with each.
#[derive(Default)]
pub(super) struct BackOff {
    failures: u32,
    until: Option<(Instant, String)>,
}

impl BackOff {
    /// Notes a failure. After the first there is no pause: the server may just have been restarted.
    pub(super) fn note_failure(&mut self, why: String) {
        self.failures += 1;
        let pause = match self.failures {
            1 => Duration::ZERO,
            // The bound keeps the shift from overflowing; the pause has long reached its maximum by then.
            n => BACK_OFF_MIN.saturating_mul(1 << n.min(10)).min(BACK_OFF_MAX),
        };
        self.until = Some((Instant::now() + pause, why));
    }

    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the last failure while its pause lasts.
    pub(super) fn blocked_by(&self) -> Option<&str> {
        self.until.as_ref().filter(|(until, _)| Instant::now() < *until).map(|(_, why)| why.as_str())
    }

    fn last_failure(&self) -> Option<String> {
        self.until.as_ref().map(|(_, why)| why.clone())
    }
}

/// All slots of one backend.
#[derive(Default)]
pub(super) struct ConnectionSlots {
    pub(super) modern: Arc<ConnectionSlot>,
    legacy: Mutex<HashMap<Owner, Arc<ConnectionSlot>>>,
}

impl ConnectionSlots {
    /// Returns the legacy connection of an owner, if it is open.
    pub(super) fn legacy(&self, owner: &Owner) -> Option<Arc<Connection>> {
        lock(&self.legacy).get(owner)?.open()
    }

    /// Returns the slot for an owner's legacy connection; `None` while other clients have all of them.
    pub(super) fn legacy_slot(&self, owner: &Owner, slots_max: usize) -> Option<Arc<ConnectionSlot>> {
        let mut legacy = lock(&self.legacy);
        if let Some(slot) = legacy.get(owner) {
            return Some(slot.clone());
        }
        if legacy.len() >= slots_max {
            // A slot whose lock is taken has a start under way, which would end in a slot that nobody finds.
            legacy.retain(|_, slot| slot.open().is_some() || slot.starting.try_lock().is_err());
        }
        // Only an idle connection is evicted: with calls or subscriptions open its client would lose them.
        if legacy.len() >= slots_max {
            let idle = |slot: &ConnectionSlot| slot.open().and_then(|connection| connection.idle());
            let longest = legacy.iter().filter_map(|(owner, slot)| Some((idle(slot)?, owner.clone()))).max();
            let (_, evicted) = longest.filter(|(idle, _)| *idle >= EVICT_AFTER)?;
            let closed = legacy.remove(&evicted).and_then(|slot| slot.open());
            if let Some(connection) = closed {
                connection.revoke("another client needed its place, and it was not in use");
            }
        }
        Some(legacy.entry(owner.clone()).or_default().clone())
    }

    /// Returns whether a slot is still its owner's. After `remove` nobody could close a connection that is put into it.
    pub(super) fn holds(&self, owner: &Owner, slot: &Arc<ConnectionSlot>) -> bool {
        lock(&self.legacy).get(owner).is_some_and(|held| Arc::ptr_eq(held, slot))
    }

    /// Removes the slot of an owner; returns the connection that was in it.
    pub(super) fn remove(&self, owner: &Owner) -> Option<Arc<Connection>> {
        lock(&self.legacy).remove(owner)?.open()
    }

    /// Removes the slots of clients whose connections were not used for this long, and returns those connections.
    pub(super) fn remove_idle(&self, silence: Duration) -> Vec<Arc<Connection>> {
        let mut idle = Vec::new();
        lock(&self.legacy).retain(|owner, slot| match slot.open() {
            Some(connection) if owner.is_some() && connection.idle().is_some_and(|i| i > silence) => {
                idle.push(connection);
                false
            }
            Some(_) => true,
            None => slot.starting.try_lock().is_err(),
        });
        idle
    }

    /// Returns the connections that are open.
    pub(super) fn open(&self) -> Vec<Arc<Connection>> {
        let legacy: Vec<_> = lock(&self.legacy).values().filter_map(|slot| slot.open()).collect();
        self.modern.open().into_iter().chain(legacy).collect()
    }

    /// Returns the open connections that serve a client: its own and those that serve all.
    pub(super) fn open_for(&self, client: &Arc<str>, era: Era) -> Vec<Arc<Connection>> {
        let shared = self.modern.open().filter(|_| era == Era::Modern).into_iter().chain(self.legacy(&None));
        shared.chain(self.legacy(&Some(client.clone()))).collect()
    }

    /// Returns why there is no connection, if that is known.
    pub(super) fn why_none(&self) -> Option<String> {
        let legacy: Vec<_> = lock(&self.legacy).values().cloned().collect();
        legacy.iter().chain([&self.modern]).find_map(|slot| slot.why_empty())
    }
}

#[cfg(test)]
mod tests;
