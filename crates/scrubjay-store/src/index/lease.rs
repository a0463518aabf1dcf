//! The lease is the right to fill the index: a file lock, or an advisory lock of PostgreSQL. Both end with their
//! process.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use sqlx::AnyConnection;

use super::IndexError;
use super::dialect::{self, IndexLocation};
use scrubjay_tape::clock;
use scrubjay_tape::home::Home;

/// How often a lock is tried while another process holds it.
const TRY_INTERVAL: Duration = Duration::from_millis(10);

/// The lease; dropping it frees the lock.
pub(super) struct Lease {
    _lock: LeaseLock,
}

#[expect(dead_code, reason = "kept for its drop, which frees the lock")]
enum LeaseLock {
    File(File),
    /// A connection of its own, which holds the lock. The mutex is never locked; it makes the lease `Sync`.
    Connection(Mutex<AnyConnection>),
}

impl Lease {
    /// Waits for the lease.
    pub(super) async fn take(
        home: &Home,
        location: &IndexLocation,
        wait_max: Duration,
    ) -> Result<Self, IndexError> {
        let begun = clock::now().instant;
        let is_late = || clock::now().instant.saturating_duration_since(begun) > wait_max;
        match location {
            IndexLocation::File(_) => {
                // Not the index's own file, which may be removed and created again.
                let path = home.root().join("index.lock");
                let failed = |source| IndexError::File { path: path.clone(), source };
                home.create().map_err(failed)?;
                let file =
                    OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
                loop {
                    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                        Ok(()) => return Ok(Self { _lock: LeaseLock::File(file) }),
                        Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                        Err(e) => return Err(failed(e.into())),
                    }
                    wait(is_late(), wait_max).await?;
                }
            }
            IndexLocation::Schema { url, name } => {
                // Not from the pool: the server frees the lock when this connection ends, and a pooled one would live
                // on.
                let mut connection = crate::database::connect(url).await.map_err(IndexError::Unreachable)?;
                while !dialect::try_lock(&mut connection, name).await? {
                    wait(is_late(), wait_max).await?;
                }
                Ok(Self { _lock: LeaseLock::Connection(Mutex::new(connection)) })
            }
        }
    }
}

async fn wait(is_late: bool, wait_max: Duration) -> Result<(), IndexError> {
    if is_late {
        return Err(IndexError::Busy(wait_max));
    }
    // Polled, because waiting for the lock itself would not end after `wait_max`.
    tokio::time::sleep(TRY_INTERVAL).await;
    Ok(())
}
