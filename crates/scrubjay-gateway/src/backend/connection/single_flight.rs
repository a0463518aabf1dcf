//! Reads a list once for all who ask for it at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::backend::list::{BackendList, ListKind};
use crate::session::lock;

/// A list, or why it could not be read.
pub(crate) type ListResult = Result<Arc<BackendList>, String>;

/// The kind, and the session where the list may differ between sessions.
type Key = (ListKind, Option<String>);

/// The lists that are being read.
type UnderWay = Mutex<HashMap<Key, watch::Receiver<Option<ListResult>>>>;

/// The lists that are being read from a connection. A list that has been read is not kept here.
#[derive(Default)]
pub(crate) struct SingleFlight(Arc<UnderWay>);

impl SingleFlight {
    /// Reads a list, or waits for the result if it is being read already.
    pub(crate) async fn join(
        &self,
        key: Key,
        read: impl FnOnce() -> tokio::task::JoinHandle<ListResult>,
    ) -> ListResult {
        let mut landed = {
            let mut list_reads = lock(&self.0);
            match list_reads.get(&key) {
                Some(flight) => flight.clone(),
                None => {
                    let (land, landed) = watch::channel(None);
                    let (reading, under_way, own) = (read(), self.0.clone(), key.clone());
                    // In a task of its own: the others still wait for it when the first request is dropped.
                    tokio::spawn(async move {
                        let came =
                            reading.await.unwrap_or_else(|_| Err("reading the list failed".to_owned()));
                        // Removed first: a request that comes from now on reads the list again.
                        lock(&under_way).remove(&own);
                        land.send_replace(Some(came));
                    });
                    list_reads.insert(key, landed.clone());
                    landed
                }
            }
        };
        let came = landed.wait_for(Option::is_some).await;
        came.ok().and_then(|came| came.clone()).unwrap_or_else(|| Err("reading the list failed".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_has_landed_is_kept_by_nobody() {
        let list_reads = SingleFlight::default();
        let read = || tokio::spawn(async { Ok(Arc::new(BackendList::default())) });
        let key = || (ListKind::Tools, None);
        let (one, two) = tokio::join!(list_reads.join(key(), read), list_reads.join(key(), read));
        let (one, two) = (one.expect("it was read"), two.expect("it was read"));
        assert!(Arc::ptr_eq(&one, &two), "read once");
        drop(two);
        assert_eq!(Arc::strong_count(&one), 1, "only we have it");
        assert!(lock(&list_reads.0).is_empty());
    }
}
