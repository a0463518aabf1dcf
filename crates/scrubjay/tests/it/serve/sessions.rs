//! Many clients that connect and leave: the server of each ends with it, and no memory, process or descriptor is left.

use std::path::Path;

use serde_json::json;

use super::http::Target;
use super::listen::request;
use super::rig::{Served, answer_text, open_session, scratch, until};

const SESSIONS: usize = 1000;
/// How many are open at the same time.
const AT_ONCE: usize = 25;
/// How much memory may be added after the first quarter, because allocators keep some: a tenth of what sessions
/// with a list of tools and a server each would take.
const GROWTH_KB_MAX: u64 = 16 * 1024;

/// Everything the gateway holds: descriptors, memory in KiB, processes below it.
#[derive(Clone, Copy, Debug)]
struct GatewayResources {
    descriptors: usize,
    memory_kb: u64,
    servers: usize,
}

fn children_of(pid: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn held(worker: i32) -> GatewayResources {
    let of = Path::new("/proc").join(worker.to_string());
    let descriptors = std::fs::read_dir(of.join("fd")).map(Iterator::count).unwrap_or_default();
    let status = std::fs::read_to_string(of.join("status")).expect("it runs");
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let memory_kb = memory.trim().trim_end_matches("kB").trim().parse().expect("a number");
    let all = std::fs::read_dir("/proc").expect("there is /proc").filter_map(Result::ok);
    let parent = format!("PPid:\t{worker}");
    let is_below = |entry: &std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line == parent) && !status.contains("State:\tZ")
    };
    GatewayResources { descriptors, memory_kb, servers: all.filter(is_below).count() }
}

/// Opens sessions that each call their own server; half of them end their session, the others only disconnect.
fn open_and_leave(target: &Target) {
    let sessions: Vec<Target> = (0..AT_ONCE).map(|_| open_session(target)).collect();
    std::thread::scope(|scope| {
        for (number, session) in sessions.iter().enumerate() {
            scope.spawn(move || {
                let call = request(2, "tools/call", &json!({ "name": "process", "arguments": {} }));
                assert!(answer_text(&session.post(&call).json()).starts_with("process"));
                if number % 2 == 0 {
                    assert_eq!(session.delete().status, 200);
                }
            });
        }
    });
}

#[test]
fn a_thousand_sessions_leave_no_process_descriptor_or_memory() {
    let scratch = scratch();
    let server = [env!("CARGO_BIN_EXE_scrubjay"), "sample-server"];
    let config = json!({
        "serve": { "session_idle": "1s" },
        "backends": [{ "id": "sample", "type": "stdio", "command": server[0], "args": [server[1]] }],
    });
    let served = Served::configured(scratch.path(), &config.to_string(), None);
    let worker = *children_of(served.pid()).first().expect("a warden has a worker");
    let target = served.target();
    let first = {
        for _ in 0..SESSIONS / AT_ONCE / 4 {
            open_and_leave(&target);
        }
        until("the first are over", || held(worker).servers == 0);
        held(worker)
    };
    for _ in SESSIONS / AT_ONCE / 4..SESSIONS / AT_ONCE {
        open_and_leave(&target);
    }
    until("no server is left", || held(worker).servers == 0);
    until("no descriptor is left", || held(worker).descriptors <= first.descriptors);
    let last = held(worker);
    assert!(last.memory_kb <= first.memory_kb + GROWTH_KB_MAX, "{first:?} {last:?}");
}
