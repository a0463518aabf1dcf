//! Lists that are being read from a connection: who asks for one meanwhile waits for the same answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::backend::offer::{Kind, Offer};
use crate::session::lock;

/// What came of reading a list: the list, or why there is none.
pub(crate) type Landed = Result<Arc<Offer>, String>;

/// The kind, and the session where the list may differ between sessions.
type Key = (Kind, Option<String>);

/// The lists under way.
#[derive(Default)]
pub(crate) struct Flights(Mutex<HashMap<Key, watch::Receiver<Option<Landed>>>>);

impl Flights {
    /// Reads a list, unless somebody does already: then returns what comes of that.
    pub(crate) async fn join(
        &self,
        key: Key,
        read: impl FnOnce() -> tokio::task::JoinHandle<Landed>,
    ) -> Landed {
        let mut landed = {
            let mut flights = lock(&self.0);
            flights.retain(|_, flight| flight.has_changed().is_ok() && flight.borrow().is_none());
            match flights.get(&key) {
                Some(flight) => flight.clone(),
                None => {
                    let (land, landed) = watch::channel(None);
                    let reading = read();
                    // In a task of its own: the others still wait for it when the first request is dropped.
                    tokio::spawn(async move {
                        let came =
                            reading.await.unwrap_or_else(|_| Err("reading the list failed".to_owned()));
                        land.send_replace(Some(came));
                    });
                    flights.insert(key, landed.clone());
                    landed
                }
            }
        };
        let came = landed.wait_for(Option::is_some).await;
        came.ok().and_then(|came| came.clone()).unwrap_or_else(|| Err("reading the list failed".to_owned()))
    }
}
