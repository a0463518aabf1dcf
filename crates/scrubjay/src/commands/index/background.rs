//! Starts the process that keeps the index current, beside `wrap` and `serve`.
//!
//! It is a process of its own, at the lowest priority: its memory is not the recorder's, it delays no message, and a
//! recorder that ends does not wait for it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scrubjay_config::Loaded;
use scrubjay_gateway::{tree, warden};
use scrubjay_tape::recording::Backlog;

use crate::cli::Global;

/// 1 MiB: a search catches up with less in the time it takes anyway, so less is not worth a process.
const BACKLOG_BYTES_MIN: u64 = 1 << 20;
/// How long to wait before indexing, so that a burst of messages passes first.
const BURST: Duration = Duration::from_secs(3);
/// For a thread that only starts a process and waits.
const STACK_BYTES: usize = 64 * 1024;

/// Starts the process if the configuration wants it: at the end of a recorder, when nothing waits any more.
pub(crate) fn start_at_end(global: &Global, loaded: &Loaded) {
    if loaded.indexes_in_background() {
        // It outlives this process, which does not wait for it.
        drop(command(global).and_then(|mut command| command.spawn()));
    }
}

/// What starts the process from within a running recorder.
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

    /// Returns the counter for recordings, which starts the process whenever enough is new.
    pub(crate) fn backlog(&self) -> Backlog {
        let starter = self.clone();
        Backlog::new(BACKLOG_BYTES_MIN, move || starter.start_after(BURST))
    }

    /// Starts the process from a thread beside, unless this recorder's last one is running.
    pub(crate) fn start_after(&self, pause: Duration) {
        if !self.is_wanted || self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let starter = self.clone();
        let work = move || {
            std::thread::sleep(pause);
            if let Ok(mut child) = command(&starter.global).and_then(|mut command| command.spawn()) {
                // A recorder that ends waits for what its servers left running, but not for this.
                let pid = rustix::process::Pid::from_child(&child);
                tree::spare(pid);
                // If another thread waits for all children, it has been reaped by then.
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
    // A signal to the host's process group does not end it.
    command.process_group(0);
    Ok(command)
}
