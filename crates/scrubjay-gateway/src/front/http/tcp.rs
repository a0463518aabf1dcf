//! What the front knows of one TCP connection: the process at its other end, and its conversations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OnceCell, Semaphore};

use super::peer::{self, PeerProcess};
use crate::listener::ConnectionAddresses;
use crate::session::lock;

/// How many clients of one connection are remembered; a proxy may carry more, which are then found by other means.
const CLIENTS_MAX: usize = 64;

/// Each search reads many small files of `/proc`: two at a time, however many connections come.
static SEARCHES: Semaphore = Semaphore::const_new(2);

/// One TCP connection, shared by its requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Tcp(Arc<Connection>);

#[derive(Debug, Default)]
struct Connection {
    ends: ConnectionAddresses,
    process: OnceCell<Option<PeerProcess>>,
    /// The session's id, by client.
    conversations: Mutex<HashMap<String, String>>,
}

impl Tcp {
    pub(super) fn new(ends: ConnectionAddresses) -> Self {
        Self(Arc::new(Connection { ends, ..Connection::default() }))
    }

    /// Returns the process at the other end, if it can be found.
    pub(super) async fn process(&self) -> Option<PeerProcess> {
        let find = || async {
            let (peer, local) = self.0.ends?;
            let _permit = SEARCHES.acquire().await.ok()?;
            tokio::task::spawn_blocking(move || peer::process(peer, local)).await.ok().flatten()
        };
        // Once for each connection: its other end does not change.
        *self.0.process.get_or_init(find).await
    }

    pub(super) fn conversation(&self, client: &str) -> Option<String> {
        lock(&self.0.conversations).get(client).cloned()
    }

    pub(super) fn remember(&self, client: &str, session: &str) {
        let mut known = lock(&self.0.conversations);
        if known.len() < CLIENTS_MAX || known.contains_key(client) {
            known.insert(client.to_owned(), session.to_owned());
        }
    }

    /// Returns the connection's conversation, if there is exactly one.
    pub(super) fn only_conversation(&self) -> Option<String> {
        let known = lock(&self.0.conversations);
        // With several clients behind one connection, a proxy's, it is unknown whose the next request is.
        (known.len() == 1).then(|| known.values().next().cloned()).flatten()
    }
}
