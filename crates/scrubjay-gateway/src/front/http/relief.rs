//! Frees memory when it becomes short, so that active clients have some.
//!
//! In this order: events that clients have read and could ask for again; events on streams that nobody reads; lines for
//! clients that have no stream open; at last the connections of clients that do not read, those that are stalled the
//! longest first. Each message that is lost is noted on the tape of its session.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Front;
use crate::budget::MemoryUse;
use crate::listener::Connections;

/// A client that has not read for this long counts as stalled.
const STALLED: Duration = Duration::from_secs(1);
/// How long to wait until dropped memory is free and counted as such.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits for memory to become short and frees some, until the front is gone.
pub(super) async fn relieve(front: Weak<Front>, connections: Weak<Connections>) {
    let Some(budget) = front.upgrade().map(|front| front.gateway.budget().clone()) else { return };
    loop {
        budget.tight().await;
        while budget.is_tight(MemoryUse::Delivery) {
            let (Some(front), Some(connections)) = (front.upgrade(), connections.upgrade()) else { return };
            front.free_memory(&connections);
            drop((front, connections));
            tokio::time::sleep(PAUSE).await;
        }
        // Memory may be short for another use, which passes by itself. The pause keeps this loop from spinning
        // meanwhile.
        tokio::time::sleep(PAUSE).await;
    }
}

impl Front {
    fn free_memory(&self, connections: &Arc<Connections>) {
        let is_tight = || self.gateway.budget().is_tight(MemoryUse::Delivery);
        self.streams.forget_read();
        if is_tight() {
            self.streams.forget_unread();
        }
        if is_tight() {
            for session in self.gateway.all_sessions() {
                session.drop_queued();
            }
        }
        if is_tight() {
            connections.close_most_stalled(STALLED);
        }
    }
}
