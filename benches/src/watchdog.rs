//! Kills a target that does not answer, so that no read of the benchmark blocks forever.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::procfs;

/// Kills the processes of one target when its time is up; harmless once dropped.
pub struct Watchdog {
    // Dropping the sender stops the thread.
    cancel: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    fired: Arc<AtomicBool>,
}

impl Watchdog {
    /// Starts to watch the child `root` of this process.
    pub fn over(root: u32, limit: Duration) -> Self {
        let (cancel, cancelled) = mpsc::channel();
        let fired = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&fired);
        let thread = thread::spawn(move || {
            if cancelled.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                flag.store(true, Ordering::SeqCst);
                // If this fails the run hangs, which is noticed; the result of this thread is not used.
                let _ = kill_tree(root);
            }
        });
        Self { cancel: Some(cancel), thread: Some(thread), fired }
    }

    /// Returns whether the time was up.
    pub fn fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.cancel.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Kills the child `root` of this process and everything below it.
pub fn kill_tree(root: u32) -> io::Result<()> {
    // The pid of a child that was already waited for may be reused by another process.
    if !procfs::is_own_child(root) {
        return Ok(());
    }
    // The whole tree: a worker left behind would keep the pipe open that the client reads.
    let pids = procfs::tree(root)?;
    Command::new("kill").arg("-9").args(pids.iter().map(u32::to_string)).status().map(|_| ())
}
