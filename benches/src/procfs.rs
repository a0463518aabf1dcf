//! Reads the costs of a relay from `/proc`: its processes, their CPU time and their memory.
//!
//! A relay may be several processes (a parent that watches over a worker), so everything is
//! summed over the descendants of the one that was started. The benchmark's own server, which
//! is a child of the relay, is recognised by its executable and left out.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

// USER_HZ, the unit of /proc/PID/stat: 100 on every architecture Rust's std supports.
const TICK_NS: u64 = 10_000_000;

/// CPU time used so far, from two sources of the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// From the threads' `schedstat`: to the nanosecond, but without threads that ended.
    pub scheduled: Duration,
    /// From the processes' `stat`: user and system time with ended threads, in 10 ms ticks.
    pub ticked: Duration,
}

impl Cpu {
    /// Returns what was used since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            scheduled: self.scheduled.saturating_sub(earlier.scheduled),
            ticked: self.ticked.saturating_sub(earlier.ticked),
        }
    }
}

/// The memory of one process, in KiB.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The name of the process.
    pub name: String,
    /// Resident now.
    pub rss_kib: u64,
    /// Resident at its highest.
    pub peak_kib: u64,
    /// Resident now, with shared pages split among those that share them.
    pub pss_kib: u64,
}

/// Returns `root` and all processes below it.
pub fn tree(root: u32) -> io::Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process may end while the listing is read.
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

/// Returns the processes of the relay started as `root`: all below it that do not run `server`.
pub fn relay_processes(root: u32, server: &Path) -> io::Result<Vec<u32>> {
    let runs_server = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == server);
    Ok(tree(root)?.into_iter().filter(|pid| !runs_server(pid)).collect())
}

/// Returns the CPU time the processes have used.
pub fn cpu(pids: &[u32]) -> io::Result<Cpu> {
    let mut sum = Cpu::default();
    for pid in pids {
        sum.ticked += Duration::from_nanos(ticks(*pid)? * TICK_NS);
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread may end between listing and reading; `ticked` still holds its time.
            let Ok(line) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
            let on_cpu_ns = line.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0);
            sum.scheduled += Duration::from_nanos(on_cpu_ns);
        }
    }
    Ok(sum)
}

/// Returns the memory of a process.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm"))?.trim_end().to_owned();
    Ok(Memory {
        name,
        rss_kib: kib_of(&status, "VmRSS:")?,
        peak_kib: kib_of(&status, "VmHWM:")?,
        pss_kib: kib_of(&rollup, "Pss:")?,
    })
}

/// Returns the share of all CPU time (0 to 1) that is used during `sample`, while this process sleeps.
pub fn busy_share(sample: Duration) -> io::Result<f64> {
    let (busy_before, all_before) = cpu_ticks()?;
    thread::sleep(sample);
    let (busy_after, all_after) = cpu_ticks()?;
    Ok((busy_after - busy_before) as f64 / (all_after - all_before).max(1) as f64)
}

/// Returns whether `pid` is a child of this process.
pub fn is_own_child(pid: u32) -> bool {
    parent_of(pid) == Some(std::process::id())
}

// The ticks of all CPUs since the system started: busy ones, and all.
fn cpu_ticks() -> io::Result<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
    let fields = line.map(|line| line.split_whitespace().map_while(|field| field.parse().ok()).collect());
    let fields: Vec<u64> = fields.unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is already within user.
    let [user, nice, system, idle, waiting, irq, softirq, steal, ..] = fields[..] else {
        return Err(unreadable("/proc/stat"));
    };
    let busy = user + nice + system + irq + softirq + steal;
    Ok((busy, busy + idle + waiting))
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat_fields(&stat)?.nth(1)?.parse().ok()
}

fn ticks(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let times = || {
        // utime and stime are the fields 14 and 15 of proc(5).
        let mut fields = stat_fields(&stat)?.skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    times().ok_or_else(|| unreadable("/proc/PID/stat"))
}

// The fields from the third on: the second, the name, may itself hold spaces and parentheses.
fn stat_fields(stat: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split(' '))
}

fn kib_of(listing: &str, key: &str) -> io::Result<u64> {
    let value = listing.lines().find_map(|line| line.strip_prefix(key));
    let number = value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok());
    number.ok_or_else(|| unreadable(key))
}

fn unreadable(what: &str) -> io::Error {
    io::Error::other(format!("cannot parse {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "12 (a) (b c) S 7 12 12";
        assert_eq!(stat_fields(stat).and_then(|mut fields| fields.nth(1)), Some("7"));
    }

    #[test]
    fn this_process_is_found() {
        let own = std::process::id();
        assert!(tree(own).unwrap().contains(&own));
        assert!(memory(own).unwrap().rss_kib > 0);
        assert!(cpu(&[own]).is_ok());
    }
}
