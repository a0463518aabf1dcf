//! Starts the background process that keeps the index current while `wrap` and `serve` record.
//!
//! It is a separate process with the lowest priority, so that it takes no memory of the recorder and delays no message, and
//! so that a recorder can end without waiting for it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scrubjay_config::Loaded;
use scrubjay_gateway::{tree, warden};
use scrubjay_tape::recording::Backlog;

use crate::cli::Global;

/// 1 MiB: a search catches up with less in no noticeable time, so less is not worth a process.
const BACKLOG_BYTES_MIN: u64 = 1 << 20;
/// How long to wait before indexing, so that a burst of messages passes first.
const BURST: Duration = Duration::from_secs(3);
/// 64 KiB: enough for a thread that only starts a process and waits.
const STACK_BYTES: usize = 64 * 1024;

/// Starts the process at the end of a recorder, if it is configured.
pub(crate) fn start_at_end(global: &Global, loaded: &Loaded) {
    if loaded.indexes_in_background() {
        // It outlives this process, which does not wait for it.
        drop(command(global).and_then(|mut command| command.spawn()));
    }
}

/// Starts the process from within a running recorder, one at a time.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    global: Global,
    is_wanted: bool,
    is_running: Arc<AtomicBool>,
}

impl Starter {
    pub(crate) fn new(global: &Global, is_wanted: bool) -> Self {
        Self { global: global.clone(), is_wanted, is_running: Arc::default() }
    }

    /// Returns the counter that recordings add to; it starts the process when there is enough to index.
    pub(crate) fn backlog(&self) -> Backlog {
        let starter = self.clone();
        Backlog::new(BACKLOG_BYTES_MIN, move || starter.start_after(BURST))
    }

    /// Starts the process after a pause, on a thread, unless the one that this recorder started last still runs.
    pub(crate) fn start_after(&self, pause: Duration) {
        if !self.is_wanted || self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let starter = self.clone();
        let work = move || {
            std::thread::sleep(pause);
            if let Ok(mut child) = command(&starter.global).and_then(|mut command| command.spawn()) {
                // At its end a recorder ends all its descendants, but not this one.
                let pid = rustix::process::Pid::from_child(&child);
                tree::spare(pid);
                // It fails if another thread, which waits for all children, has reaped it.
                let _ = child.wait();
                tree::spare_no_more(pid);
            }
            starter.is_running.store(false, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("index".to_owned()).stack_size(STACK_BYTES).spawn(work);
        if thread.is_err() {
            self.is_running.store(false, Ordering::Release);
        }
    }
}

fn command(global: &Global) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    global.repeat(&mut command);
    command.args(["index", "catch-up", "--background"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    warden::clean_environment(&mut command);
    // So that a signal to the host's process group, such as Ctrl-C, does not end it.
    command.process_group(0);
    Ok(command)
}
