//! Keeps the index current in the background: one process for each data directory, as long as its tapes grow.
//!
//! A recorder starts this process when it has recorded much, or when it ends, unless one is running. The process exits
//! when nothing is new for a while, so that it takes no memory while nothing is recorded.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use super::{CaughtUp, Index, IndexError};
use crate::ledger::Storage;
use scrubjay_tape::clock;
use scrubjay_tape::home::Home;

/// How often tapes are checked for new entries.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Checking takes at most 1/20 of the time, because with many thousands of tapes a check is not free.
const CHECK_SHARE: u32 = 20;

/// The lock of the process that keeps the index current; the kernel frees it when the process ends.
#[derive(Debug)]
pub struct KeeperLock {
    _file: File,
}

impl KeeperLock {
    /// Takes the lock; `None` if another process has it.
    ///
    /// # Errors
    /// The lock file cannot be created.
    pub fn take(home: &Home) -> io::Result<Option<Self>> {
        home.create()?;
        let path = home.root().join("index.keeper");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

impl Index {
    /// Keeps the index current until nothing was new for `quiet_max`; returns at once if another process is doing so.
    ///
    /// # Errors
    /// The index cannot be created or written, or the tapes cannot be listed.
    pub async fn keep_current(home: &Home, storage: &Storage, quiet_max: Duration) -> Result<(), IndexError> {
        let failed = |source| IndexError::File { path: home.root().to_owned(), source };
        // Not the lease: that is held only while rows are written, and searches take it, too.
        while let Some(lock) = KeeperLock::take(home).map_err(failed)? {
            let index = Self::open(home, storage).await?;
            let outcome = index.catch_up_until_quiet(quiet_max).await;
            // A recorder that found the lock taken relies on this process, so check once more after freeing it.
            drop(lock);
            let is_current = index.is_current().await;
            index.close().await;
            outcome?;
            if is_current? {
                break;
            }
        }
        Ok(())
    }

    async fn catch_up_until_quiet(&self, quiet_max: Duration) -> Result<(), IndexError> {
        let mut quiet_since = clock::now().instant;
        loop {
            let begun = clock::now().instant;
            match self.catch_up(|_| ()).await {
                // Tapes that cannot be read are tried each time, so reading a tape alone does not count as new.
                Ok(CaughtUp { entries: 0, removed: 0, .. }) => {}
                // Busy: another process is filling the index.
                Ok(_) | Err(IndexError::Busy(_)) => quiet_since = clock::now().instant,
                Err(e) => return Err(e),
            }
            let now = clock::now().instant;
            if now.saturating_duration_since(quiet_since) >= quiet_max {
                return Ok(());
            }
            let took = now.saturating_duration_since(begun);
            tokio::time::sleep(CHECK_INTERVAL.max(took * CHECK_SHARE)).await;
        }
    }
}
