//! Notifies subscribers that a resource changed, even if another process changed it.
//!
//! The last event of each resource is compared with the one seen before: after every write of this process, and once a
//! second because of other processes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::model::{ErrorCode, ResourceUpdatedNotificationParam};
use rmcp::service::{Peer, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer};
use scrubjay_store::ledger::{LedgerError, event, session};

use super::address::ResourceAddress;
use super::unknown;
use crate::recorder::Recorder;
use crate::reply::Failure;
use crate::shared::Shared;

/// How many resources one client may subscribe to: each costs a query of the ledger every second.
const SUBSCRIPTIONS_MAX: usize = 1000;

/// The resources that one client of a legacy protocol version is subscribed to, with the last version it was notified
/// of.
#[derive(Default)]
pub(in crate::recorder) struct Subscriptions {
    uris: Mutex<BTreeMap<String, i64>>,
    is_running: AtomicBool,
}

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, i64>> {
        self.uris.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::recorder) fn forget(&self, uri: &str) {
        self.lock().remove(uri);
    }

    /// Notes the version that the client is notified of; returns false if it unsubscribed while the version was read.
    fn advance(&self, uri: &str, version: i64) -> bool {
        self.lock().get_mut(uri).map(|seen| *seen = version).is_some()
    }
}

impl Recorder {
    /// Subscribes a client of a legacy protocol version to a resource.
    pub(in crate::recorder) async fn subscribe_to(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let address = ResourceAddress::parse(&uri).ok_or_else(|| unknown(&uri))?;
        // Read before the subscription is stored: a change in between causes a notification, and none is missed.
        let version = version(&self.shared, &address)
            .await
            .map_err(|e| Failure::from(e).into_error(ErrorCode::INTERNAL_ERROR))?;
        {
            let mut uris = self.subscriptions.lock();
            if uris.len() >= SUBSCRIPTIONS_MAX && !uris.contains_key(&uri) {
                let message = format!(
                    "there are {SUBSCRIPTIONS_MAX} subscriptions, the maximum: unsubscribe from some first"
                );
                return Err(ErrorData::invalid_request(message, None));
            }
            uris.insert(uri, version);
        }
        self.notify_subscriber(context);
        Ok(())
    }

    /// Starts the task that notifies a client of a legacy protocol version until it leaves.
    pub(in crate::recorder) fn notify_subscriber(&self, context: &RequestContext<RoleServer>) {
        // One task per client. Only the flag itself is shared, so nothing has to be ordered with it.
        if self.subscriptions.is_running.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shared, subscriptions, peer) =
            (self.shared.clone(), self.subscriptions.clone(), context.peer.clone());
        tokio::spawn(async move {
            let mut sessions = count(&shared).await.unwrap_or(0);
            // `is_running` is never reset: the task ends with the transport, and `Subscriptions` belongs to one
            // client.
            while !peer.is_transport_closed() {
                shared.wait_for_writes().await;
                if let Err(e) = notify_changes(&shared, &subscriptions, &peer, &mut sessions).await {
                    tracing::debug!(error = %e, "subscribers cannot be notified");
                }
            }
        });
    }

    /// Notifies a client of a modern protocol version until it cancels its subscription.
    pub(in crate::recorder) async fn notify_while_subscribed(&self, context: SubscriptionContext) {
        let accepted = context.accepted().clone();
        let uris = accepted.resource_subscriptions.clone().unwrap_or_default();
        let addresses: Vec<(String, ResourceAddress)> = uris
            .into_iter()
            .take(SUBSCRIPTIONS_MAX)
            .filter_map(|uri| Some((uri.clone(), ResourceAddress::parse(&uri)?)))
            .collect();
        let mut versions = BTreeMap::new();
        for (uri, address) in &addresses {
            // If the ledger cannot be read now, the client gets a notification too many later, but none too few.
            versions.insert(uri.clone(), version(&self.shared, address).await.unwrap_or(0));
        }
        let mut sessions = count(&self.shared).await.unwrap_or(0);
        loop {
            tokio::select! {
                () = context.cancelled() => return,
                () = self.shared.wait_for_writes() => {}
            }
            for (uri, address) in &addresses {
                // What cannot be read now is compared again in the next round.
                let Ok(now) = version(&self.shared, address).await else { continue };
                if versions.insert(uri.clone(), now) != Some(now)
                    && context.sink().notify_resource_updated(uri).await.is_err()
                {
                    return;
                }
            }
            let now = count(&self.shared).await.unwrap_or(sessions);
            if std::mem::replace(&mut sessions, now) != now && accepted.resources_list_changed == Some(true) {
                // A client that has left is noticed by `cancelled` above.
                let _ = context.sink().notify_resource_list_changed().await;
            }
        }
    }
}

async fn notify_changes(
    shared: &Shared,
    subscriptions: &Subscriptions,
    peer: &Peer<RoleServer>,
    sessions: &mut i64,
) -> Result<(), LedgerError> {
    // Copied, because the lock cannot be held across the queries.
    let uris: Vec<(String, i64)> =
        subscriptions.lock().iter().map(|(uri, seen)| (uri.clone(), *seen)).collect();
    for (uri, seen) in uris {
        let Some(address) = ResourceAddress::parse(&uri) else { continue };
        let now = version(shared, &address).await?;
        if now != seen && subscriptions.advance(&uri, now) {
            // The caller notices if the client has left.
            let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await;
        }
    }
    let now = count(shared).await?;
    if std::mem::replace(sessions, now) != now {
        let _ = peer.notify_resource_list_changed().await;
    }
    Ok(())
}

/// Returns a number that changes with the resource: its last event.
async fn version(shared: &Shared, address: &ResourceAddress) -> Result<i64, LedgerError> {
    let mut read = shared.ledger().await?.read().await?;
    event::last(&mut read, address.session()).await
}

async fn count(shared: &Shared) -> Result<i64, LedgerError> {
    session::count(&mut shared.ledger().await?.read().await?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_unsubscribed_meanwhile_stays_unsubscribed() {
        let subscriptions = Subscriptions::default();
        subscriptions.lock().insert("scrubjay://sessions/a/story".to_owned(), 1);
        assert!(subscriptions.advance("scrubjay://sessions/a/story", 2));
        subscriptions.forget("scrubjay://sessions/a/story");
        assert!(!subscriptions.advance("scrubjay://sessions/a/story", 3));
        assert!(subscriptions.lock().is_empty());
    }
}
