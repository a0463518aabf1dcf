//! System calls that bypass the C library, with which a workspace's files are changed. `strace` makes them fail.

use super::served::Served;
use crate::harness::tree_of;
use crate::injected::inject_into;

/// All system calls with which a workspace is read and changed.
const CALLS: [&str; 7] = ["openat2", "openat", "renameat2", "unlinkat", "fchmod", "fsync", "flock"];
const ERRORS: [&str; 3] = ["EIO", "ENOSPC", "EDQUOT"];

#[test]
#[ignore = "needs strace"]
fn failed_raw_system_calls_leave_workspace_files_complete() {
    let mut served = Served::start();
    // The gateway is two processes; the one below does the work.
    let tree = tree_of(served.pid());
    let worker = tree[tree.len() - 2];
    let most = if super::is_whole_walk() { 12 } else { 2 };
    for (at, call) in CALLS.iter().enumerate() {
        for number in 1..=most {
            let error = ERRORS[(at + number) % ERRORS.len()];
            // `strace` counts for each thread, so several calls may fail.
            let injection = format!("{call}:error={error}:when={number}");
            let tracer = inject_into(worker, &[call], &[&injection]);
            served.story(&format!("{call}-{number}"));
            drop(tracer);
            served.everything_works(&injection);
            served.check_files(&injection);
        }
    }
    served.finish();
}
