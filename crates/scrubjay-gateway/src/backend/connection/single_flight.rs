//! Reads a list once for all who ask for it at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::backend::list::{BackendList, ListError, ListKind};
use crate::session::lock;

type ListResult = Result<Arc<BackendList>, ListError>;

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
        let mut result = {
            let mut list_reads = lock(&self.0);
            match list_reads.get(&key) {
                Some(result) => result.clone(),
                None => {
                    let (publish, result) = watch::channel(None);
                    let (reading, under_way, own_key) = (read(), self.0.clone(), key.clone());
                    // In a task of its own: the others still wait for it when the first request is dropped.
                    tokio::spawn(async move {
                        let read = reading.await.unwrap_or(Err(ListError::Aborted));
                        // Removed first: a request that comes from now on reads the list again.
                        lock(&under_way).remove(&own_key);
                        publish.send_replace(Some(read));
                    });
                    list_reads.insert(key, result.clone());
                    result
                }
            }
        };
        let read = result.wait_for(Option::is_some).await;
        read.ok().and_then(|read| read.clone()).unwrap_or(Err(ListError::Aborted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_list_is_read_once_and_not_kept_afterwards() {
        let list_reads = SingleFlight::default();
        let read = || tokio::spawn(async { Ok(Arc::new(BackendList::default())) });
        let key = || (ListKind::Tools, None);
        let (first, second) = tokio::join!(list_reads.join(key(), read), list_reads.join(key(), read));
        let (first, second) = (first.expect("it was read"), second.expect("it was read"));
        assert!(Arc::ptr_eq(&first, &second), "read once");
        drop(second);
        assert_eq!(Arc::strong_count(&first), 1, "only the test has it");
        assert!(lock(&list_reads.0).is_empty());
    }
}
