//! Finds the processes of one test by a mark in their environment, even if they have another parent or session now.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Pid, Signal};

use super::{Deadline, LOOK_AGAIN};

/// The variable that carries the mark.
pub(super) const MARK_VARIABLE: &str = "SCRUBJAY_TEST_MARK";

/// The mark that identifies the processes of one test.
#[derive(Clone, Debug)]
pub(crate) struct Mark(pub(super) String);

/// A living process.
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    pub(crate) name: String,
    environment: Vec<u8>,
}

impl Mark {
    /// Makes a mark that no other process has.
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        // With the time, because an earlier run may have had the same process id.
        let now = scrubjay_tape::clock::now().wall_ns;
        Self(format!("{}-{number}-{now}", rustix::process::getpid()))
    }

    /// Returns the running processes that have the mark.
    pub(crate) fn living(&self) -> Vec<Process> {
        let wanted = format!("{MARK_VARIABLE}={}", self.0);
        let all = std::fs::read_dir("/proc").expect("/proc is there");
        all.filter_map(|entry| Process::read(entry.ok()?.file_name().to_str()?.parse().ok()?))
            .filter(|process| process.has_variable(&wanted))
            .collect()
    }

    /// Waits until no process has the mark any more.
    pub(crate) fn await_gone(&self) {
        let mut left = Vec::new();
        let deadline = Deadline::new();
        while !deadline.has_passed() {
            left = self.living();
            if left.is_empty() {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        panic!("still there: {left:?}");
    }

    /// Kills all processes that have the mark.
    pub(crate) fn end_all(&self) {
        while let living = self.living()
            && !living.is_empty()
        {
            living.iter().for_each(|process| kill(process.pid, Signal::KILL));
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, child of {})", self.pid, self.name, self.parent)
    }
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        // A zombie has ended: its environment is empty, so it has no mark.
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (before, after) = stat.rsplit_once(") ")?;
        let mut fields = after.split(' ');
        let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
        let name = before.split_once(" (")?.1.to_owned();
        (!matches!(state, "Z" | "X")).then_some(Self { pid: Pid::from_raw(pid)?, parent, name, environment })
    }

    pub(super) fn has_variable(&self, wanted: &str) -> bool {
        self.environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    }

    /// Returns a figure in kB from the process's status, such as `VmHWM`.
    pub(crate) fn status_kb(pid: Pid, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))
            .expect("the process lives");
        let line = status.lines().find(|line| line.starts_with(field)).expect("the field is there");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a figure in kB")
    }
}

/// Sends a signal to one process, which may have ended already.
pub(crate) fn kill(pid: Pid, signal: Signal) {
    let _ = rustix::process::kill_process(pid, signal);
}

/// Returns a process and its descendants, the deepest first.
pub(crate) fn tree_of(pid: Pid) -> Vec<Pid> {
    let mut all = vec![pid];
    let mut at = 0;
    while let Some(pid) = all.get(at).map(|pid| pid.as_raw_nonzero()) {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
        at += 1;
    }
    all.reverse();
    all
}
