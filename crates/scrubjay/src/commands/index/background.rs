//! Starts the process that keeps the index current, beside `wrap` and `serve`.
//!
//! A process of its own, behind all others: what it needs is not in the memory of the recorder, nothing it does is on
//! the way of a message, and a recorder that ends does not wait for it.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use scrubjay_gateway::{tree, warden};
use scrubjay_tape::recording::Backlog;

use crate::cli::Global;

/// So much is recorded before somebody is to index it: a search catches up with that much at once.
const MUCH_BYTES: u64 = 1 << 20;
/// Messages that come in a rush are let pass first.
const RUSH: Duration = Duration::from_secs(3);
/// For a thread that only starts a process and waits.
const STACK_BYTES: usize = 64 * 1024;

/// Starts the process where the configuration wants it: at the end of a recorder, when nothing waits any more.
pub(crate) fn start_at_end(global: &Global) {
    if global.load().is_ok_and(|loaded| loaded.indexes_in_background()) {
        // It is not this one's to wait for.
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

    /// Returns what counts for recordings, and starts the process whenever much is new.
    pub(crate) fn backlog(&self) -> Backlog {
        let starter = self.clone();
        Backlog::new(MUCH_BYTES, move || starter.start_after(RUSH))
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
                // The end of a recorder waits for what its servers left behind, and not for this.
                let pid = rustix::process::Pid::from_child(&child);
                tree::spare(pid);
                // Where another waits for all orphans, it is gone by then.
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
    // What is sent to the host's group is not for this one.
    command.process_group(0);
    Ok(command)
}
