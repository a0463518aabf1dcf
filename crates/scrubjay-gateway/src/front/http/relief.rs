//! Gives up what can be done without when memory becomes short, so that there is room for who is there.
//!
//! In this order: what clients have read already and could ask for again; what waits on streams that nobody reads;
//! what waits for clients that listen to nothing; and at last the connections of clients that take nothing of what
//! waits for them, the longest first. What was not delivered is noted on the tape of its session.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Front;
use crate::budget::Use;
use crate::listener::Connections;

/// A client that takes nothing for this long does not count as one that reads.
const STALLED: Duration = Duration::from_secs(1);
/// How long it takes for what was given up to be free.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits for memory to become short, again and again.
pub(super) async fn relieve(front: Weak<Front>, connections: Weak<Connections>) {
    let Some(budget) = front.upgrade().map(|front| front.gateway.budget().clone()) else { return };
    loop {
        budget.tight().await;
        while budget.is_tight(Use::Delivery) {
            let (Some(front), Some(connections)) = (front.upgrade(), connections.upgrade()) else { return };
            front.give_up_something(&connections);
            drop((front, connections));
            tokio::time::sleep(PAUSE).await;
        }
        // Short for another reason, which passes by itself; not looked at for every message.
        tokio::time::sleep(PAUSE).await;
    }
}

impl Front {
    fn give_up_something(&self, connections: &Arc<Connections>) {
        let is_tight = || self.gateway.budget().is_tight(Use::Delivery);
        self.streams.forget_read();
        if is_tight() {
            self.streams.forget_unread();
        }
        if is_tight() {
            for session in self.gateway.all_sessions() {
                session.drop_kept();
            }
        }
        if is_tight() {
            connections.close_most_stalled(STALLED);
        }
    }
}
