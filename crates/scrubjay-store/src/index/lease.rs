//! The right to fill the index: a lock on a file, which the kernel takes back from whoever dies.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::IndexError;
use crate::clock;
use crate::home::Home;

/// How often a lock that another holds is asked for.
const INTERVAL: Duration = Duration::from_millis(10);

/// The lease; given back when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    _file: File,
}

impl Lease {
    /// Waits for the lease.
    pub(super) async fn take(home: &Home, patience: Duration) -> Result<Self, IndexError> {
        let path = home.root().join("index.lock");
        let failed = |source| IndexError::File { path: path.clone(), source };
        home.create().map_err(failed)?;
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed)?;
        let begun = clock::now().instant;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(e) => return Err(failed(e.into())),
            }
            if clock::now().instant.saturating_duration_since(begun) > patience {
                return Err(IndexError::Busy(patience));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}
