//! Finds and ends the descendants of this process, even those that left their process group.
//!
//! As child subreaper this process becomes the parent of every orphan among its descendants, so they are all found by
//! their parents, even a grandchild that called `setsid`.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

/// How long processes get between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);
/// How long a zombie may wait to be reaped.
const REAP_DELAY: Duration = Duration::from_secs(1);
/// How often it is checked whether processes have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How often SIGKILL is repeated: a process may fork while the list is read. With the pause, about a second.
const ROUNDS_MAX: u32 = 200;

/// Children that are not part of a server, and end by themselves, such as the process that fills the index.
static SPARED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Excludes a child from the descendants that are listed and ended.
pub fn spare(child: Pid) {
    SPARED.lock().unwrap_or_else(PoisonError::into_inner).push(child);
}

/// Includes a child again. To be called when it has ended: another process may get its id.
pub fn spare_no_more(child: Pid) {
    SPARED.lock().unwrap_or_else(PoisonError::into_inner).retain(|spared| *spared != child);
}

/// Makes this process the parent of its descendants' orphans.
///
/// # Errors
/// The system does not offer it.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Returns the living processes below this one.
#[must_use]
pub fn descendants() -> Vec<Pid> {
    let mut living = processes();
    let spared = SPARED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // A zombie has no children: the kernel gave them to the subreaper when it ended.
    living.retain(|process| !process.has_ended && !spared.contains(&process.pid));
    let mut found = vec![rustix::process::getpid()];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(living.iter().filter(|process| process.parent == parent).map(|process| process.pid));
        at += 1;
    }
    found.remove(0);
    found
}

/// Reaps adopted orphans as they end. Does not reap `server`, whose exit status is needed elsewhere.
///
/// # Errors
/// SIGCHLD cannot be caught.
pub(crate) async fn reap_orphans(server: Option<Pid>) -> io::Result<()> {
    let mut deaths = signal(SignalKind::child())?;
    while deaths.recv().await.is_some() {
        // Reading /proc costs the relay time, and zombies do no harm for a while.
        tokio::time::sleep(REAP_DELAY).await;
        let this = rustix::process::getpid();
        let dead = processes().into_iter().filter(|process| process.has_ended && process.parent == this);
        for process in dead.filter(|process| Some(process.pid) != server) {
            // Nobody needs its exit status.
            let _ = rustix::process::waitpid(Some(process.pid), WaitOptions::NOHANG);
        }
    }
    Ok(())
}

/// Waits for all descendants to end by themselves for `patience`, then sends SIGTERM, and after `grace` SIGKILL.
pub async fn end_descendants(patience: Duration, grace: Duration) {
    if all_gone_within(patience).await {
        return;
    }
    // By process, not by group: a server may have started processes that left its group.
    for process in descendants() {
        // Fails if it has ended meanwhile.
        let _ = rustix::process::kill_process(process, Signal::TERM);
    }
    if all_gone_within(grace).await {
        return;
    }
    for _ in 0..ROUNDS_MAX {
        let left = descendants();
        if left.is_empty() {
            return;
        }
        for process in left {
            let _ = rustix::process::kill_process(process, Signal::KILL);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn all_gone_within(time: Duration) -> bool {
    let deadline = tokio::time::Instant::now() + time;
    // Polled, because most of them are no children of ours, whose end we would be told of.
    while !descendants().is_empty() {
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    true
}

struct Process {
    pid: Pid,
    parent: Pid,
    /// Whether it is a zombie, which only waits to be reaped.
    has_ended: bool,
}

fn processes() -> Vec<Process> {
    let Ok(directory) = std::fs::read_dir("/proc") else { return Vec::new() };
    directory
        // A process that ends while the list is read is left out.
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (state, parent) = state_and_parent(&stat)?;
            let has_ended = matches!(state, "Z" | "X");
            Some(Process { pid: Pid::from_raw(pid)?, parent: Pid::from_raw(parent)?, has_ended })
        })
        .collect()
}

/// Reads state and parent from a `stat` line. The program's name may contain spaces and brackets, so fields are counted
/// from its end.
fn state_and_parent(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

/// Returns the parent of a process.
#[must_use]
pub fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Pid::from_raw(state_and_parent(&stat)?.1)
}

/// Returns a process's start time in clock ticks since boot, and its program's name.
#[must_use]
pub fn start_and_name(pid: Pid) -> Option<(u64, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (before, after) = stat.rsplit_once(") ")?;
    let name = before.split_once(" (")?.1.to_owned();
    // proc(5): starttime is field 22, and `after` begins with field 3.
    Some((after.split(' ').nth(19)?.parse().ok()?, name))
}

/// Returns how much processor time the processes of a group have used, their ended children included, in ticks.
#[must_use]
pub(crate) fn ticks_of_group(group: Pid) -> u64 {
    let Ok(directory) = std::fs::read_dir("/proc") else { return 0 };
    let ticks = directory.filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        group_and_ticks(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    });
    ticks.filter(|(of, _)| *of == group.as_raw_nonzero().get()).map(|(_, ticks)| ticks).sum()
}

/// Reads the process group and the processor time from a `stat` line.
fn group_and_ticks(stat: &str) -> Option<(i32, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // proc(5): utime, stime, cutime and cstime are the fields 14 to 17, counted from the process id.
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Some((fields.get(2)?.parse().ok()?, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        assert_eq!(state_and_parent("12 (a) b (c) ) S 7 12 12 0"), Some(("S", 7)));
    }

    #[test]
    fn time_used_is_counted_by_group() {
        let stat = "12 (a) b) S 7 9 12 0 -1 4194304 1 2 3 4 10 20 30 40 20 0";
        assert_eq!(group_and_ticks(stat), Some((9, 100)));
        assert_eq!(group_and_ticks("12 (a) S 7"), None);
    }

    #[test]
    fn this_process_has_a_start() {
        let (started, name) = start_and_name(rustix::process::getpid()).unwrap();
        assert!(started > 0 && !name.is_empty());
    }
}
